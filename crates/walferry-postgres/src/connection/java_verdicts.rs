//! Odd certificates, with the verdict that pgjdbc 42.7.13 (`LibPQFactory`) gives of each with Java 17 and 25.

use std::net::TcpListener;
use std::thread;

use openssl::hash::MessageDigest;
use tokio::net::TcpStream;
use walferry_config::connector::SslMode;
use walferry_config::{HostName, Value};
use walferry_testkit::certificates::{Certificate, Key, Purpose, ServerKind, Wish};

use super::Endpoint;
use super::tls::handshake;
use crate::error::Error;

const KEY_USAGE: &str = "2.5.29.15";
const NAME_CONSTRAINTS: &str = "2.5.29.30";
const SIGNS_DATA: &[u8] = &[0x03, 0x02, 0x07, 0x80];
const SIGNS_CERTIFICATES: &[u8] = &[0x03, 0x02, 0x02, 0x04];
const ENCIPHERS: &[u8] = &[0x03, 0x02, 0x05, 0x20];
const AGREES: &[u8] = &[0x03, 0x02, 0x03, 0x08];
/// Only names below `example.org`.
const ONLY_ORG: &[u8] = b"\x30\x11\xA0\x0F\x30\x0D\x82\x0Bexample.org";
/// Only `localhost`.
const ONLY_LOCAL: &[u8] = b"\x30\x0F\xA0\x0D\x30\x0B\x82\x09localhost";
/// Not `localhost`.
const NOT_LOCAL: &[u8] = b"\x30\x0F\xA1\x0D\x30\x0B\x82\x09localhost";
const UNKNOWN: &[(&str, bool, &[u8])] = &[("1.2.3.4", true, b"\x0C\x01x")];

const EXPIRED: (i64, i64) = (-9, -1);
const LOCAL: &[&str] = &["localhost"];

/// What is said of a refusal; `None` if the certificate is accepted.
type Verdict = Option<&'static str>;

