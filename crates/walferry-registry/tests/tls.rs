//! The client against a registry that asks for its certificate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use walferry_config::Secret;
use walferry_converter::registry::{
    Api, Auth, CertificateStore, ClientTls, Id, IdLookup, RegistryAnswer, RegistrySettings, SchemaKind, SchemaRequest,
    Subject,
};
use walferry_registry::Registries;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key of a name, as PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// Answers each request with an id, to whoever shows a certificate of the authority.
fn serve(authority: &Authority) -> String {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let (certificate, key) = authority.issue("127.0.0.1");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            // A handshake that fails ends the connection.
            let _ = answer(StreamOwned::new(connection, stream));
        }
    });
    url
}

fn answer(stream: StreamOwned<ServerConnection, std::net::TcpStream>) -> std::io::Result<()> {
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
    stream.conn.send_close_notify();
    stream.flush()
}

/// The id, or what is told to be in the way.
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
    let authority = Authority::new();
    let url = serve(&authority);
    let (certificate, key) = authority.issue("walferry");
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
    let (_, foreign) = authority.issue("walferry");
    let told = refusal_of(Some(pem(certificate, Some(foreign))));
    assert!(
        told.contains("the client's certificate and its key cannot be used"),
        "{told}"
    );
    assert!(told.contains("check that the key belongs to the certificate"), "{told}");

    // The registry refuses who shows no certificate, or one of a stranger.
    let stranger = Authority::new();
    let (certificate, key) = stranger.issue("walferry");
    for identity in [None, Some(pem(certificate, Some(key)))] {
        let told = refusal_of(identity);
        assert!(told.contains(&url), "{told}");
        assert!(told.contains("keystore"), "{told}");
    }
    // And the client refuses a registry that it has no reason to trust.
    let trusted = Some(pem(stranger.pem(), None));
    let told = outcome(&url, ClientTls { trusted, ..as_text }).unwrap_err();
    assert!(told.contains("truststore"), "{told}");
}
