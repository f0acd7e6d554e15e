//! Certificates for tests, ordinary and odd ones. OpenSSL makes them, as most people's are made.

use std::net::{IpAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::dh::Dh;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslStream, SslVerifyMode, SslVersion};
use openssl::x509::extension::{AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, SubjectAlternativeName};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyFlags;
use openssl::x509::{CrlNumber, X509, X509CrlBuilder, X509Extension, X509NameBuilder, X509RevokedBuilder};

/// A kind of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Of the curve P-256.
    P256,
    /// Of the curve P-521.
    P521,
    /// RSA with this number of bits.
    Rsa(u32),
    /// RSA that is for RSASSA-PSS alone.
    RsaPss,
}

/// What a certificate is for (`extendedKeyUsage`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Servers.
    Server,
    /// Clients.
    Client,
    /// Something else than TLS.
    Code,
    /// Everything, which is a purpose of its own.
    Any,
}

/// What to make.
#[derive(Debug, Clone)]
pub struct Wish<'a> {
    /// The common name.
    pub name: &'a str,
    /// The alternative names: hosts and addresses.
    pub hosts: &'a [&'a str],
    /// X.509 version: 1 or 3. Version 1 has no extensions.
    pub version: i32,
    /// Whether it may sign certificates, if it says so: `basicConstraints`.
    pub is_authority: Option<bool>,
    /// How many authorities may be below it.
    pub path: Option<u32>,
    /// The key.
    pub key: Key,
    /// The hash of the signature. The issuer signs with it.
    pub digest: fn() -> MessageDigest,
    /// From when until when it is valid, in days from today.
    pub days: (i64, i64),
    /// What it is for.
    pub purpose: Option<Purpose>,
    /// Further extensions: object identifier, whether it is critical, content.
    pub extensions: &'a [(&'a str, bool, &'a [u8])],
}

impl<'a> Wish<'a> {
    /// A certificate for hosts or addresses, of version 3, with a P-256 key.
    pub const fn server(hosts: &'a [&'a str]) -> Self {
        Self {
            name: "server",
            hosts,
            version: 3,
            is_authority: None,
            path: None,
            key: Key::P256,
            digest: MessageDigest::sha256,
            days: (-2, 2),
            purpose: None,
            extensions: &[],
        }
    }

    /// A certificate that signs others.
    pub const fn authority(name: &'a str) -> Self {
        Self {
            name,
            is_authority: Some(true),
            ..Self::server(&[])
        }
    }

    /// A certificate of a client.
    pub const fn client(name: &'a str) -> Self {
        Self {
            name,
            ..Self::server(&[])
        }
    }
}

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: X509,
    /// Its key.
    pub key: PKey<Private>,
}

impl Certificate {
    /// Makes one that this issuer signs; without one, it signs itself.
    #[track_caller]
    pub fn make(wish: &Wish<'_>, issuer: Option<&Self>) -> Self {
        let key = key(wish.key);
        let mut name = X509NameBuilder::new().expect("OpenSSL has memory");
        name.append_entry_by_nid(Nid::COMMONNAME, wish.name)
            .expect("it is a name");
        let name = name.build();
        let mut builder = X509::builder().expect("OpenSSL has memory");
        let made = "what is wished can be made";
        builder.set_version(wish.version - 1).expect(made);
        builder.set_subject_name(&name).expect(made);
        let of_issuer = issuer.map_or(&*name, |issuer| issuer.certificate.subject_name());
        builder.set_issuer_name(of_issuer).expect(made);
        builder.set_not_before(&day(wish.days.0)).expect(made);
        builder.set_not_after(&day(wish.days.1)).expect(made);
        builder.set_pubkey(&key).expect(made);
        let mut serial = BigNum::new().expect(made);
        serial.rand(63, openssl::bn::MsbOption::MAYBE_ZERO, false).expect(made);
        builder
            .set_serial_number(&serial.to_asn1_integer().expect(made))
            .expect(made);
        for extension in extensions(wish) {
            builder.append_extension(extension).expect(made);
        }
        if wish.version == 3 && !wish.hosts.is_empty() {
            let mut names = SubjectAlternativeName::new();
            for host in wish.hosts {
                match host.parse::<IpAddr>() {
                    Ok(_) => names.ip(host),
                    Err(_) => names.dns(host),
                };
            }
            let names = names.build(&builder.x509v3_context(None, None)).expect(made);
            builder.append_extension(names).expect(made);
        }
        let signer = issuer.map_or(&key, |issuer| &issuer.key);
        builder.sign(signer, (wish.digest)()).expect(made);
        Self {
            certificate: builder.build(),
            key,
        }
    }

