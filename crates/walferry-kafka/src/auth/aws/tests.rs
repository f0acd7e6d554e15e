//! Tokens as Amazon's own signer makes them, and the sources of credentials, with endpoints on loopback.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::Value as Json;

use super::*;

const NOW_MS: i64 = 1_800_000_000_000;
const LATER: &str = "2099-01-01T00:00:00Z";

/// `testdata/msk/record.py` made the tokens with `aws-msk-iam-sasl-signer-python`.
#[test]
fn a_token_is_that_of_amazons_signer_byte_for_byte() {
    let recorded: Json = serde_json::from_str(include_str!("../../../testdata/msk/tokens.json")).unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    assert!(cases.len() >= 6);
    for case in cases {
        let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
        let credentials = Credentials::lasting(
            text("access_key"),
            text("secret_key"),
            case["session_token"].as_str().map(str::to_owned),
        );
        let at: jiff::Timestamp = text("at").parse().unwrap();
        let token = sign::token(&credentials, &text("region"), at, recorded["signer"].as_str().unwrap());
        assert_eq!(token, text("token"), "{}", text("region"));
        assert_eq!(
            case["expires_ms"].as_i64().unwrap(),
            at.as_millisecond() + sign::LIFETIME_SECONDS * 1_000
        );
    }
}

#[test]
fn the_region_comes_from_the_brokers_names() {
    let cases = [
        (
            "b-1.shop.abc123.c2.kafka.eu-central-1.amazonaws.com:9098,b-2.x:9098",
            Some("eu-central-1"),
        ),
        (
            "boot-x1.c1.kafka-serverless.us-east-1.amazonaws.com:9098",
            Some("us-east-1"),
        ),
        (
            "b-1.shop.abc.c1.kafka.cn-northwest-1.amazonaws.com.cn:9098",
            Some("cn-northwest-1"),
        ),
        (
            "SASL_SSL://b-1.shop.abc.c1.kafka.us-gov-west-1.amazonaws.com:9098",
            Some("us-gov-west-1"),
        ),
        (
            "b-1.shop.abc.c1.kafka.eusc-de-east-1.amazonaws.eu:9098",
            Some("eusc-de-east-1"),
        ),
        (
            "b-1.shop.abc.c1.kafka.ap-southeast-7.amazonaws.com:9198",
            Some("ap-southeast-7"),
        ),
        ("kafka.example.com:9098", None),
        ("my-kafka-1.example.com:9098", None),
        ("127.0.0.1:9098", None),
    ];
    for (servers, expected) in cases {
        assert_eq!(region(servers).as_deref(), expected, "{servers}");
    }
}

/// Answers requests by the beginning of their first line; returns the endpoint and what was asked.
fn endpoint(answers: Vec<(&'static str, u16, String)>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut request, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap() == 0 {
                    break;
                }
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                request.push_str(&line);
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            request.push_str(&String::from_utf8(body).unwrap());
            let (status, body) = answers
                .iter()
                .find(|(begin, ..)| request.starts_with(begin))
                .map_or((404, String::new()), |(_, status, body)| (*status, body.clone()));
            requests.lock().unwrap().push(request);
            let answer = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, asked)
}

fn sts_answer(id: &str) -> String {
    format!(
        "<R xmlns=\"x\"><Result>\n<Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>s/&amp;t</SecretAccessKey>\
         <SessionToken>tok</SessionToken><Expiration>{LATER}</Expiration></Credentials></Result></R>"
    )
}

fn json_answer(id: &str) -> String {
    format!(r#"{{"AccessKeyId":"{id}","SecretAccessKey":"s","Token":"tok","Expiration":"{LATER}"}}"#)
}

/// Who signs, with these variables and no others.
fn whose(msk: &Msk, variables: &[(&str, &str)]) -> Result<Credentials, AwsError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    let env = |name: &str| variables.get(name).map(|&value| value.to_owned());
    let sources = Sources {
        msk,
        region: "eu-central-1",
        now_ms: NOW_MS,
        env: &env,
    };
    sources.find()
}

fn id_of(msk: &Msk, variables: &[(&str, &str)]) -> String {
    whose(msk, variables).unwrap().access_key
}

