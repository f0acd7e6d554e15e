//! The client against a registry that asks for its certificate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use openssl::ssl::SslStream;
use walferry_config::Secret;
use walferry_converter::registry::{
    Api, Auth, CertificateStore, ClientTls, Id, IdLookup, RegistryAnswer, RegistrySettings, SchemaKind, SchemaRequest,
    Subject,
};
use walferry_registry::Registries;
use walferry_testkit::certificates::{Certificate, Key, Purpose, ServerKind, TlsServer, Wish};

/// Certificate and key of a name that an authority has signed, as PEM.
fn issue(authority: &Certificate, name: &str) -> (String, String) {
    let made = Certificate::make(&Wish::client(name), Some(authority));
    (made.pem(), made.key_pem())
}

/// Answers each request with an id, to whoever shows a certificate of the authority.
fn serve(authority: &Certificate) -> String {
    let own = Certificate::make(&Wish::server(&["127.0.0.1"]), Some(authority));
    let clients = [authority.certificate.clone()];
    serve_with(own.server(&clients, ServerKind::Usual))
}

/// Answers each request with an id.
fn serve_with(tls: TlsServer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            // A handshake that fails ends the connection.
            if let Some(stream) = tls.accept(socket) {
                let _ = answer(stream);
            }
        }
    });
    format!("https://127.0.0.1:{port}")
}

fn answer(stream: SslStream<TcpStream>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap_or_default();
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let mut stream = reader.into_inner();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\n{\"id\":7}")?;
    // Without a farewell, a client could not tell an answer from a part of one.
    let _ = stream.shutdown();
    stream.flush()
}

/// The id, or what is in the way.
fn outcome(url: &str, tls: ClientTls) -> Result<i64, String> {
    let client = Registries::default().of(&RegistrySettings {
        api: Api::Confluent,
        urls: vec![url.to_owned()],
        auth: Auth::None,
        headers: Vec::new(),
        tls,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(5),
        id: Id::Content,
        proxy: None,
    });
    let request = SchemaRequest {
        subject: Subject {
            id: "t-value".to_owned(),
            ..Subject::default()
        },
        kind: SchemaKind::Avro,
        schema: "\"int\"".to_owned(),
        references: Vec::new(),
        lookup: IdLookup::Register {
            normalize: false,
            if_exists: "",
        },
    };
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        match client.ids(&request) {
            RegistryAnswer::Known(ids) => return Ok(ids.content),
            RegistryAnswer::Refused(refusal) => panic!("{refusal:?}"),
            RegistryAnswer::Wait(wait) => match wait.trouble() {
                Some(trouble) => return Err(format!("{} ({})", trouble.text, trouble.hint.unwrap_or_default())),
                None => drop(wait.wait_for(Duration::from_millis(10))),
            },
        }
    }
    panic!("no answer");
}

fn pem(certificates: String, key: Option<String>) -> CertificateStore {
    CertificateStore::Pem {
        certificates,
        key: key.map(Secret::new),
    }
}

#[test]
fn the_registry_and_the_client_show_certificates_to_each_other() {
    let authority = Certificate::make(&Wish::authority("authority"), None);
    let url = serve(&authority);
    let (certificate, key) = issue(&authority, "walferry");
    let as_text = ClientTls {
        trusted: Some(pem(authority.pem(), None)),
        identity: Some(pem(certificate.clone(), Some(key.clone()))),
        key_password: None,
    };
    assert_eq!(outcome(&url, as_text.clone()), Ok(7));

    let folder = std::env::temp_dir().join(format!("walferry-registry-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        Some(CertificateStore::File {
            path: path.to_str().unwrap().to_owned(),
            password: None,
        })
    };
    let as_files = ClientTls {
        trusted: file("authority.pem", authority.pem()),
        identity: file("client.pem", format!("{certificate}{key}")),
        key_password: None,
    };
    let found = outcome(&url, as_files);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found, Ok(7));

    let refusal_of = |identity: Option<CertificateStore>| {
        let tls = ClientTls {
            identity,
            ..as_text.clone()
        };
        outcome(&url, tls).unwrap_err()
    };
    // A key of another certificate is told of, and asked for again: it may be a file that is being replaced.
    let (_, foreign) = issue(&authority, "walferry");
    let refusal = refusal_of(Some(pem(certificate, Some(foreign))));
    assert!(
        refusal.contains("the client's certificate and its key cannot be used"),
        "{refusal}"
    );
    assert!(
        refusal.contains("check that the key belongs to the first certificate"),
        "{refusal}"
    );

    // The registry refuses who shows no certificate, or one of a stranger.
    let stranger = Certificate::make(&Wish::authority("stranger"), None);
    let (certificate, key) = issue(&stranger, "walferry");
    for identity in [None, Some(pem(certificate, Some(key)))] {
        let refusal = refusal_of(identity);
        assert!(refusal.contains(&url), "{refusal}");
        assert!(refusal.contains("keystore"), "{refusal}");
    }
    // And the client refuses a registry that it has no reason to trust.
    let trusted = Some(pem(stranger.pem(), None));
    let refusal = outcome(&url, ClientTls { trusted, ..as_text }).unwrap_err();
    assert!(refusal.contains("truststore"), "{refusal}");
}