    /// A list (CRL) in PEM with which this authority revokes certificates, from and until some days from today.
    #[track_caller]
    pub fn revokes(&self, certificates: &[&Self], days: (i64, i64)) -> String {
        let made = "what is wished can be made";
        let mut builder = X509CrlBuilder::new().expect("OpenSSL has memory");
        builder.set_issuer_name(self.certificate.subject_name()).expect(made);
        builder.set_last_update(&day(days.0)).expect(made);
        builder.set_next_update(&day(days.1)).expect(made);
        for certificate in certificates {
            let mut revoked = X509RevokedBuilder::new().expect("OpenSSL has memory");
            revoked
                .set_serial_number(certificate.certificate.serial_number())
                .expect(made);
            revoked.set_revocation_date(&day(days.0)).expect(made);
            builder.add_revoked(revoked.build()).expect(made);
        }
        let of_whom = X509::builder().expect("OpenSSL has memory");
        let of_whom = of_whom.x509v3_context(Some(&self.certificate), None);
        let issuer = AuthorityKeyIdentifier::new().issuer(true).build(&of_whom).expect(made);
        builder.append_extension(issuer).expect(made);
        let number = BigNum::from_u32(1).and_then(CrlNumber::new).expect(made);
        builder.append_extension(number.build().expect(made)).expect(made);
        builder.sign(&self.key, MessageDigest::sha256()).expect(made);
        text(builder.build().expect(made).to_pem().expect(made))
    }

    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        text(self.certificate.to_pem().expect("it can be written"))
    }

    /// The key in PEM.
    pub fn key_pem(&self) -> String {
        text(self.key.private_key_to_pem_pkcs8().expect("it can be written"))
    }

    /// A server that shows it. With `clients`, it takes only clients with a certificate of one of them.
    #[track_caller]
    pub fn server(&self, clients: &[X509], kind: ServerKind) -> TlsServer {
        self.server_with(&[], clients, kind)
    }

    /// The same, with further certificates that it shows.
    #[track_caller]
    pub fn server_with(&self, others: &[&Self], clients: &[X509], kind: ServerKind) -> TlsServer {
        let usable = "the certificate can be used";
        let mut context = SslContextBuilder::new(SslMethod::tls_server()).expect("OpenSSL has memory");
        context.set_security_level(0);
        context.set_certificate(&self.certificate).expect(usable);
        context.set_private_key(&self.key).expect(usable);
        for other in others {
            context.add_extra_chain_cert(other.certificate.clone()).expect(usable);
        }
        context.set_options(SslOptions::IGNORE_UNEXPECTED_EOF);
        if !clients.is_empty() {
            let mut store = X509StoreBuilder::new().expect("OpenSSL has memory");
            for client in clients {
                store.add_cert(client.clone()).expect(usable);
            }
            store.set_flags(X509VerifyFlags::PARTIAL_CHAIN).expect(usable);
            context.set_cert_store(store.build());
            context.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        }
        match kind {
            ServerKind::Usual => {}
            ServerKind::Dhe => {
                context.set_max_proto_version(Some(SslVersion::TLS1_2)).expect(usable);
                let suites = "DHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES128-GCM-SHA256";
                context.set_cipher_list(suites).expect(usable);
                let group = Dh::get_2048_256().expect("OpenSSL has it");
                context.set_tmp_dh(&group).expect(usable);
            }
            ServerKind::Curve(name) => context.set_groups_list(name).expect(usable),
        }
        TlsServer(context.build())
    }
}

/// What a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// What OpenSSL offers.
    Usual,
    /// TLS 1.2 without elliptic curves.
    Dhe,
    /// Only this curve for the exchange of keys.
    Curve(&'static str),
}

/// The server side of TLS.
#[derive(Clone)]
pub struct TlsServer(SslContext);

impl TlsServer {
    /// Encrypts a connection. `None` if the client does not want to go on.
    pub fn accept(&self, socket: TcpStream) -> Option<SslStream<TcpStream>> {
        let mut stream = SslStream::new(Ssl::new(&self.0).ok()?, socket).ok()?;
        stream.accept().ok()?;
        Some(stream)
    }
}

fn text(pem: Vec<u8>) -> String {
    String::from_utf8(pem).expect("PEM is text")
}

fn day(days: i64) -> Asn1Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    Asn1Time::from_unix(now.as_secs().cast_signed() + days * 86_400).expect("it is a time")
}

fn key(kind: Key) -> PKey<Private> {
    let curve = |nid| {
        let group = EcGroup::from_curve_name(nid).expect("OpenSSL has it");
        PKey::from_ec_key(EcKey::generate(&group).expect("a key can be made")).expect("it is a key")
    };
    let rsa = |id, bits| {
        let mut context = PkeyCtx::new_id(id).expect("OpenSSL has it");
        context.keygen_init().expect("a key can be made");
        context.set_rsa_keygen_bits(bits).expect("it is a number of bits");
        context.keygen().expect("a key can be made")
    };
    match kind {
        Key::P256 => curve(Nid::X9_62_PRIME256V1),
        Key::P521 => curve(Nid::SECP521R1),
        Key::Rsa(bits) => rsa(Id::RSA, bits),
        Key::RsaPss => rsa(Id::RSA_PSS, 2048),
    }
}

/// All extensions but the alternative names.
fn extensions(wish: &Wish<'_>) -> Vec<X509Extension> {
    if wish.version < 3 {
        return Vec::new();
    }
    let mut all = Vec::new();
    if let Some(is_authority) = wish.is_authority {
        let mut constraints = BasicConstraints::new();
        constraints.critical();
        if is_authority {
            constraints.ca();
        }
        if let Some(path) = wish.path {
            constraints.pathlen(path);
        }
        all.push(constraints.build());
    }
    if let Some(purpose) = wish.purpose {
        let mut usage = ExtendedKeyUsage::new();
        match purpose {
            Purpose::Server => usage.server_auth(),
            Purpose::Client => usage.client_auth(),
            Purpose::Code => usage.code_signing(),
            Purpose::Any => usage.other("2.5.29.37.0"),
        };
        all.push(usage.build());
    }
    for (identifier, is_critical, content) in wish.extensions {
        let identifier = openssl::asn1::Asn1Object::from_str(identifier).expect("it is an identifier");
        let content = openssl::asn1::Asn1OctetString::new_from_bytes(content).expect("OpenSSL has memory");
        all.push(X509Extension::new_from_der(&identifier, *is_critical, &content));
    }
    all.into_iter()
        .map(|extension| extension.expect("what is wished can be made"))
        .collect()
}