#[test]
fn credentials_come_from_the_first_source_that_is_there() {
    let folder = tempfile();
    let (token, credentials) = (folder.join("token"), folder.join("credentials"));
    fs::write(&token, "jwt\n").unwrap();
    fs::write(
        &credentials,
        "[default]\naws_access_key_id = FILE\naws_secret_access_key=s\n",
    )
    .unwrap();
    let (url, asked) = endpoint(vec![
        ("POST / ", 200, sts_answer("WEB")),
        ("GET /container ", 200, json_answer("CONTAINER")),
        ("PUT /latest/api/token ", 200, "imds".into()),
        (
            "GET /latest/meta-data/iam/security-credentials/ ",
            200,
            "shop-role\n".into(),
        ),
        (
            "GET /latest/meta-data/iam/security-credentials/shop-role ",
            200,
            json_answer("MACHINE"),
        ),
    ]);
    let container = format!("{url}/container");
    let all = [
        vec![("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s")],
        vec![
            ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
            ("AWS_ENDPOINT_URL_STS", url.as_str()),
        ],
        vec![("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().unwrap())],
        vec![
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.as_str()),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod"),
        ],
        vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())],
    ];
    for (at, expected) in ["ENV", "WEB", "FILE", "CONTAINER", "MACHINE"].into_iter().enumerate() {
        assert_eq!(id_of(&Msk::default(), &all[at..].concat()), expected);
    }
    let asked = asked.lock().unwrap().join("\n---\n").to_ascii_lowercase();
    for part in [
        "action=assumerolewithwebidentity&webidentitytoken=jwt&",
        "rolesessionname=aws-msk-iam-auth",
        "authorization: pod\r\n",
        "x-aws-ec2-metadata-token-ttl-seconds: 21600",
        "x-aws-ec2-metadata-token: imds",
    ] {
        assert!(asked.contains(part), "{part} in {asked}");
    }

    let none = whose(&Msk::default(), &[("AWS_EC2_METADATA_DISABLED", "true")]).unwrap_err();
    assert!(none.to_string().starts_with("no AWS credentials were found"), "{none}");
    assert!(none.hint.contains("AWS_ACCESS_KEY_ID"));
    // A token of the container goes to the container only.
    for url in [
        "http://example.com/x",
        "http://127.0.0.1@example.com/x",
        "ftp://127.0.0.1",
    ] {
        let error = whose(&Msk::default(), &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]).unwrap_err();
        assert!(error.to_string().contains("FULL_URI"), "{error}");
    }
}

