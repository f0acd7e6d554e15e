//! Options that Confluent's and Apicurio's converters have under different names.

use walferry_config::{Property, Reader, Secret, Support};

use super::{CertificateStore, ClientTls, Proxy};

const TUNING: &str =
    "Walferry requests the id of each schema once and keeps it, and retries until the registry answers";

pub(super) const READING: &str = "it applies only to reading, but a source only writes";

/// An option that tunes what Java's client remembers and how often it tries.
pub(super) const fn tuning(name: &'static str, text: &'static str) -> Property<Option<String>> {
    Property::new(name)
        .text(text)
        .support(Support::Accepted { why: TUNING })
}

/// An option that concerns readers.
pub(super) const fn reading(name: &'static str, text: &'static str) -> Property<Option<String>> {
    Property::new(name)
        .text(text)
        .support(Support::Accepted { why: READING })
}

pub(super) const fn trusted(name: &'static str) -> Property<Option<String>> {
    Property::new(name).text(
        "File with the certificates to verify the registry's certificate: PEM, PKCS#12 or JKS. By default, the operating system's \
         certificates are used.",
    )
}

pub(super) const fn identity(name: &'static str) -> Property<Option<String>> {
    Property::new(name).text("File with the client certificate and its key: PEM, PKCS#12 or JKS.")
}

pub(super) const fn store_password(name: &'static str) -> Property<Option<Secret>> {
    Property::new(name).text("Password of this file.")
}

pub(super) const fn key_password(name: &'static str) -> Property<Option<Secret>> {
    Property::new(name).text("Password of the key, if it is different.")
}

pub(super) const fn client_secret(name: &'static str) -> Property<Option<Secret>> {
    Property::new(name).text("OAuth client secret.")
}

pub(super) const fn scope(name: &'static str) -> Property<Option<String>> {
    Property::new(name).text("OAuth scope of the token.")
}

pub(super) const fn request_header(name: &'static str) -> Property<Secret> {
    Property::new(name).text("Header that is added to each request to the registry.")
}

pub(super) const fn proxy_host(name: &'static str) -> Property<Option<String>> {
    Property::new(name).text(
        "Host of an HTTP proxy through which the registry is reached. Walferry asks the proxy for a connection to the registry (`CONNECT`), \
         with `http://` URLs, too.",
    )
}

pub(super) const fn proxy_port(name: &'static str) -> Property<Option<u16>> {
    Property::new(name).text("Port of this proxy.")
}

/// The proxy, if it is fully given. As in Java, a host without a port counts for nothing.
pub(super) fn proxy(
    reader: &mut Reader<'_>,
    host: &Property<Option<String>>,
    port: &Property<Option<u16>>,
) -> Option<Proxy> {
    let (given_host, given_port) = (reader.get(host), reader.get(port));
    match (given_host.filter(|host| !host.trim().is_empty()), given_port) {
        (Some(text), Some(port)) => {
            let host = text.trim().trim_start_matches("http://").trim_end_matches('/');
            Some(Proxy {
                host: host.to_owned(),
                port,
                login: None,
            })
        }
        (Some(_), None) => {
            let what = format!("has no effect without {}, as with the Java converter", port.name());
            reader.note(host.name(), what);
            None
        }
        (None, _) => None,
    }
}

/// The headers of each request.
pub(super) fn headers(reader: &mut Reader<'_>, header: &Property<Secret>) -> Vec<(String, Secret)> {
    let found = reader.matching(header).into_iter();
    found
        .filter_map(|(parts, value)| Some(((*parts.first()?).to_owned(), value)))
        .collect()
}

/// Certificates, which lie in files.
pub(super) fn stores(
    reader: &mut Reader<'_>,
    trusted: (&Property<Option<String>>, &Property<Option<Secret>>),
    identity: (&Property<Option<String>>, &Property<Option<Secret>>),
    key_password: &Property<Option<Secret>>,
) -> ClientTls {
    let mut store = |(path, password): (&Property<Option<String>>, &Property<Option<Secret>>)| {
        let (path, password) = (reader.get(path), reader.get(password));
        path.map(|path| CertificateStore::File { path, password })
    };
    let (trusted, identity) = (store(trusted), store(identity));
    ClientTls {
        trusted,
        identity,
        key_password: reader.get(key_password),
    }
}
