//! No finding shows a secret, whatever property it has been written into.

use std::io;
use std::path::Path;

use walferry_config::{
    CONNECTOR_GROUPS, Connector, Declaration, Findings, Group, Lookup, Submitted, WORKER_GROUPS, Worker,
};

const SECRET: &str = "hunter2-Ünd";

/// One variable, whose value is the secret, and a file that is none of properties.
struct World;

impl Lookup for World {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "SECRET" => Some(SECRET.to_owned()),
            // Short ones, of which two are names in a list.
            "SHORT" => Some("hu2".to_owned()),
            "NAMES" => Some("hu2,hu3".to_owned()),
            _ => None,
        }
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        match path.to_str() {
            Some("/broken") => Ok(format!("password={SECRET}\\u00")),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Texts with a secret in them that people write where they do not belong.
fn texts() -> Vec<String> {
    vec![
        format!("postgres://app:{SECRET}@db:5432/shop"),
        format!("jdbc:postgresql://db/shop?user=app&password={SECRET}"),
        format!("app:{SECRET}@db"),
        format!("https://{SECRET}@host"),
        format!("host=db password='{SECRET}'"),
        format!("{{\"user\": \"app\", \"apikey\": \"{SECRET}\"}}"),
        format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"{SECRET}\";"
        ),
        format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"),
        "${env:SECRET}".to_owned(),
        "x${env:SECRET}(".to_owned(),
        "${file:/broken:password}".to_owned(),
        format!("${{env:NOPE:-{SECRET}}}"),
        format!("app:{SECRET}@"),
        format!("app%3A{SECRET}%40db"),
        format!("postgres%3A%2F%2Fapp%3A{SECRET}%40db%2Fshop"),
        format!("app%253a{SECRET}%2540db"),
        format!("${{vault:{SECRET}/path:{SECRET}}}"),
        format!("${{vault:{SECRET}}}"),
        format!("x(${{vault:secret/path:{SECRET}}}"),
    ]
}

/// Passwords that stand alone, with nothing around them that tells what they are.
const PASSWORDS: &[&str] = &[
    "hunter2",
    "Hunter2",
    "hunter2!",
    "hunter2-\u{dc}nd",
    "x-hunter2.y",
    "hunter2,7",
    "4711hunter2",
];

/// The name of a property, with something in the place of its variable parts.
fn named(declaration: &Declaration) -> String {
    let mut name = String::new();
    for piece in declaration.name.split_inclusive('>') {
        let (fixed, variable) = piece.split_once('<').unwrap_or((piece, ""));
        name.push_str(fixed);
        name.push_str(match variable {
            "" => "",
            "salt>" => SECRET,
            "algorithm>" => "SHA-255",
            "length>" => "x",
            _ => "some",
        });
    }
    name
}

fn submitted(pairs: &[(String, String)]) -> Submitted {
    Submitted {
        name: Some("c".to_owned()),
        properties: pairs.to_vec(),
    }
}

#[track_caller]
fn no_secret(findings: &Findings, of: &str) {
    for finding in findings.iter() {
        let text = format!("{finding} {finding:?}");
        assert!(!text.contains("hunter2"), "{of}: {text}");
    }
}

#[test]
fn what_a_provider_hands_out_is_never_shown() {
    for value in ["${env:SHORT}", "${env:NAMES}", "${env:SECRET}"] {
        for pairs in [CONNECTOR_GROUPS, WORKER_GROUPS]
            .map(|groups| some_at_a_time(groups, value))
            .concat()
        {
            let (_, of_connector) = Connector::read(&pairs, None, &Worker::default(), &World, &|_| Findings::default());
            let (_, of_worker) = Worker::read(&pairs, &World);
            for finding in of_connector.iter().chain(of_worker.iter()) {
                let text = finding.to_string();
                for part in ["hunter2", "hu2", "hu3"] {
                    assert!(!text.contains(part), "{value}: {text}");
                }
            }
        }
    }
}

/// All findings about one pair of a connector.
fn check(name: &str, text: &str) {
    let pair = submitted(&[(name.to_owned(), text.to_owned())]);
    let text = format!("{pair:?}");
    assert!(!text.contains("hunter2"), "{text}");
    let (_, findings) = Connector::read(&pair, None, &Worker::default(), &World, &|_| Findings::default());
    no_secret(&findings, name);
}

