//! The translation as a whole.

use std::collections::BTreeMap;

use walferry_config::{Findings, Options, Worker};

use super::*;
use crate::auth::{TokenSource, aws::options::Msk};

const SASL: (&str, &str) = ("security.protocol", "SASL_PLAINTEXT");

fn options(prefix: &str, entries: &[(&str, &str)]) -> Options {
    let entries = entries.iter().map(|&(k, v)| (k.to_owned(), v.to_owned()));
    Options::new(prefix, entries.collect::<BTreeMap<_, _>>())
}

fn overrides(entries: &[(&str, &str)]) -> (Properties, Findings) {
    producer(&[], &Worker::default(), &options("producer.override.", entries))
}

fn texts(findings: &Findings) -> Vec<String> {
    findings
        .iter()
        .map(|finding| format!("{:?}: {finding}", finding.severity))
        .collect()
}

fn get<'a>(properties: &'a Properties, name: &str) -> Option<&'a str> {
    properties.values.get(name).map(String::as_str)
}

#[test]
fn a_connector_wins_over_its_worker_and_both_over_the_defaults() {
    let worker = Worker {
        producer: options("producer.", &[("linger.ms", "7"), ("batch.size", "1000")]),
        client: options("", &[("security.protocol", "SSL"), ("request.timeout.ms", "1")]),
        ..Worker::default()
    };
    let (properties, findings) = producer(
        &[
            ("linger.ms", "1"),
            ("batch.size", "2"),
            ("partitioner", "murmur2_random"),
        ],
        &worker,
        &options("producer.override.", &[("batch.size", "3000")]),
    );
    let expected = [
        ("linger.ms", Some("7")),
        ("batch.size", Some("3000")),
        ("partitioner", Some("murmur2_random")),
        ("security.protocol", Some("ssl")),
        ("request.timeout.ms", None),
    ];
    for (name, value) in expected {
        assert_eq!(get(&properties, name), value, "{name}");
    }
    assert_eq!(texts(&findings), Vec::<String>::new());
}

#[test]
fn security_is_never_mixed_from_two_places() {
    let worker = Worker {
        client: options(
            "",
            &[
                ("security.protocol", "SASL_SSL"),
                ("ssl.endpoint.identification.algorithm", ""),
            ],
        ),
        admin: options("admin.", &[]),
        ..Worker::default()
    };
    let (of_producer, _) = producer(
        &[],
        &worker,
        &options("producer.override.", &[("security.protocol", "SSL")]),
    );
    assert_eq!(get(&of_producer, "security.protocol"), Some("ssl"));
    assert_eq!(get(&of_producer, "ssl.endpoint.identification.algorithm"), None);

    // The client that creates topics has the producer's security where it has none of its own.
    let (of_admin, _) = admin(&Worker::default(), &Options::default(), &of_producer);
    assert_eq!(get(&of_admin, "security.protocol"), Some("ssl"));
}

#[test]
fn every_name_is_told_of_that_is_not_translated() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "retries",
            "5",
            &[
                "Note: producer.override.retries has no effect: records wait until Kafka accepts them, without a time limit",
            ],
        ),
        (
            "transactional.id",
            "x",
            &[
                "Error: producer.override.transactional.id is not supported by Walferry (remove the property: with exactly-once delivery (`exactly.once.support=required`), Walferry sets it as Connect does)",
            ],
        ),
        (
            "compresion.type",
            "lz4",
            &[
                "Warning: producer.override.compresion.type is not a Kafka client property that Walferry knows; it has no effect (did you mean compression.type?)",
            ],
        ),
        (
            "socket.keepalive.enable",
            "true",
            &[
                "Note: producer.override.socket.keepalive.enable is one of librdkafka's own properties and is passed on unchanged",
            ],
        ),
        (
            "queuing.strategy",
            "lifo",
            &["Error: producer.override.queuing.strategy is not supported by Walferry (records must keep their order)"],
        ),
        ("linger.ms", "5", &[]),
        (
            "partitioner.class",
            "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            &[
                "Error: producer.override.partitioner.class is \"org.apache.kafka.clients.producer.RoundRobinPartitioner\", which is not Kafka's own partitioner (Walferry cannot load Java classes; remove it)",
            ],
        ),
    ];
    for (name, value, expected) in cases {
        assert_eq!(texts(&overrides(&[(name, value)]).1), *expected, "{name}");
    }
    let (_, findings) = overrides(&[("linger.ms", "soon")]);
    let expected = "Error: producer.override.linger.ms is \"soon\", which librdkafka does not take";
    assert!(texts(&findings)[0].starts_with(expected), "{findings:?}");
}