/// With `verify-full`, whether a server that shows this chain, ending before the one that is trusted, is the host.
fn meet(mode: SslMode, host: &str, trusted: &Certificate, chain: &[&Certificate]) -> Result<bool, Error> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("root.crt");
    std::fs::write(&file, trusted.pem()).unwrap();
    let Endpoint { mut settings, .. } = Endpoint::nowhere();
    settings.sslmode = mode;
    settings.hostname = HostName::parse(host).unwrap();
    settings.sslrootcert = Some(file.to_str().unwrap().to_owned());
    let server = chain[0].server_with(&chain[1..], &[], ServerKind::Usual);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = thread::spawn(move || drop(server.accept(listener.accept().unwrap().0)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let session = runtime.block_on(async {
        let socket = TcpStream::connect(address).await.unwrap();
        handshake(&settings, "db:5432".to_owned(), socket).await
    });
    serving.join().unwrap();
    session.map(|session| session.is_verified)
}

#[track_caller]
fn judged(what: &str, host: &str, trusted: &Certificate, chain: &[&Certificate], verdicts: [Verdict; 2]) {
    for (mode, verdict) in [SslMode::VerifyCa, SslMode::VerifyFull].into_iter().zip(verdicts) {
        match (meet(mode, host, trusted, chain), verdict) {
            (Ok(is_verified), None) => assert!(is_verified, "{what} {mode}"),
            (Err(error), Some(reason)) => {
                assert!(error.to_string().contains(reason), "{what} {mode}: {error}");
                assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{what} {mode}");
            }
            (session, verdict) => panic!("{what} {mode}: {session:?}, and Java's verdict is {verdict:?}"),
        }
    }
}

const ACCEPTED: [Verdict; 2] = [None, None];

fn refused(reason: &'static str) -> [Verdict; 2] {
    [Some(reason), Some(reason)]
}

/// Not the host's; with `verify-ca`, nobody asks.
const OTHER_NAME: [Verdict; 2] = [None, Some("but `database.hostname` is")];

#[test]
fn what_is_said_of_the_servers_own_certificate_is_what_java_says() {
    let root = Certificate::make(
        &Wish {
            key: Key::Rsa(2048),
            ..Wish::authority("root")
        },
        None,
    );
    let local = Wish::server(LOCAL);
    let with = |extensions: &'static [(&'static str, bool, &'static [u8])]| Wish {
        extensions,
        ..local.clone()
    };
    let of = |purpose| Wish {
        purpose: Some(purpose),
        ..local.clone()
    };
    let key = |key| Wish { key, ..local.clone() };
    let signed = |digest: fn() -> MessageDigest| Wish {
        digest,
        ..local.clone()
    };
    let within = |days| Wish { days, ..local.clone() };
    let cases: [(&str, Wish<'_>, [Verdict; 2]); 17] = [
        ("usual", local.clone(), ACCEPTED),
        (
            "version 1",
            Wish {
                version: 1,
                ..Wish::client("localhost")
            },
            ACCEPTED,
        ),
        (
            "expired",
            within(EXPIRED),
            refused("the server's certificate expired on"),
        ),
        ("not yet valid", within((5, 9)), refused("is valid only from")),
        ("for clients", of(Purpose::Client), refused("is not meant for servers")),
        ("for code", of(Purpose::Code), refused("is not meant for servers")),
        ("for anything", of(Purpose::Any), ACCEPTED),
        (
            "a key that signs certificates alone",
            with(&[(KEY_USAGE, true, SIGNS_CERTIFICATES)]),
            refused("is not meant for servers"),
        ),
        (
            "a key that enciphers alone",
            with(&[(KEY_USAGE, true, ENCIPHERS)]),
            refused("does not allow signatures"),
        ),
        (
            "a key that agrees on keys alone",
            with(&[(KEY_USAGE, true, AGREES)]),
            refused("does not allow signatures"),
        ),
        (
            "an authority",
            Wish {
                is_authority: Some(true),
                ..local.clone()
            },
            ACCEPTED,
        ),
        (
            "an unknown critical extension",
            with(UNKNOWN),
            refused("has a critical extension"),
        ),
        ("SHA-1", signed(MessageDigest::sha1), ACCEPTED),
        ("MD5", signed(MessageDigest::md5), refused("a hash that can be forged")),
        ("RSA with 1024 bits", key(Key::Rsa(1024)), ACCEPTED),
        ("P-521", key(Key::P521), ACCEPTED),
        ("RSA-PSS", key(Key::RsaPss), ACCEPTED),
    ];
    for (what, wish, verdicts) in cases {
        let own = Certificate::make(&wish, Some(&root));
        judged(what, "localhost", &root, &[&own], verdicts);
    }
}

#[test]
fn what_is_said_of_authorities_is_what_java_says() {
    let usual = Wish::authority("root");
    let rsa = Wish {
        key: Key::Rsa(2048),
        ..usual.clone()
    };
    let of = |extensions: &'static [(&'static str, bool, &'static [u8])]| Wish {
        extensions,
        ..usual.clone()
    };
    let (signed, aged) = (
        |digest: fn() -> MessageDigest| Wish { digest, ..rsa.clone() },
        |version| Wish { version, ..rsa.clone() },
    );
    let no_authority = |says| Wish {
        is_authority: says,
        ..usual.clone()
    };
    let expired = Wish {
        days: EXPIRED,
        ..usual.clone()
    };
    let for_clients = Wish {
        purpose: Some(Purpose::Client),
        ..usual.clone()
    };
    let small = Wish {
        key: Key::Rsa(1024),
        ..usual.clone()
    };
    // What an authority is that is trusted, and what is said of it if it is between one that is and the server.
    let cases: [(&str, Wish<'_>, [Verdict; 2], [Verdict; 2]); 11] = [
        ("usual", usual.clone(), ACCEPTED, ACCEPTED),
        ("version 1", aged(1), ACCEPTED, refused("is of X.509 version 1")),
        ("expired", expired, ACCEPTED, refused("\"CN=root\" expired on")),
        (
            "no authority",
            no_authority(Some(false)),
            refused("may not sign other certificates"),
            refused("may not sign other certificates"),
        ),
        (
            "it does not say",
            no_authority(None),
            refused("may not sign other certificates"),
            refused("may not sign other certificates"),
        ),
        ("for clients", for_clients, ACCEPTED, ACCEPTED),
        ("SHA-1", signed(MessageDigest::sha1), ACCEPTED, ACCEPTED),
        (
            "MD5",
            signed(MessageDigest::md5),
            ACCEPTED,
            refused("a hash that can be forged"),
        ),
        ("RSA with 1024 bits", small, ACCEPTED, ACCEPTED),
        (
            "an unknown critical extension",
            of(UNKNOWN),
            ACCEPTED,
            refused("has a critical extension"),
        ),
        (
            "a key that signs data alone",
            of(&[(KEY_USAGE, true, SIGNS_DATA)]),
            refused("may not sign other certificates"),
            refused("may not sign other certificates"),
        ),
    ];
    let top = Wish {
        key: Key::Rsa(2048),
        ..Wish::authority("top")
    };
    let top = Certificate::make(&top, None);
    for (what, wish, trusted, between) in cases {
        let root = Certificate::make(&wish, None);
        let own = Certificate::make(&Wish::server(LOCAL), Some(&root));
        judged(what, "localhost", &root, &[&own], trusted);
        let middle = Certificate::make(&wish, Some(&top));
        let own = Certificate::make(&Wish::server(LOCAL), Some(&middle));
        judged(
            &format!("{what}, between"),
            "localhost",
            &top,
            &[&own, &middle],
            between,
        );
    }
    let names = "the `nameConstraints` of one of its authorities";
    for (what, constraints, verdicts) in [
        ("the name is allowed", ONLY_LOCAL, ACCEPTED),
        ("other names are allowed", ONLY_ORG, refused(names)),
        ("the name is forbidden", NOT_LOCAL, refused(names)),
    ] {
        let extensions = [(NAME_CONSTRAINTS, true, constraints)];
        let wish = Wish {
            extensions: &extensions,
            ..Wish::authority("middle")
        };
        let middle = Certificate::make(&wish, Some(&top));
        let own = Certificate::make(&Wish::server(LOCAL), Some(&middle));
        judged(what, "localhost", &top, &[&own, &middle], verdicts);
    }
    let of_root = |path| Wish {
        path: Some(path),
        ..Wish::authority("short")
    };
    let middle = |issuer: &Certificate| Certificate::make(&Wish::authority("middle"), Some(issuer));
    // One that is trusted may have as many below it as there are.
    let short = Certificate::make(&of_root(0), None);
    let below = middle(&short);
    let own = Certificate::make(&Wish::server(LOCAL), Some(&below));
    judged("a short path, trusted", "localhost", &short, &[&own, &below], ACCEPTED);
    let short = Certificate::make(&of_root(0), Some(&top));
    let below = middle(&short);
    let own = Certificate::make(&Wish::server(LOCAL), Some(&below));
    judged(
        "a short path",
        "localhost",
        &top,
        &[&own, &below, &short],
        refused("allows fewer authorities below it"),
    );
}

#[test]
fn what_is_trusted_itself_is_not_judged_as_in_java() {
    let top = Certificate::make(&Wish::authority("top"), None);
    let middle = Certificate::make(&Wish::authority("middle"), Some(&top));
    let own = Certificate::make(&Wish::server(LOCAL), Some(&middle));
    judged(
        "an authority in between",
        "localhost",
        &middle,
        &[&own, &middle],
        ACCEPTED,
    );
    judged("the certificate itself", "localhost", &own, &[&own], ACCEPTED);
    judged(
        "its authority is missing",
        "localhost",
        &top,
        &[&own],
        refused("was issued by"),
    );
    judged("in another order", "localhost", &top, &[&own, &top, &middle], ACCEPTED);
    let local = Wish::server(LOCAL);
    for (what, wish) in [
        ("self-signed", local.clone()),
        (
            "expired",
            Wish {
                days: EXPIRED,
                ..local.clone()
            },
        ),
        (
            "for clients",
            Wish {
                purpose: Some(Purpose::Client),
                ..local.clone()
            },
        ),
        (
            "version 1",
            Wish {
                version: 1,
                ..Wish::client("localhost")
            },
        ),
        (
            "RSA with 1024 bits",
            Wish {
                key: Key::Rsa(1024),
                ..local.clone()
            },
        ),
    ] {
        let own = Certificate::make(&wish, None);
        judged(what, "localhost", &own, &[&own], ACCEPTED);
        judged(what, "localhost", &top, &[&own], refused("has signed itself"));
    }
}

#[test]
fn a_certificate_is_the_hosts_where_java_says_so() {
    let root = Certificate::make(&Wish::authority("root"), None);
    // Common name, alternative names, host.
    let cases: [(&str, &[&str], &str, [Verdict; 2]); 20] = [
        ("localhost", &[], "localhost", ACCEPTED),
        ("x", &["*.example.com"], "db.example.com", ACCEPTED),
        ("x", &["*.example.com"], "a.db.example.com", OTHER_NAME),
        ("x", &["*.example.com"], "example.com", OTHER_NAME),
        ("x", &["*"], "localhost", OTHER_NAME),
        ("x", &["*.com"], "example.com", ACCEPTED),
        ("x", &["d*.example.com"], "db.example.com", OTHER_NAME),
        ("x", &["db.*.com"], "db.example.com", OTHER_NAME),
        ("*.example.com", &[], "db.example.com", ACCEPTED),
        ("x", &["127.0.0.1"], "127.0.0.1", ACCEPTED),
        ("127.0.0.1", &[], "127.0.0.1", ACCEPTED),
        ("localhost", &["127.0.0.1"], "localhost", ACCEPTED),
        ("127.0.0.1", &["10.0.0.1"], "127.0.0.1", ACCEPTED),
        ("localhost", &["other.example.com"], "localhost", OTHER_NAME),
        ("x", &["localhost."], "localhost", OTHER_NAME),
        ("x", &["LOCALHOST"], "localhost", ACCEPTED),
        ("x", &["localhost"], "LOCALHOST", ACCEPTED),
        ("x", &["other.example.com", "localhost"], "localhost", ACCEPTED),
        ("x", &["10.0.0.1"], "127.0.0.1", OTHER_NAME),
        ("x", &[], "localhost", OTHER_NAME),
    ];
    for (name, hosts, host, verdicts) in cases {
        let own = Certificate::make(
            &Wish {
                name,
                ..Wish::server(hosts)
            },
            Some(&root),
        );
        judged(&format!("{name} {hosts:?}"), host, &root, &[&own], verdicts);
    }
}

/// Who trusts a server's own certificate trusts that server, and nobody for whom it signs. A certificate that names another number of its
/// issuer is not taken for one of this issuer by OpenSSL, which then has not asked whether the issuer may sign.
#[test]
fn a_trusted_server_certifies_nobody_else() {
    const OTHER_NUMBER: &[(&str, bool, &[u8])] = &[("2.5.29.35", false, b"\x30\x03\x82\x01\x07")];
    let wish = Wish {
        name: "trusted",
        ..Wish::server(&["other.example"])
    };
    let server = Certificate::make(&wish, None);
    let reasons = [
        "may not sign other certificates",
        "is not among the authorities that are trusted",
    ];
    for (extensions, reason) in [&[], OTHER_NUMBER].into_iter().zip(reasons) {
        let wish = Wish {
            extensions,
            ..Wish::server(LOCAL)
        };
        let forged = Certificate::make(&wish, Some(&server));
        judged("a forged one", "localhost", &server, &[&forged], refused(reason));
        judged(
            "with its issuer",
            "localhost",
            &server,
            &[&forged, &server],
            refused(reason),
        );
    }
}