/// The same of a worker.
fn check_worker(name: &str, text: &str) {
    let (_, findings) = Worker::read(&submitted(&[(name.to_owned(), text.to_owned())]), &World);
    no_secret(&findings, name);
}

#[test]
fn no_declared_property_shows_a_secret() {
    for text in texts() {
        // All of them in one file, so that it takes no minutes; the findings name each.
        let all = |groups: &[Group]| {
            let declarations = groups.iter().flat_map(|group| group.declarations);
            let pairs: Vec<_> = declarations
                .map(|declaration| (named(declaration), text.clone()))
                .collect();
            submitted(&pairs)
        };
        let nothing = |_: &_| Findings::default();
        let (_, findings) = Connector::read(&all(CONNECTOR_GROUPS), None, &Worker::default(), &World, &nothing);
        assert!(findings.problems().count() > 10, "{text} is refused in many places");
        no_secret(&findings, &text);
        let (_, findings) = Worker::read(&all(WORKER_GROUPS), &World);
        no_secret(&findings, &text);
    }
    for name in [
        "database.hostname",
        "database.password",
        "slot.name",
        "topic.prefix",
        "table.include.list",
        "transforms",
    ] {
        for text in texts() {
            check(name, &text);
        }
    }
    let groups = CONNECTOR_GROUPS.iter().flat_map(|group| group.declarations);
    for declaration in groups.filter(|declaration| declaration.secret) {
        check(&named(declaration), SECRET);
    }
}

/// Both kinds of secrets: values of properties that are declared so, and of properties that nobody knows, which may be misspelt.
#[test]
fn no_secret_and_no_unknown_property_shows_its_value() {
    const UNKNOWN: &[&str] = &[
        "database.pasword",
        "producer.overide.sasl.jaas.config",
        "transforms.x.pass",
        "x.y",
    ];
    let secret = |groups: &[Group]| {
        let declarations = groups.iter().flat_map(|group| group.declarations);
        let secret = declarations.filter(|declaration| declaration.secret).map(named);
        secret
            .chain(UNKNOWN.iter().map(|name| (*name).to_owned()))
            .collect::<Vec<_>>()
    };
    for password in PASSWORDS {
        for name in secret(CONNECTOR_GROUPS) {
            check(&name, password);
        }
        for name in secret(WORKER_GROUPS) {
            check_worker(&name, password);
        }
    }
}

