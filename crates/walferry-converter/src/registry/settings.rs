//! What the client of a registry has to know.

use std::time::Duration;

use walferry_config::Secret;

/// Whose interface the registry is spoken to through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// Confluent's, which others have too (`/apis/ccompat/v7` of Apicurio).
    Confluent,
    /// Apicurio's second, `/apis/registry/v2`.
    ApicurioV2,
    /// Apicurio's third, `/apis/registry/v3`.
    ApicurioV3,
}

/// How to reach a registry. Two converters with equal settings share one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrySettings {
    /// Its interface.
    pub api: Api,
    /// Where it is, without a slash at the end; one after the other is tried. At least one.
    pub urls: Vec<String>,
    /// How the client logs in.
    pub auth: Auth,
    /// Headers of each request. A value may be a secret.
    pub headers: Vec<(String, Secret)>,
    /// Certificates.
    pub tls: ClientTls,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub read_timeout: Duration,
    /// Which id records carry. The client checks that the registry still has the schema under this one.
    pub id: Id,
    /// Through which proxy the registry is reached.
    pub proxy: Option<Proxy>,
}

/// One of the two ids of a schema. With Confluent's interface they are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Id {
    /// Of the content, wherever it is registered.
    Content,
    /// Of this version of this artifact.
    Global,
}

/// An HTTP proxy in front of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Name and password with which the client logs in to the proxy.
    pub login: Option<(String, Secret)>,
}

/// How a client logs in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    /// Not at all.
    #[default]
    None,
    /// With name and password.
    Basic {
        /// Name.
        user: String,
        /// Password.
        password: Secret,
    },
    /// With name and password that stand in a URL: for each of the URLs, in their order, what stands in it.
    Urls(Vec<Option<(String, Secret)>>),
    /// With a token that does not change.
    Bearer(Secret),
    /// With a token that is asked for: OAuth's client credentials.
    OAuth(OAuth),
}

/// OAuth's client credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OAuth {
    /// Where tokens are asked for.
    pub token_url: String,
    /// Name of the client.
    pub client_id: String,
    /// Its password.
    pub client_secret: Secret,
    /// What the token shall be good for.
    pub scope: Option<String>,
}

/// Certificates of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTls {
    /// Whom to trust; `None` is whom the system trusts.
    pub trusted: Option<CertificateStore>,
    /// Certificate and key of the client.
    pub identity: Option<CertificateStore>,
    /// Password of the key, where it has another one than its file.
    pub key_password: Option<Secret>,
}

/// A file of certificates or keys, or the same as PEM text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateStore {
    /// A file: PEM, PKCS#12 or JKS.
    File {
        /// Its path.
        path: String,
        /// Its password.
        password: Option<Secret>,
    },
    /// PEM text, as it stands in the configuration: certificates, and for an identity the key.
    Pem {
        /// Certificates.
        certificates: String,
        /// The key.
        key: Option<Secret>,
    },
}
