//! Where the admin endpoint listens when no flag says it.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use walferry_diagnosis::Kind;

use walferry_config::{Worker, shown_address};

use crate::error::Error;

/// Without flag and `listeners`: reachable from this machine only, as the endpoint has no password.
pub(crate) const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8083);

/// The flag's, else the worker's.
pub(crate) fn wanted(flag: Option<SocketAddr>, worker: &Worker) -> Result<SocketAddr, Error> {
    match flag {
        Some(address) => Ok(address),
        None => address(&worker.listeners),
    }
}

/// The first of `listeners` without TLS.
pub(crate) fn address(listeners: &[String]) -> Result<SocketAddr, Error> {
    if listeners.is_empty() {
        return Ok(DEFAULT);
    }
    let text = listeners.iter().find_map(|listener| {
        let (scheme, rest) = listener.trim().split_once("://")?;
        scheme.eq_ignore_ascii_case("http").then_some(rest)
    });
    let failed = |what: String, hint: &str| {
        Err(Error::new(Kind::AdminAddress, "the admin endpoint did not start").cause(what, Some(hint.to_owned())))
    };
    let Some(text) = text else {
        let without_scheme = listeners.iter().find(|listener| !listener.contains("://"));
        return match without_scheme {
            Some(listener) => failed(
                format!(
                    "listeners names {}, which begins with no http://",
                    shown_address(listener)
                ),
                "write it as http://127.0.0.1:8083",
            ),
            None => failed(
                "listeners has no address without TLS".to_owned(),
                "give an address such as http://127.0.0.1:8083, and put a proxy that speaks TLS before it",
            ),
        };
    };
    // Without a host Kafka Connect listens on every address.
    let every = if text.starts_with(':') { "0.0.0.0" } else { "" };
    let found = format!("{every}{}", text.trim_end_matches('/')).to_socket_addrs();
    match found.ok().and_then(|mut found| found.next()) {
        Some(address) => Ok(address),
        None => failed(
            format!(
                "listeners names {}, which is no address with a port",
                shown_address(text)
            ),
            "write it as http://127.0.0.1:8083",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_listener_without_tls_counts() {
        let cases: [(&[&str], Option<&str>); 8] = [
            (&[], Some("127.0.0.1:8083")),
            (&["http://0.0.0.0:9000"], Some("0.0.0.0:9000")),
            (&["http://:9000"], Some("0.0.0.0:9000")),
            (&[" HTTP://[::1]:9000/ "], Some("[::1]:9000")),
            (&["https://:8443", "http://127.0.0.1:9000"], Some("127.0.0.1:9000")),
            (&["https://:8443"], None),
            (&["http://127.0.0.1"], None),
            (&["127.0.0.1:9000"], None),
        ];
        for (listeners, expected) in cases {
            let listeners: Vec<String> = listeners.iter().map(|text| (*text).to_owned()).collect();
            let expected = expected.map(|text| text.parse().expect("an address"));
            assert_eq!(address(&listeners).ok(), expected, "{listeners:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_listeners_is_said_of_the_listener() {
        let cases = [
            (
                "127.0.0.1:9000",
                "listeners names \"127.0.0.1:9000\", which begins with no http://",
            ),
            ("https://:8443", "listeners has no address without TLS"),
            (
                "http://127.0.0.1",
                "listeners names \"127.0.0.1\", which is no address with a port",
            ),
        ];
        for (listener, expected) in cases {
            let error = format!("{:?}", address(&[listener.to_owned()]).unwrap_err());
            assert!(error.contains(&format!("{expected:?}")), "{error}");
        }
    }
}