#[test]
fn what_weakens_a_guarantee_is_obeyed_and_told() {
    // acks, enable.idempotence, max.in.flight → the same, and the number of warnings.
    let cases = [
        (None, None, None, ("all", "true", "5"), 0),
        (Some("-1"), Some("true"), Some("1"), ("all", "true", "1"), 0),
        (Some("1"), None, None, ("1", "false", "1"), 1),
        (Some("0"), Some("false"), None, ("0", "false", "1"), 2),
        (None, Some("false"), None, ("all", "false", "1"), 1),
        (None, Some("false"), Some("5"), ("all", "false", "5"), 2),
        (None, None, Some("10"), ("all", "false", "10"), 1),
    ];
    for (acks, idempotence, in_flight, expected, warnings) in cases {
        let given = [
            ("acks", acks),
            ("enable.idempotence", idempotence),
            ("max.in.flight.requests.per.connection", in_flight),
        ];
        let given: Vec<_> = given.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
        let (properties, findings) = overrides(&given);
        let found = (
            get(&properties, "acks").unwrap(),
            get(&properties, "enable.idempotence").unwrap(),
            get(&properties, "max.in.flight.requests.per.connection").unwrap(),
        );
        assert_eq!(found, expected, "{given:?}");
        assert_eq!(
            (properties.warnings.len(), findings.warnings().count()),
            (warnings, warnings),
            "{given:?}"
        );
    }
    for contradiction in [
        [("acks", "1"), ("enable.idempotence", "true")],
        [
            ("max.in.flight.requests.per.connection", "6"),
            ("enable.idempotence", "true"),
        ],
    ] {
        assert!(overrides(&contradiction).1.has_problems(), "{contradiction:?}");
    }
}

#[test]
fn levels_count_for_their_own_compression_only() {
    let (properties, findings) = overrides(&[
        ("compression.type", "zstd"),
        ("compression.zstd.level", "19"),
        ("compression.gzip.level", "9"),
    ]);
    assert_eq!(get(&properties, "compression.level"), Some("12"));
    assert_eq!(findings.notes().count(), 2);
}

#[test]
fn credentials_come_out_of_the_jaas_text() {
    let (properties, findings) = overrides(&[
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        (
            "sasl.jaas.config",
            r#"org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\"w";"#,
        ),
    ]);
    let expected = [
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "u"),
        ("sasl.password", "p\"w"),
    ];
    for (name, value) in expected {
        assert_eq!(get(&properties, name), Some(value), "{name}");
    }
    assert_eq!(texts(&findings), Vec::<String>::new());
}

