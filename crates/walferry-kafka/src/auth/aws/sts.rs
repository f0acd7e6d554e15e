//! The Security Token Service: credentials of a role.

use jiff::Timestamp;
use walferry_config::Secret;

use super::keys::Credentials;
use super::options::{AwsError, Env, Role, domain};
use super::{http, sign};

/// The name of sessions, as Amazon's library gives it.
const SESSION: &str = "aws-msk-iam-auth";

const DENIED: &str = "check that the trust policy of the role names the identity that assumes it, and that this identity may call sts:AssumeRole; \
                      check the external id, and the machine's clock";

/// The service in one region.
pub(super) struct Sts<'a> {
    pub(super) region: &'a str,
    pub(super) fips: bool,
    pub(super) now_ms: i64,
    pub(super) env: Env<'a>,
}

impl Sts<'_> {
    fn endpoint(&self) -> String {
        let own = (self.env)("AWS_ENDPOINT_URL_STS").or_else(|| (self.env)("AWS_ENDPOINT_URL"));
        own.unwrap_or_else(|| {
            let name = if self.fips { "sts-fips" } else { "sts" };
            format!("https://{name}.{}.{}", self.region, domain(self.region))
        })
    }

    /// Credentials of a role, for somebody who may assume it.
    pub(super) fn assume(&self, role: &Role, by: &Credentials) -> Result<Credentials, AwsError> {
        let duration = role.duration_seconds.map(|seconds| seconds.to_string());
        let mut form = vec![("Action", "AssumeRole")];
        form.extend(role.external_id.as_deref().map(|id| ("ExternalId", id)));
        form.extend(duration.as_deref().map(|seconds| ("DurationSeconds", seconds)));
        self.ask(role, &form, Some(by))
    }

    /// Credentials of a role, for somebody with a token of another identity provider, such as a Kubernetes service account.
    pub(super) fn assume_with_token(&self, role: &Role, token_file: &str) -> Result<Credentials, AwsError> {
        let token = std::fs::read_to_string(token_file).map_err(|error| {
            AwsError::new(
                format!("the web identity token {token_file} cannot be read: {error}"),
                "check AWS_WEB_IDENTITY_TOKEN_FILE, and that the pod has its service account",
            )
        })?;
        let form = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("WebIdentityToken", token.trim()),
        ];
        self.ask(role, &form, None)
    }

    fn ask(&self, role: &Role, form: &[(&str, &str)], by: Option<&Credentials>) -> Result<Credentials, AwsError> {
        let endpoint = self.endpoint();
        let endpoint = endpoint.trim_end_matches('/');
        let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form)
            .append_pair("RoleArn", &role.arn)
            .append_pair("RoleSessionName", role.session_name.as_deref().unwrap_or(SESSION))
            .append_pair("Version", "2011-06-15");
        let body = body.finish();
        let at = Timestamp::from_millisecond(self.now_ms).unwrap_or_default();
        let headers = match by {
            Some(by) => sign::headers(by, self.region, "sts", at, host, &body),
            None => vec![("content-type", sign::FORM.to_owned())],
        };
        let failed = |what: String| format!("no credentials of role {} from STS at {endpoint}: {what}", role.arn);
        let url = format!("{endpoint}/");
        let answer = http::service().and_then(|agent| http::post(&agent, &url, &headers, &body));
        let answer = answer.map_err(|error| {
            AwsError::new(
                failed(error),
                "check that STS can be reached: in a private subnet it needs a VPC endpoint, and awsStsRegion or AWS_ENDPOINT_URL_STS names it",
            )
        })?;
        if !answer.is_success() {
            // The answer has a word and a sentence; neither has the token or a key.
            let (code, text) = (element(&answer.body, "Code"), element(&answer.body, "Message"));
            let words = match (code, text) {
                (None, None) => format!("status {}", answer.status),
                (code, text) => format!("{}: {}", code.unwrap_or_default(), text.unwrap_or_default()),
            };
            return Err(AwsError::new(failed(words), DENIED));
        }
        let part = |name: &str| {
            element(&answer.body, name)
                .ok_or_else(|| AwsError::new(failed(format!("its answer has no {name}")), "check what answers there"))
        };
        Ok(Credentials {
            access_key: part("AccessKeyId")?,
            secret_key: Secret::new(part("SecretAccessKey")?),
            session_token: Some(Secret::new(part("SessionToken")?)),
            expires_ms: part("Expiration")?.parse().ok().map(Timestamp::as_millisecond),
        })
    }
}

/// The text of the first element of this name. STS writes flat XML without attributes.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, tail) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = tail.split_once(&format!("</{name}>"))?;
    let text = text
        .trim()
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"");
    Some(text.replace("&apos;", "'").replace("&amp;", "&"))
}
