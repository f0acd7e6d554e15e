//! Secrets and config maps of Kubernetes, as Strimzi's config providers read them: with the service account of the pod.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value as Json;
use walferry_config::KubernetesKind;
use walferry_keystore::{
    https::{Https, error_text},
    trust::Words,
};

use crate::http;

const WORDS: Words = Words {
    side: "server",
    trust: "look at ca.crt of the service account, which has other authorities",
    complete: "append it to the API server's certificate",
    renew: "renew it there",
    host: "KUBERNETES_SERVICE_HOST",
    other_name: "look at the certificate of the API server",
    look: "`openssl s_client -showcerts -connect HOST:PORT` shows the certificates of the API server",
};

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TIMEOUT: Duration = Duration::from_secs(10);

/// The API server, and the identity that requests use.
#[derive(Debug, Clone)]
struct Cluster {
    url: String,
    /// Folder with `token`, `ca.crt` and `namespace`.
    account: PathBuf,
}

/// The value of one key of a secret or a config map. `None` if there is no such key.
pub(crate) fn value(kind: KubernetesKind, resource: &str, key: &str) -> io::Result<Option<String>> {
    let host = env::var("KUBERNETES_SERVICE_HOST").map_err(|_| {
        io::Error::other("this process does not run in a Kubernetes pod: KUBERNETES_SERVICE_HOST is not set")
    })?;
    let port = env::var("KUBERNETES_SERVICE_PORT").unwrap_or_else(|_| "443".to_owned());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let cluster = Cluster {
        url: format!("https://{host}:{port}"),
        account: ACCOUNT.into(),
    };
    cluster.value(kind, resource, key)
}

impl Cluster {
    fn read(&self, name: &str) -> io::Result<String> {
        let path = self.account.join(name);
        fs::read_to_string(&path)
            .map_err(|error| io::Error::other(format!("{} cannot be read: {error}", path.display())))
    }

    /// `namespace/name`, or `name` in the pod's own namespace.
    fn value(&self, kind: KubernetesKind, resource: &str, key: &str) -> io::Result<Option<String>> {
        let (namespace, name) = match resource.split_once('/') {
            Some((namespace, name)) => (namespace.to_owned(), name),
            None => (self.read("namespace")?.trim().to_owned(), resource),
        };
        // Allow only names of Kubernetes objects: `..` would be another path.
        let plain = |part: &str| {
            let ends = [part.bytes().next(), part.bytes().next_back()];
            let is_sign = |b: u8| b.is_ascii_alphanumeric();
            ends.iter().all(|end| end.is_some_and(is_sign)) && part.bytes().all(|b| is_sign(b) || b"-.".contains(&b))
        };
        if !plain(&namespace) || !plain(name) {
            return Err(io::Error::other(format!(
                "{resource:?} is not of the form NAMESPACE/NAME"
            )));
        }
        let collection = match kind {
            KubernetesKind::Secret => "secrets",
            KubernetesKind::ConfigMap => "configmaps",
        };
        let url = format!("{}/api/v1/namespaces/{namespace}/{collection}/{name}", self.url);
        let body = self.get(&url)?;
        let Some(text) = body["data"].get(key).and_then(Json::as_str) else {
            return Ok(None);
        };
        match kind {
            KubernetesKind::ConfigMap => Ok(Some(text.to_owned())),
            KubernetesKind::Secret => {
                let bytes = STANDARD
                    .decode(text)
                    .map_err(|_| io::Error::other("the secret's value is not base64"))?;
                let text =
                    String::from_utf8(bytes).map_err(|_| io::Error::other("the secret's value is not UTF-8 text"));
                text.map(Some)
            }
        }
    }