/// The URL names the host by which the certificate is looked at.
fn at(url: &str, host: &str) -> String {
    url.replace("127.0.0.1", host)
}

#[test]
fn certificates_and_ciphers_that_java_takes_are_taken() {
    let authority = Certificate::make(
        &Wish {
            key: Key::Rsa(2048),
            ..Wish::authority("authority")
        },
        None,
    );
    let version_1 = Wish {
        name: "localhost",
        version: 1,
        key: Key::Rsa(2048),
        ..Wish::server(&[])
    };
    let of_name = Wish::server(&["localhost"]);
    let with = |key| Wish { key, ..of_name.clone() };
    let rsa = with(Key::Rsa(2048));
    let cases = [
        ("version 1", &version_1, ServerKind::Usual),
        ("P-521", &with(Key::P521), ServerKind::Usual),
        ("RSA-PSS", &with(Key::RsaPss), ServerKind::Usual),
        ("DHE", &rsa, ServerKind::Dhe),
        ("the curve P-521", &rsa, ServerKind::Curve("P-521")),
    ];
    for (what, wish, kind) in cases {
        let own = Certificate::make(wish, Some(&authority));
        let url = at(&serve_with(own.server(&[], kind)), "localhost");
        let tls = ClientTls {
            trusted: Some(pem(authority.pem(), None)),
            ..ClientTls::default()
        };
        assert_eq!(outcome(&url, tls), Ok(7), "{what}");
    }
    // A client's certificate of version 1 with a P-521 key: only the registry judges it.
    let own = Certificate::make(&of_name, Some(&authority));
    let client = Certificate::make(
        &Wish {
            version: 1,
            key: Key::P521,
            ..Wish::client("walferry")
        },
        Some(&authority),
    );
    let url = serve_with(own.server(std::slice::from_ref(&authority.certificate), ServerKind::Usual));
    let tls = ClientTls {
        trusted: Some(pem(authority.pem(), None)),
        identity: Some(pem(client.pem(), Some(client.key_pem()))),
        key_password: None,
    };
    assert_eq!(outcome(&at(&url, "localhost"), tls), Ok(7));
}

#[test]
fn a_certificate_that_is_refused_is_told_with_the_reason_and_the_remedy() {
    let authority = Certificate::make(&Wish::authority("authority"), None);
    let expired = Wish {
        days: (-9, -1),
        ..Wish::server(&["localhost"])
    };
    let purpose = Wish {
        purpose: Some(Purpose::Client),
        ..Wish::server(&["localhost"])
    };
    let cases = [
        (
            expired,
            "the server's certificate expired on",
            "renew it in the registry",
        ),
        (purpose, "is not meant for servers", "extendedKeyUsage=serverAuth"),
        (
            Wish::server(&["other.example.com"]),
            "is for other.example.com, but the host in the registry's URL is \"localhost\"",
            "subjectAltName",
        ),
    ];
    for (wish, reason, remedy) in cases {
        let own = Certificate::make(&wish, Some(&authority));
        let tls = ClientTls {
            trusted: Some(pem(authority.pem(), None)),
            ..ClientTls::default()
        };
        let refusal = outcome(&at(&serve_with(own.server(&[], ServerKind::Usual)), "localhost"), tls).unwrap_err();
        assert!(refusal.contains(reason) && refusal.contains(remedy), "{refusal}");
    }
}
