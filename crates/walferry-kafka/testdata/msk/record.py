"""Records the tokens that Amazon's own signer makes for fixed keys and times, as `tokens.json`.

    python3 -m venv v && v/bin/pip install aws-msk-iam-sasl-signer-python==1.0.2 freezegun==1.5.5
    v/bin/python record.py > tokens.json
"""

import json
from importlib.metadata import version

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import CredentialProvider, Credentials
from freezegun import freeze_time

TOKEN = "IQoJb3JpZ2luX2VjEJr//////////wEaCXVzLWVhc3QtMSJHMEUCIQ+/=="
CASES = [
    # region, time, access key, secret key, session token
    ("us-east-1", "2024-02-29T23:59:59Z", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None),
    ("eu-central-1", "2026-01-01T00:00:00Z", "ASIAEXAMPLE0000000000", "secret", TOKEN),
    ("cn-north-1", "2025-12-31T12:34:56Z", "AKIDCHINA", "with/slash+plus=equals", None),
    ("us-gov-west-1", "2025-07-04T01:02:03Z", "AKIDGOV", "~tilde-dash_under.dot", TOKEN),
    ("ap-southeast-7", "2030-10-10T10:10:10Z", "AK/ID+ODD=1 &?%", " blank \u00e4\u00f6\u00fc \"quoted\" %2F", "tok en/+=&%~*'()\u00e9"),
    ("eusc-de-east-1", "2026-11-27T09:00:00Z", "AKIDEU", "s" * 128, "t" * 1500),
]


class Fixed(CredentialProvider):
    def __init__(self, *keys):
        self.keys = keys

    def load(self):
        return Credentials(*self.keys)


out = []
for region, at, access_key, secret_key, session_token in CASES:
    with freeze_time(at):
        token, expires_ms = signer.generate_auth_token_from_credentials_provider(
            region, Fixed(access_key, secret_key, session_token)
        )
    out.append(dict(region=region, at=at, access_key=access_key, secret_key=secret_key,
                    session_token=session_token, token=token, expires_ms=expires_ms))
# A request to STS, as botocore signs it.
sts = dict(region="us-west-2", at="2026-11-27T10:11:12Z", access_key="AKIDEXAMPLE", secret_key="secr/et+", session_token=TOKEN,
           host="sts.us-west-2.amazonaws.com",
           body="Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=s&Version=2011-06-15")
with freeze_time(sts["at"]):
    request = AWSRequest(method="POST", url=f"https://{sts['host']}/", data=sts["body"],
                         headers={"Content-Type": "application/x-www-form-urlencoded"})
    keys = Credentials(sts["access_key"], sts["secret_key"], sts["session_token"])
    SigV4Auth(keys, "sts", sts["region"]).add_auth(request)
    sts["authorization"] = request.headers["Authorization"]

agent = f"{signer.LIB_NAME}/{version(signer.LIB_NAME)}"
print(json.dumps(dict(signer=agent, botocore=version("botocore"), cases=out, sts=sts), indent=1))