    fn get(&self, url: &str) -> io::Result<Json> {
        let pem = self.read("ca.crt")?;
        let https = Https::trusting(pem.as_bytes(), &WORDS).map_err(|error| {
            let path = self.account.join("ca.crt");
            io::Error::other(format!("{} {error}", path.display()))
        })?;
        let agent = https.agent(http::client(TIMEOUT).build());
        // Kubernetes renews the token from time to time, so it is read for each request.
        let token = self.read("token")?;
        let mut response = agent
            .get(url)
            .header("Authorization", format!("Bearer {}", token.trim()))
            .call()
            .map_err(|error| {
                let what = format!(
                    "the API server of Kubernetes at {} does not answer: {}",
                    self.url,
                    error_text(&error)
                );
                io::Error::new(io::ErrorKind::TimedOut, what)
            })?;
        let what = Path::new(url)
            .strip_prefix(&self.url)
            .unwrap_or(Path::new(url))
            .display()
            .to_string();
        match response.status().as_u16() {
            200 => {}
            404 => return Err(io::Error::other(format!("Kubernetes has no {what}"))),
            403 => {
                return Err(io::Error::other(format!(
                    "the pod's service account is not allowed to get {what}: give it a Role with the verb get, and a RoleBinding"
                )));
            }
            code => {
                let may_pass = code == 429 || code >= 500;
                let kind = if may_pass {
                    io::ErrorKind::TimedOut
                } else {
                    io::ErrorKind::Other
                };
                let what = format!("the API server of Kubernetes answers {code} to GET {what}");
                return Err(io::Error::new(kind, what));
            }
        }
        let body = response.body_mut().read_to_string();
        let body = body.map_err(|error| {
            let kind = match error {
                ureq::Error::BodyExceedsLimit(_) => io::ErrorKind::Other,
                _ => io::ErrorKind::TimedOut,
            };
            io::Error::new(kind, format!("the API server's answer is incomplete: {error}"))
        })?;
        // The error shows nothing of the answer, because it has secrets.
        serde_json::from_str(&body).map_err(|_| io::Error::other("the API server's answer is not JSON"))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use walferry_testkit::certificates::{Certificate, ServerKind, Wish};

    use super::*;

    /// An API server with one secret and one config map, which asks for the token.
    fn api_server(folder: &Path) -> Cluster {
        let own = Certificate::make(&Wish::server(&["127.0.0.1"]), None);
        fs::write(folder.join("ca.crt"), own.pem()).unwrap();
        fs::write(folder.join("token"), "the-token\n").unwrap();
        fs::write(folder.join("namespace"), "shop\n").unwrap();
        let tls = own.server(&[], ServerKind::Usual);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for socket in listener.incoming() {
                // A client that trusts nobody is gone already.
                let Some(mut stream) = tls.accept(socket.unwrap()) else {
                    continue;
                };
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    request.push(byte[0]);
                }
                let request = String::from_utf8_lossy(&request).to_lowercase();
                let (code, body) = match request.split(' ').nth(1) {
                    _ if !request.contains("authorization: bearer the-token\r\n") => ("401 Unauthorized", "{}"),
                    Some("/api/v1/namespaces/shop/secrets/pg") => ("200 OK", r#"{"data":{"password":"aHVudGVyMg=="}}"#),
                    Some("/api/v1/namespaces/other/configmaps/db") => ("200 OK", r#"{"data":{"host":"db-1"}}"#),
                    Some("/api/v1/namespaces/shop/secrets/hidden") => ("403 Forbidden", "{}"),
                    Some("/api/v1/namespaces/shop/secrets/later") => ("503 Service Unavailable", "{}"),
                    Some("/api/v1/namespaces/shop/secrets/half") => ("200 OK", r#"{"data":{"#),
                    _ => ("404 Not Found", "{}"),
                };
                let missing = if request.contains("/half ") { 9 } else { 0 };
                let _ = write!(
                    stream,
                    "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len() + missing
                );
                let _ = stream.flush();
            }
        });
        Cluster {
            url,
            account: folder.to_owned(),
        }
    }

    #[test]
    fn secrets_and_config_maps_come_over_tls_with_the_service_account() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = api_server(folder.path());
        let secret = |resource: &str, key: &str| cluster.value(KubernetesKind::Secret, resource, key);
        assert_eq!(secret("shop/pg", "password").unwrap().as_deref(), Some("hunter2"));
        assert_eq!(
            secret("pg", "password").unwrap().as_deref(),
            Some("hunter2"),
            "in the pod's own namespace"
        );
        assert_eq!(secret("shop/pg", "user").unwrap(), None);
        let map = cluster.value(KubernetesKind::ConfigMap, "other/db", "host");
        assert_eq!(map.unwrap().as_deref(), Some("db-1"));
        let cases = [
            ("shop/nothing", "has no"),
            ("shop/hidden", "is not allowed to get"),
            ("shop/../pods", "NAMESPACE/NAME"),
            ("../..", "NAMESPACE/NAME"),
            ("shop/", "NAMESPACE/NAME"),
        ];
        for (resource, expected) in cases {
            let error = secret(resource, "x").unwrap_err().to_string();
            assert!(error.contains(expected), "{resource}: {error}");
        }
        // It may answer later.
        for resource in ["shop/later", "shop/half"] {
            let error = secret(resource, "x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{resource}: {error}");
        }
        assert_eq!(secret("shop/nothing", "x").unwrap_err().kind(), io::ErrorKind::Other);
        // The token is not sent to a server with another certificate.
        let other = tempfile::tempdir().unwrap();
        api_server(other.path());
        fs::copy(other.path().join("ca.crt"), folder.path().join("ca.crt")).unwrap();
        assert!(secret("shop/pg", "password").is_err());
    }
}