#[test]
fn a_client_with_tokens_knows_where_they_come_from() {
    let kafka = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.token.endpoint.url", "https://idp/token"),
        (
            "sasl.login.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        ),
        (
            "sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId='me' clientSecret='s3' scope='k' extension_logicalCluster='lkc';",
        ),
    ];
    let (properties, findings) = overrides(&kafka);
    let oauth = oauth_of(properties);
    assert_eq!(
        (oauth.token_endpoint.as_str(), oauth.client_id.as_str()),
        ("https://idp/token", "me")
    );
    assert_eq!(
        (oauth.client_secret.expose(), oauth.scope.as_deref()),
        ("s3", Some("k"))
    );
    assert_eq!(oauth.extensions["logicalCluster"], "lkc");
    assert_eq!(texts(&findings), Vec::<String>::new());

    let strimzi = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "OAUTHBEARER"),
        (
            "sasl.login.callback.handler.class",
            "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
        ),
        (
            "sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required oauth.client.id=\"me\" oauth.client.secret=\"s3\" oauth.token.endpoint.uri=\"http://idp\";",
        ),
    ];
    let oauth = oauth_of(overrides(&strimzi).0);
    assert_eq!(
        (oauth.token_endpoint.as_str(), oauth.client_id.as_str()),
        ("http://idp", "me")
    );
}

#[test]
fn a_login_that_cannot_work_is_a_problem_with_a_way_out_and_without_secrets() {
    let cases: &[&[(&str, &str)]] = &[
        &[SASL],
        &[SASL, ("sasl.mechanism", "GSSAPI")],
        &[SASL, ("sasl.mechanism", "AWS_MSK_IAN")],
        &[SASL, ("sasl.mechanism", "PLAIN")],
        &[
            SASL,
            ("sasl.mechanism", "PLIAN"),
            ("sasl.jaas.config", "x required password='hunter2';"),
        ],
        &[
            SASL,
            ("sasl.mechanism", "PLAIN"),
            (
                "sasl.jaas.config",
                "a.ScramLoginModule required username='u' password='hunter2';",
            ),
        ],
        &[
            SASL,
            ("sasl.mechanism", "PLAIN"),
            ("sasl.jaas.config", "a.PlainLoginModule required password='hunter2';"),
        ],
        &[
            SASL,
            ("sasl.mechanism", "PLAIN"),
            (
                "sasl.jaas.config",
                "a.PlainLoginModule required username='u' password='hunter2'",
            ),
        ],
        &[SASL, ("sasl.mechanism", "OAUTHBEARER")],
        &[("security.protocol", "SASL")],
    ];
    for given in cases {
        let (_, findings) = overrides(given);
        assert_eq!(findings.problems().count(), 1, "{given:?}: {findings:?}");
        assert!(!format!("{findings:?}").contains("hunter2"), "{findings:?}");
    }
}