#[test]
fn a_profile_leads_to_keys_a_role_or_a_program() {
    let folder = tempfile();
    let (config, credentials) = (folder.join("config"), folder.join("credentials"));
    fs::write(
        &config,
        "# comment\n[default]\nregion = eu-west-1\n[profile base]\naws_access_key_id=OLD\n\
         [profile role]\nrole_arn = arn:aws:iam::1:role/r # why\nsource_profile = base\nexternal_id = e\ns3 =\n  role_arn = x\n\
         [profile self]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = self\naws_access_key_id=SELF\naws_secret_access_key=s\n\
         [profile a]\nrole_arn = r\nsource_profile = b\n[profile b]\nrole_arn = r\nsource_profile = a\n\
         [profile env]\nrole_arn = r\ncredential_source = Environment\n\
         [profile program]\ncredential_process = printf '{\"Version\":1,\"AccessKeyId\":\"PROGRAM\",\"SecretAccessKey\":\"s\"}'\n\
         [profile broken]\ncredential_process = exit 3\n\
         [profile sso]\nsso_session = x\n",
    )
    .unwrap();
    fs::write(
        &credentials,
        "[base]\naws_access_key_id = BASE\naws_secret_access_key = hunter2\n",
    )
    .unwrap();
    let (url, asked) = endpoint(vec![("POST / ", 200, sts_answer("ROLE"))]);
    let variables = [
        ("AWS_CONFIG_FILE", config.to_str().unwrap()),
        ("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().unwrap()),
        ("AWS_ENDPOINT_URL_STS", url.as_str()),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let named = |name: &str| Msk {
        profile: Some(name.into()),
        ..Msk::default()
    };
    assert_eq!(id_of(&named("base"), &variables), "BASE");
    assert_eq!(id_of(&named("role"), &variables), "ROLE");
    assert_eq!(id_of(&named("self"), &variables), "ROLE");
    assert_eq!(id_of(&named("program"), &variables), "PROGRAM");
    let with_env = [
        &variables[..],
        &[("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s")],
    ]
    .concat();
    assert_eq!(id_of(&named("env"), &with_env), "ROLE");
    let by_variable = [&variables[..], &[("AWS_PROFILE", "base")]].concat();
    assert_eq!(id_of(&Msk::default(), &by_variable), "BASE");
    let who = asked.lock().unwrap().clone();
    for (request, id) in who.iter().zip(["BASE", "SELF", "ENV"]) {
        assert!(request.contains(&format!("Credential={id}/")), "{request}");
        assert!(!request.contains("hunter2"), "{request}");
    }
    assert!(who[0].ends_with(
        "Action=AssumeRole&ExternalId=e&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=aws-msk-iam-auth&Version=2011-06-15"
    ));

    for (name, part) in [
        ("a", "its own source_profile"),
        ("env", "credential_source Environment"),
        ("broken", "failed: exit status: 3"),
        ("sso", "IAM Identity Center"),
        ("missing", "does not exist"),
    ] {
        let error = whose(&named(name), &variables).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_role_is_assumed_with_its_options_and_a_refusal_is_told_without_secrets() {
    let (url, asked) = endpoint(vec![("POST / ", 200, sts_answer("ROLE"))]);
    let msk = Msk {
        role: Some(Role {
            arn: "arn:aws:iam::1:role/r".into(),
            session_name: Some("walferry".into()),
            external_id: Some("e".into()),
            ..Role::default()
        }),
        sts_region: Some("us-west-2".into()),
        ..Msk::default()
    };
    let variables = |url| {
        [
            ("AWS_ACCESS_KEY_ID", "ENV"),
            ("AWS_SECRET_ACCESS_KEY", "hunter2"),
            ("AWS_SESSION_TOKEN", "hunter3"),
            ("AWS_ENDPOINT_URL_STS", url),
        ]
    };
    let found = whose(&msk, &variables(&url)).unwrap();
    assert_eq!(found.secret_key.expose(), "s/&t");
    assert_eq!(found.expires_ms, Some(4_070_908_800_000));
    let request = asked.lock().unwrap()[0].clone();
    assert!(
        request
            .contains("/us-west-2/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token")
    );
    assert!(request.contains("RoleSessionName=walferry"), "{request}");

    let refusal = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>User: x is not authorized</Message></Error></ErrorResponse>";
    let (url, _) = endpoint(vec![("POST / ", 403, refusal.into())]);
    let error = whose(&msk, &variables(&url)).unwrap_err();
    assert!(
        error.to_string().ends_with("AccessDenied: User: x is not authorized"),
        "{error}"
    );
    assert!(error.hint.contains("trust policy"));
    assert!(!format!("{error:?}{found:?}").contains("hunter"), "{error:?}");
    // Nothing listens there any more.
    let error = whose(&msk, &variables("http://127.0.0.1:1")).unwrap_err();
    assert!(error.hint.contains("VPC endpoint"), "{error}");
}

/// `testdata/msk/record.py` shows how botocore signs the same request.
#[test]
fn a_request_to_sts_is_signed_as_botocore_does() {
    let recorded: Json = serde_json::from_str(include_str!("../../../testdata/msk/tokens.json")).unwrap();
    let case = &recorded["sts"];
    let text = |name: &str| case[name].as_str().unwrap().to_owned();
    let by = Credentials::lasting(text("access_key"), text("secret_key"), Some(text("session_token")));
    let at = text("at").parse().unwrap();
    let headers = sign::headers(&by, &text("region"), "sts", at, &text("host"), &text("body"));
    let authorization = headers.iter().find(|(name, _)| *name == "authorization").unwrap();
    assert_eq!(authorization.1, text("authorization"));
}

#[test]
fn expired_credentials_are_no_token_and_kept_ones_are_used_to_their_end() {
    let soon = |seconds: i64| {
        let at = jiff::Timestamp::from_millisecond(NOW_MS + seconds * 1_000).unwrap();
        format!(r#"{{"AccessKeyId":"C","SecretAccessKey":"s","Token":"t","Expiration":"{at}"}}"#)
    };
    let fetch = |url: &str, now_ms: i64, profile: &str| {
        let env = |name: &str| (name == "AWS_CONTAINER_CREDENTIALS_FULL_URI").then(|| url.to_owned());
        // The name only keeps this test's credentials apart: the option of a session belongs to a role.
        let msk = Msk {
            sts_region: Some(profile.into()),
            ..Msk::default()
        };
        fetch_with(&msk, "b-1.kafka.eu-west-1.amazonaws.com:9098", now_ms, &env)
    };
    let (expired, _) = endpoint(vec![("GET /", 200, soon(-1))]);
    let error = fetch(&expired, NOW_MS, "expired").err().unwrap();
    assert!(error.to_string().contains("have expired"), "{error}");

    let (fresh, asked) = endpoint(vec![("GET /", 200, soon(600))]);
    let token = fetch(&fresh, NOW_MS, "kept").unwrap();
    assert_eq!(
        (token.expires_ms, token.principal.as_str()),
        (NOW_MS + 600_000, "kafka-cluster")
    );
    // Enough is left of them.
    fetch(&fresh, NOW_MS + 200_000, "kept").unwrap();
    assert_eq!(asked.lock().unwrap().len(), 1);
    // The endpoint is gone.
    assert!(fetch("http://127.0.0.1:1", NOW_MS + 400_000, "kept").is_ok());
    assert!(fetch("http://127.0.0.1:1", NOW_MS + 600_000, "kept").is_err());
}

fn tempfile() -> std::path::PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("walferry-aws-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}