/// What is wrong with a value can only be seen if the value is.
#[test]
fn each_other_value_that_is_refused_is_quoted() {
    let findings_of = |name: &str, value: &str| {
        let pair = submitted(&[(name.to_owned(), value.to_owned())]);
        let (_, findings) = Connector::read(&pair, None, &Worker::default(), &World, &|_| Findings::default());
        let (_, of_worker) = Worker::read(&pair, &World);
        let all: Vec<String> = findings
            .iter()
            .chain(of_worker.iter())
            .map(ToString::to_string)
            .collect();
        all.into_iter()
            .filter(|finding| finding.starts_with(name))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let odd = "Qx7#! odd-Value9";
    let mut quoted = 0;
    for groups in [CONNECTOR_GROUPS, WORKER_GROUPS] {
        let declarations = groups.iter().flat_map(|group| group.declarations);
        for declaration in declarations.filter(|declaration| !declaration.secret && !declaration.name.contains('<')) {
            let text = findings_of(declaration.name, odd);
            assert!(!text.contains("********"), "{text}");
            if text.contains("cannot be read") || text.contains(", which is not") {
                assert!(text.contains(odd), "{text}");
                quoted += 1;
            }
        }
    }
    assert!(quoted > 50, "{quoted}");
    for (name, value, expected) in [
        (
            "database.port",
            "hunter2",
            "is \"hunter2\", which is not a whole number from 0 to 65535",
        ),
        ("snapshot.mode", "hunter2", "is \"hunter2\", which is not"),
        ("slot.name", "Hunter-2", "is \"Hunter-2\", which is not a slot name"),
        (
            "database.hostname",
            "app:hunter2@db",
            "is \"app:********@db\", which is not",
        ),
    ] {
        assert!(
            findings_of(name, value).contains(expected),
            "{}",
            findings_of(name, value)
        );
    }
    let long = findings_of("database.port", &"9".repeat(500));
    assert!(
        long.contains(&format!("\"{}\"… (500 characters)", "9".repeat(200))),
        "{long}"
    );
}

/// All declared properties with one value, a few in a file: what is wrong with one must not keep another from being looked at.
fn some_at_a_time(groups: &[Group], value: &str) -> Vec<Submitted> {
    let declarations = groups.iter().flat_map(|group| group.declarations);
    let pairs: Vec<_> = declarations
        .map(|declaration| (named(declaration), value.to_owned()))
        .collect();
    pairs.chunks(12).map(submitted).collect()
}

#[test]
fn no_name_and_no_unknown_property_shows_a_secret() {
    let names = [
        format!("column.mask.hash.SHA-256.with.salt.{SECRET}"),
        format!("column.mask.hash.v2.{SECRET}.with.salt.SHA-256"),
        format!("column.mask.hash.SHA-256.{SECRET}"),
        format!("colum.mask.hash.SHA-256.with.salt.{SECRET}"),
        format!("password={SECRET}"),
        format!("postgres://app:{SECRET}@db"),
        format!("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQD{SECRET}"),
        "my.password".to_owned(),
        "vendor.api.token".to_owned(),
        "producer.override.sasl.jaas.config".to_owned(),
        "producer.sasl.jaas.config".to_owned(),
        "producer.override.ssl.truststore.password".to_owned(),
        "value.converter.basic.auth.user.info".to_owned(),
        "transforms.x.secret.key".to_owned(),
    ];
    for name in names {
        check(&name, SECRET);
        check_worker(&name, SECRET);
        for text in texts() {
            check(&name, &text);
        }
    }
    // A resolved value that has become part of a name.
    let pairs = [
        ("transforms", "${env:SECRET}"),
        ("predicates", "${env:SECRET}"),
        ("topic.creation.groups", "${env:SECRET}"),
        ("topic.creation.default.partitions", "x"),
    ];
    let pairs = pairs.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let (_, findings) = Connector::read(&submitted(&pairs), None, &Worker::default(), &World, &|_| {
        Findings::default()
    });
    no_secret(&findings, "names of transforms");
}

#[test]
fn what_a_custom_pattern_means_is_hidden_in_errors_too() {
    let pairs = [
        ("custom.sanitize.pattern", "database\\.port"),
        ("database.port", "hunter2"),
    ];
    let pairs = pairs.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let (_, findings) = Connector::read(&submitted(&pairs), None, &Worker::default(), &World, &|_| {
        Findings::default()
    });
    assert!(findings.problems().any(|problem| problem.place == "database.port"));
    no_secret(&findings, "database.port");
}

#[test]
fn no_broken_file_shows_a_secret() {
    let files = [
        format!("{{\"database.password\": \"{SECRET}\",}}"),
        format!("{{\"database.password\": {SECRET}}}"),
        format!("[{{\"database.password\": \"{SECRET}\"}}, 7]"),
        format!("{{\"database.password\": [\"{SECRET}\"]}}"),
        format!("{{\"name\": {{\"password\": \"{SECRET}\"}}, \"config\": {{}}}}"),
        format!("database.password={SECRET}\\u00"),
        format!("- CONNECT_PASSWORD={SECRET}"),
        format!("database.port=x\n{SECRET}\n"),
        "database.port=x\nhunter2".to_owned(),
        "database.port=x\nMyhunter2Pass word\n".to_owned(),
        "database.port=x\ndatabase.password hunter2\n".to_owned(),
        "database.port=x\nmy.hunter2.pass\n".to_owned(),
        "database.port=x\nhunter2=\n".to_owned(),
        "{\"hunter2\": \"\"}".to_owned(),
        format!("services:\n  connect:\n    environment:\n      PASSWORD: {SECRET}\n"),
    ];
    for text in files {
        match Submitted::read(&text) {
            Ok((submitted, findings)) => {
                no_secret(&findings, &text);
                let (_, findings) =
                    Connector::read(&submitted, None, &Worker::default(), &World, &|_| Findings::default());
                no_secret(&findings, &text);
            }
            Err(error) => assert!(
                !format!("{error} {}", error.hint()).contains("hunter2"),
                "{text}: {error}"
            ),
        }
    }
}
