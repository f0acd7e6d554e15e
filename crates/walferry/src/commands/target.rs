//! The arguments that say which running process is asked, and how to log in there.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Where the process is that runs the connector, and how to log in there.
#[derive(Debug, Clone, Args)]
pub(crate) struct EndpointArgs {
    #[command(flatten)]
    pub(crate) address: AddressArgs,
    /// Use this section of ~/.config/walferry/config.toml: its URL, and how to log in. Without --context, --admin and --url, the environment
    /// variable WALFERRY_URL counts, then WALFERRY_CONTEXT, then `current` of that file
    #[arg(long, value_name = "NAME", conflicts_with_all = ["admin", "url"])]
    pub(crate) context: Option<String>,
    /// User who logs in. The password is read from --password-file, from the environment variable WALFERRY_REST_PASSWORD, or from the
    /// terminal
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// File that contains the user's password in its first line
    #[arg(long, value_name = "FILE", requires = "user", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,
}

/// Where a process has its admin endpoint.
#[derive(Debug, Clone, Args)]
pub(crate) struct AddressArgs {
    /// Address of the admin endpoint of the process: HOST:PORT, or only a port of this machine [default: 127.0.0.1:8083]
    #[arg(long, value_name = "ADDR", value_parser = admin_address)]
    pub(crate) admin: Option<String>,
    /// URL of this endpoint, if it has a host name or speaks TLS: http://HOST:8083 or https://HOST:8443
    #[arg(long, value_name = "URL", conflicts_with = "admin")]
    pub(crate) url: Option<String>,
    /// File with the certificates (PEM) of the authorities that sign the endpoint's certificate [default: those of the system]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// File with a client certificate (PEM), if the endpoint asks for one
    #[arg(long, value_name = "FILE", requires = "key", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,
    /// File with the key (PEM) of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,
}

/// HOST:PORT, where the host is this machine if it is left out.
fn admin_address(text: &str) -> Result<String, String> {
    let example =
        "write it as HOST:PORT, such as 127.0.0.1:8083 or cdc.internal:8083; for https, write --url https://HOST:PORT";
    if text.contains("://") || text.contains(['/', '@']) {
        return Err(example.to_owned());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port),
        None => ("", text),
    };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')),
    };
    match (is_port && is_host, host) {
        (false, _) => Err(example.to_owned()),
        (true, "") => Ok(format!("127.0.0.1:{port}")),
        (true, host) => Ok(format!("{host}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_name_or_only_a_port_and_a_mistake_gets_an_example() {
        for (text, expected) in [
            ("localhost:8083", Some("localhost:8083")),
            ("127.0.0.1:8083", Some("127.0.0.1:8083")),
            ("[::1]:8083", Some("[::1]:8083")),
            (":8083", Some("127.0.0.1:8083")),
            ("8083", Some("127.0.0.1:8083")),
            ("localhost", None),
            ("localhost:", None),
            ("localhost:99999", None),
            ("http://localhost:8083", None),
            ("ops:secret@host:8083", None),
            ("a b:1", None),
        ] {
            let found = admin_address(text);
            assert_eq!(found.as_deref().ok(), expected, "{text}");
            assert!(found.is_ok() || found.unwrap_err().contains("such as"), "{text}");
        }
    }
}