/// Where a client of OAuth gets its tokens.
fn oauth_of(properties: Properties) -> crate::auth::oauth::OAuth {
    match properties.token {
        Some(TokenSource::OAuth(oauth)) => oauth,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_forms_of_amazons_library_sign_tokens() {
    let native = [
        SASL,
        ("sasl.mechanism", "AWS_MSK_IAM"),
        (
            "sasl.jaas.config",
            "software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName=\"shop\" awsRoleArn=\"arn:aws:iam::1:role/r\" \
             awsRoleExternalId=\"e\" awsRoleSessionName=\"s\" awsStsRegion=\"eu-west-1\" awsDebugCreds=true awsMaxRetries=\"7\" \
             awsRoleAccessKeyId=AK awsRoleSecretAccessKey=hunter2;",
        ),
        (
            "sasl.client.callback.handler.class",
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        ),
    ];
    let (properties, findings) = overrides(&native);
    assert!(!findings.has_problems(), "{findings:?}");
    assert!(!format!("{findings:?}").contains("hunter2"), "{findings:?}");
    assert_eq!(properties.values["sasl.mechanism"], "OAUTHBEARER");
    let Some(TokenSource::Msk(msk)) = properties.token else {
        panic!("{:?}", properties.token);
    };
    let role = msk.role.unwrap();
    assert_eq!(
        (msk.profile.as_deref(), msk.sts_region.as_deref()),
        (Some("shop"), Some("eu-west-1"))
    );
    assert_eq!(
        (
            role.arn.as_str(),
            role.external_id.as_deref(),
            role.session_name.as_deref()
        ),
        ("arn:aws:iam::1:role/r", Some("e"), Some("s"))
    );
    assert_eq!(role.given.unwrap().1.expose(), "hunter2");

    let handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler";
    let (properties, findings) = overrides(&[
        SASL,
        ("sasl.mechanism", "OAUTHBEARER"),
        (
            "sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        ),
        ("sasl.login.callback.handler.class", handler),
        ("sasl.client.callback.handler.class", handler),
    ]);
    assert!(!findings.has_problems(), "{findings:?}");
    assert_eq!(properties.token, Some(TokenSource::Msk(Msk::default())));

    for (name, value) in [
        ("sasl.client.callback.handler.class", "com.example.Mine"),
        (
            "sasl.jaas.config",
            "a.IAMLoginModule required awsMskRegionProvider=\"x.Y\";",
        ),
        (
            "sasl.jaas.config",
            "a.IAMLoginModule required awsStsRegion=\"Frankfurt\";",
        ),
        ("sasl.jaas.config", "a.PlainLoginModule required username=a password=b;"),
    ] {
        let mut wrong = native.to_vec();
        wrong.push((name, value));
        assert_eq!(overrides(&wrong).1.problems().count(), 1, "{value}");
    }
    let misspelt = [
        SASL,
        ("sasl.mechanism", "AWS_MSK_IAM"),
        ("sasl.jaas.config", "a.IAMLoginModule required awsRoleARN=x;"),
    ];
    assert!(format!("{:?}", overrides(&misspelt).1).contains("awsRoleARN"));
}

#[test]
fn java_stores_become_pem() {
    let file = |name: &str| format!("{}/../walferry-keystore/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
    let (trust, identity) = (file("trust.jks"), file("identity.jks"));
    let (properties, findings) = overrides(&[
        ("security.protocol", "SSL"),
        ("ssl.truststore.location", &trust),
        ("ssl.truststore.password", "store-pw"),
        ("ssl.keystore.location", &identity),
        ("ssl.keystore.password", "store-pw"),
        ("ssl.key.password", "key-pw-1"),
        ("ssl.endpoint.identification.algorithm", ""),
        (
            "ssl.cipher.suites",
            "TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ),
    ]);
    for (name, begin) in [
        ("ssl.ca.pem", "-----BEGIN CERT"),
        ("ssl.certificate.pem", "-----BEGIN CERT"),
        ("ssl.key.pem", "-----BEGIN PRIVATE KEY"),
    ] {
        assert!(
            get(&properties, name).is_some_and(|pem| pem.starts_with(begin)),
            "{name}"
        );
    }
    assert_eq!(get(&properties, "ssl.endpoint.identification.algorithm"), Some("none"));
    assert_eq!(
        get(&properties, "ssl.cipher.suites"),
        Some("ECDHE-RSA-AES128-GCM-SHA256")
    );
    assert_eq!((findings.problems().count(), findings.warnings().count()), (0, 1));
    // librdkafka takes them.
    properties.config().create_native_config().unwrap();
    crate::native::Client::new(&properties).map(drop).unwrap();

    let (_, findings) = overrides(&[
        ("security.protocol", "SSL"),
        ("ssl.truststore.location", &trust),
        ("ssl.truststore.password", "hunter2"),
    ]);
    let problem = findings.problems().next().unwrap();
    assert!(problem.text.contains("the password is wrong") && problem.hint.as_ref().unwrap().contains("keytool"));

    // A store that is not used is more likely a forgotten protocol.
    let (properties, findings) = overrides(&[("ssl.truststore.location", &trust)]);
    assert_eq!((get(&properties, "ssl.ca.pem"), findings.warnings().count()), (None, 1));
}

/// librdkafka does not tell the value of such a property before it is set.
#[test]
fn properties_of_librdkafka_without_a_default_are_passed_on() {
    for name in ["ssl.ca.location", "ssl.curves.list", "ssl.sigalgs.list", "client.rack"] {
        let (properties, findings) = overrides(&[("security.protocol", "SSL"), (name, "some-value")]);
        assert_eq!(get(&properties, name), Some("some-value"), "{findings:?}");
        let expected =
            format!("Note: producer.override.{name} is one of librdkafka's own properties and is passed on unchanged");
        assert_eq!(texts(&findings), [expected]);
    }
    let (properties, findings) = overrides(&[("ssl.crl.locations", "x")]);
    assert_eq!(get(&properties, "ssl.crl.locations"), None);
    assert_eq!(findings.warnings().count(), 1, "{findings:?}");
}

#[test]
fn a_list_of_revoked_certificates_is_a_regular_file() {
    let folder = std::env::temp_dir().join(format!("walferry-crl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    std::fs::write(at("list.crl"), "").unwrap();
    let _ = std::fs::remove_file(at("pipe"));
    assert!(
        std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status()
            .unwrap()
            .success()
    );
    for (path, why) in [
        (at("list.crl"), None),
        (at("pipe"), Some("not a regular file")),
        (at("none"), Some("No such file")),
        (at(""), Some("is a directory")),
        ("/dev/zero".to_owned(), Some("not a regular file")),
    ] {
        let (properties, findings) = overrides(&[("security.protocol", "SSL"), ("ssl.crl.location", &path)]);
        match why {
            None => assert_eq!(get(&properties, "ssl.crl.location"), Some(&*path)),
            Some(why) => {
                let sentences = texts(&findings);
                assert!(
                    sentences.iter().any(|text| text.contains(why) && text.contains(&path)),
                    "{path}: {sentences:?}"
                );
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Whoever sets one of these believes that brokers are reached with TLS.
#[test]
fn what_only_tls_uses_is_told_of_without_tls() {
    let lists = [
        ("ssl.crl.location", "/nosuch.crl"),
        ("ssl.truststore.certificates", "-----BEGIN CERTIFICATE-----"),
    ];
    for (protocol, name) in [
        (None, "PLAINTEXT"),
        (Some("PLAINTEXT"), "PLAINTEXT"),
        (Some("sasl_plaintext"), "SASL_PLAINTEXT"),
    ] {
        let of_protocol = protocol.map(|text| ("security.protocol", text));
        let login = [
            ("sasl.mechanism", "PLAIN"),
            (
                "sasl.jaas.config",
                "a.PlainLoginModule required username=\"u\" password=\"p\";",
            ),
        ];
        let login = login.into_iter().filter(|_| name.starts_with("SASL"));
        let given: Vec<_> = lists.into_iter().chain(of_protocol).chain(login).collect();
        let (_, findings) = overrides(&given);
        let hint = "set security.protocol=SSL or SASL_SSL";
        for property in ["ssl.crl.location", "ssl.truststore.certificates"] {
            let expected = format!(
                "Warning: producer.override.{property} has no effect while security.protocol is {name} ({hint})"
            );
            assert!(
                texts(&findings).contains(&expected),
                "{expected}: {:?}",
                texts(&findings)
            );
        }
    }
    let (properties, findings) = overrides(&[("security.protocol", "SSL"), ("ssl.crl.location", "/nosuch.crl")]);
    assert_eq!(
        get(&properties, "ssl.crl.location"),
        Some("/nosuch.crl"),
        "{findings:?}"
    );
    assert!(!format!("{findings:?}").contains("has no effect"), "{findings:?}");
    // An empty value is none.
    let (_, findings) = overrides(&[("ssl.crl.location", "")]);
    assert!(
        !format!("{findings:?}").contains("while security.protocol"),
        "{findings:?}"
    );
}

/// librdkafka gives the command to a shell, so only the worker file may say it.
#[test]
fn a_connector_does_not_name_the_command_that_obtains_a_ticket() {
    for name in [
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
    ] {
        let (properties, findings) = overrides(&[(name, "x; touch /tmp/x")]);
        assert_eq!(findings.problems().count(), 1, "{name}: {findings:?}");
        assert_eq!(get(&properties, name), None, "{name}");
    }
}
