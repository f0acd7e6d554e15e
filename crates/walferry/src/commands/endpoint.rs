//! The admin endpoint of another process, as commands ask it: with TLS and a login where it wants them.

use std::{
    env,
    fs::File,
    io::{self, BufRead as _, IsTerminal as _, Read as _},
    net::IpAddr,
    path::Path,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::Value as Json;
use ureq::{Agent, http::Response};
use walferry_config::{near_value, quoted};
use walferry_diagnosis::printed::one_line;
use walferry_keystore::{
    self as keystore, ClientIdentity, StoreError, X509,
    https::{Https, TlsFailure, error_text},
    trust::{Words, system_authorities},
};
use walferry_worker::http;

use crate::{
    cli::{AddressArgs, EndpointArgs},
    commands::{contexts, endpoint_error::trouble},
    output::{self, note},
};

pub(crate) use crate::commands::endpoint_error::EndpointError;

/// How long the endpoint may take to answer. Kafka Connect ends a request of its own after 90 s, and says so.
const LIMIT: Duration = Duration::from_secs(95);
/// How long the endpoint may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Where a process listens unless it is told otherwise.
const DEFAULT: &str = "http://127.0.0.1:8083";

const WORDS: Words = Words {
    side: "server",
    trust: "name a file with the authority's certificate with --ca",
    complete: "append it to the endpoint's certificate",
    renew: "renew it there",
    host: "the host of --url",
    other_name: "write a name of the certificate into --url",
    look: "`openssl s_client -showcerts -connect HOST:PORT` shows the certificates of the endpoint",
};

/// Maximum number of values in an answer. Each takes some 80 bytes once it is parsed, also where it is one byte of text.
const MOST_VALUES: usize = 500_000;

/// The largest file that an argument names, in bytes.
const MOST_FILE_BYTES: u64 = 1 << 20;
/// The password of `--user`.
const PASSWORD: &str = "WALFERRY_REST_PASSWORD";

/// An admin endpoint.
pub(crate) struct Endpoint {
    agent: Agent,
    /// Scheme, host, port and perhaps a path, without a slash at the end.
    base: String,
    authorization: Option<String>,
}

/// An answer of an endpoint.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) code: u16,
    /// The body. `Null` if it is not JSON.
    pub(crate) body: Json,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.base.strip_prefix("http://").unwrap_or(&self.base))
    }
}

impl Endpoint {
    /// The endpoint that the arguments name, without a login. An answer may take as long as `limit`.
    pub(crate) fn at(args: &AddressArgs, limit: Duration) -> Result<Self, EndpointError> {
        let base = match (&args.url, &args.admin) {
            (Some(url), _) => base("--url", url)?,
            (None, Some(admin)) => format!("http://{admin}"),
            (None, None) => DEFAULT.to_owned(),
        };
        let config = http::client(limit).timeout_connect(Some(CONNECT)).build();
        let agent = if base.starts_with("https:") {
            tls(args)?.agent(config)
        } else if args.ca.is_some() || args.cert.is_some() {
            return Err(trouble(
                "--ca, --cert and --key are for TLS, and the URL begins with http",
                "write --url https://HOST:PORT",
            ));
        } else {
            config.into()
        };
        Ok(Self {
            agent,
            base,
            authorization: None,
        })
    }

    /// The endpoint that the arguments, the environment or the file of contexts name. May ask for a password on the terminal.
    pub(crate) fn of(args: &EndpointArgs) -> Result<Self, EndpointError> {
        let AddressArgs {
            admin,
            url,
            ca,
            cert,
            key,
        } = args.address.clone();
        let from_environment = env::var(contexts::URL).ok().filter(|url| !url.is_empty());
        // A login of a context is sent nowhere else.
        let context = match (&args.context, admin.is_none() && url.is_none()) {
            (None, true) if from_environment.is_none() => contexts::find(None)?,
            (Some(name), _) => contexts::find(Some(name.as_str()))?,
            _ => None,
        };
        let place = context.unwrap_or_default();
        let url = match (url, place.url.is_empty()) {
            (Some(url), _) => Some(url),
            (None, false) => Some(base("the url of the context", &place.url)?),
            (None, true) if admin.is_none() => from_environment.map(|url| base(contexts::URL, &url)).transpose()?,
            (None, true) => None,
        };
        let address = AddressArgs {
            admin,
            url,
            ca: ca.or(place.ca),
            cert: cert.or(place.cert),
            key: key.or(place.key),
        };
        let endpoint = Self::at(&address, LIMIT)?;
        let Some(user) = args.user.clone().or(place.user) else {
            return Ok(endpoint);
        };
        if user.contains(':') {
            return Err(trouble(
                "the user of --user contains a colon",
                format!("give only the name with --user, and the password in {PASSWORD} or with --password-file"),
            ));
        }
        let password = match (&args.password_file, &place.password_command) {
            (None, Some(command)) if args.user.is_none() => contexts::password_of_command(command)?,
            (file, _) => password(&user, file.as_deref().or(place.password_file.as_deref()))?,
        };
        let pair = STANDARD.encode(format!("{user}:{password}"));
        Ok(endpoint.logging_in("password", format!("Basic {pair}")))
    }

    /// With a login for each request. Warns if others can read the secret on its way.
    pub(crate) fn logging_in(mut self, secret: &str, authorization: String) -> Self {
        let base = &self.base;
        if base
            .strip_prefix("http://")
            .is_some_and(|address| !is_loopback(address))
        {
            note!(
                "warning: the {secret} goes to {base} without encryption; use a listener with https, if there is one"
            );
        }
        self.authorization = Some(authorization);
        self
    }

    /// Sends a request with a JSON body.
    pub(crate) fn post(&self, path: &str, body: &Json) -> Result<Answer, EndpointError> {
        let mut request = self.agent.post(format!("{}{path}", self.base));
        request = request.header("Content-Type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.read(request.send(body.to_string()))
    }

    /// Sends a PUT with a JSON body, or without a body.
    pub(crate) fn put(&self, path: &str, body: Option<&Json>) -> Result<Answer, EndpointError> {
        let mut request = self.agent.put(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.read(match body {
            Some(body) => request
                .header("Content-Type", "application/json")
                .send(body.to_string()),
            None => request.send_empty(),
        })
    }

    /// Sends a DELETE.
    pub(crate) fn delete(&self, path: &str) -> Result<Answer, EndpointError> {
        let mut request = self.agent.delete(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.read(request.call())
    }

    /// Sends a request without a body.
    pub(crate) fn get(&self, path: &str) -> Result<Answer, EndpointError> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.read(request.call())
    }

    fn read(&self, answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<Answer, EndpointError> {
        let read = answer.and_then(|mut answer| {
            let location = answer.headers().get("location").and_then(|value| value.to_str().ok());
            let location = location.filter(|_| answer.status().is_redirection()).map(str::to_owned);
            let text = answer.body_mut().read_to_string()?;
            Ok((answer.status().as_u16(), location, text))
        });
        match read {
            Ok((code, Some(location), _)) => Err(trouble(
                format!(
                    "the admin endpoint at {self} answers {code} and redirects to {}",
                    quoted(&location)
                ),
                "write the URL to which it redirects, if that is the admin endpoint: redirects are not followed",
            )),
            Ok((_, None, text))
                if text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() > MOST_VALUES =>
            {
                Err(trouble(
                    format!("the answer of the admin endpoint at {self} has more than {MOST_VALUES} values"),
                    "check that this is the admin endpoint of Walferry or Kafka Connect",
                ))
            }
            Ok((code, None, text)) => Ok(Answer {
                code,
                body: serde_json::from_str(&text).unwrap_or_default(),
            }),
            Err(error) => Err(self.silent(&error)),
        }
    }

    /// There was no answer.
    fn silent(&self, error: &ureq::Error) -> EndpointError {
        let is_tls = self.base.starts_with("https:");
        if let Some(TlsFailure::Refused(refusal)) = TlsFailure::of(error) {
            return trouble(
                format!("the admin endpoint at {self} is not trusted: {refusal}"),
                refusal.hint(),
            );
        }
        let hint = match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                "start Walferry, or say with --admin ADDR or --url URL where its admin endpoint is"
            }
            ureq::Error::HostNotFound => "correct the host name in --url",
            ureq::Error::Io(error) if error.to_string().contains("lookup address") => {
                "correct the host name: no name server knows it"
            }
            ureq::Error::Timeout(_) => "check that the host is reachable, and look at the log of the process there",
            ureq::Error::Other(_) | ureq::Error::Io(_) if is_tls => {
                "if an authority of your own has signed the endpoint's certificate, name a file with the authority's certificate with --ca; \
                 if the endpoint asks for a client certificate, name it with --cert and --key; if it does not speak TLS, write http:// in --url"
            }
            _ => "check that this is the admin endpoint of Walferry; if it speaks TLS, write --url https://HOST:PORT",
        };
        trouble(
            format!("the admin endpoint at {self} does not answer: {}", error_text(error)),
            hint,
        )
    }

    /// The endpoint has refused a request about this connector. `of_400` is what to do if the request itself is wrong.
    pub(crate) fn refused(&self, answer: &Answer, connector: &str, of_400: &str) -> EndpointError {
        let code = answer.code;
        let message = answer.body["message"].as_str();
        let hint = match (code, &self.authorization) {
            (401, None) => {
                format!("the endpoint asks for a login: give the user with --user NAME, and the password in {PASSWORD} or with --password-file")
            }
            (401, Some(_)) => format!("check the user of --user, and the password in {PASSWORD} or --password-file"),
            (403, Some(_)) => {
                "log in as a user who may change connectors: the line of this user in `walferry.rest.users.file` must not end with `,read`"
                    .to_owned()
            }
            (404, _) if message.is_none() => "check that --admin or --url leads to the admin endpoint of Walferry".to_owned(),
            (404, _) => match self.connectors() {
                Some(names) if names.is_empty() => "this process has no connector: check --admin or --url".to_owned(),
                Some(names) if names.iter().any(|name| name == connector) => return self.unknown_request(),
                Some(names) => other_names(connector, &names),
                None => "compare the name with the list of GET /connectors".to_owned(),
            },
            (400, _) => of_400.to_owned(),
            _ => "correct what the answer names; the page and the log of the process may say more".to_owned(),
        };
        let message = message.unwrap_or("it gives no reason");
        trouble(
            format!("the admin endpoint at {self} refuses it ({code}): {message}"),
            hint,
        )
    }

    /// The process has the connector, and does not know what is asked of it.
    fn unknown_request(&self) -> EndpointError {
        let is_walferry = self
            .get("/ready")
            .is_ok_and(|answer| answer.body["connectors"].is_array());
        match is_walferry {
            true => trouble(
                format!("the Walferry at {self} does not know this request: it is older than this command"),
                "update it, or use the command of its version",
            ),
            false => trouble(
                format!("{self} is a worker of Kafka Connect, which takes no signals over REST"),
                "write the signal to the connector's signal table or topic",
            ),
        }
    }

    /// The names of the connectors there.
    fn connectors(&self) -> Option<Vec<String>> {
        let answer = self.get("/connectors").ok().filter(|answer| answer.code == 200)?;
        let names = answer.body.as_array()?.iter();
        Some(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
    }
}

/// What to do about a name that no connector has.
fn other_names(connector: &str, names: &[String]) -> String {
    /// More would hide the error.
    const MOST: usize = 10;
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let near = all.iter().find(|name| name.eq_ignore_ascii_case(connector)).copied();
    if let Some(near) = near.or_else(|| near_value(connector, &all)) {
        return format!("did you mean {}?", one_line(near));
    }
    let more = match all.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more (`walferry list`)"),
    };
    if let [only] = &all[..] {
        return format!("its only connector is {}", one_line(only));
    }
    let some = all.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    format!("its connectors are {}{more}", one_line(&some))
}

/// The URL without a slash at its end. `of` says where it was found.
fn base(of: &str, url: &str) -> Result<String, EndpointError> {
    let address = ["http://", "https://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        let hint = match url.contains("://") || url.is_empty() || url.contains(char::is_whitespace) {
            true => "write it as in http://HOST:8083 or https://HOST:8443".to_owned(),
            false => format!(
                "write http:// before it, or https:// if it speaks TLS, as in http://{}",
                one_line(url)
            ),
        };
        return Err(trouble(
            format!("{of} is {}, which is not a URL of http or https", quoted(url)),
            hint,
        ));
    };
    if address.split('/').next().is_some_and(|host| host.contains('@')) {
        return Err(trouble(
            format!("{of} contains a login"),
            format!(
                "other users of this machine can see it: give the user with --user, and the password in {PASSWORD} or with --password-file"
            ),
        ));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Whether what follows the scheme of a URL begins with a name of this machine.
fn is_loopback(address: &str) -> bool {
    let host = address.split('/').next().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Trusts the authorities of `--ca`, or else the system's, and shows the certificate of `--cert`.
fn tls(args: &AddressArgs) -> Result<Https, EndpointError> {
    let trusted = match args.ca.as_deref() {
        Some(file) => certificates("--ca", file)?,
        None => system_authorities(),
    };
    let identity = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Some(identity(cert, key)?),
        _ => None,
    };
    Https::new(trusted, identity.as_ref(), &WORDS).map_err(|error| {
        trouble(
            format!("the files of --cert and --key cannot be used: the first {error}"),
            error.hint("FILE"),
        )
    })
}

fn certificates(option: &str, file: &Path) -> Result<Vec<X509>, EndpointError> {
    keystore::certificates(&read(option, file)?).map_err(|_| {
        trouble(
            format!("the file of {option}, {}, contains no certificate", file.display()),
            "name a file in PEM form: its lines begin with -----BEGIN CERTIFICATE-----",
        )
    })
}

fn identity(cert: &Path, key: &Path) -> Result<ClientIdentity, EndpointError> {
    keystore::identity_pem(&read("--cert", cert)?, &read("--key", key)?, None).map_err(|error| match error {
        StoreError::NoCertificate => trouble(
            format!("the file of --cert, {}, contains no certificate", cert.display()),
            "name a file in PEM form: its lines begin with -----BEGIN CERTIFICATE-----",
        ),
        _ => trouble(
            format!("the file of --key, {}, contains no key that can be read", key.display()),
            "name a file in PEM form, with a key that is not encrypted",
        ),
    })
}

/// A file of at most a mebibyte. It may be a pipe: that is how a shell passes on what a command prints.
fn read(option: &str, file: &Path) -> Result<Vec<u8>, EndpointError> {
    let limited = || {
        let mut bytes = Vec::new();
        File::open(file)?.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > MOST_FILE_BYTES {
            true => Err(io::Error::other("it is larger than 1 MiB")),
            false => Ok(bytes),
        }
    };
    limited().map_err(|error| {
        trouble(
            format!("the file of {option}, {}, cannot be read: {error}", file.display()),
            "correct the path, and let the user that runs this command read the file",
        )
    })
}

/// The user's password: from a file, from the environment, or from the terminal.
fn password(user: &str, file: Option<&Path>) -> Result<String, EndpointError> {
    if let Some(file) = file {
        let text = String::from_utf8_lossy(&read("--password-file", file)?).into_owned();
        let first = text.lines().next().unwrap_or_default();
        return match first.is_empty() {
            false => Ok(first.to_owned()),
            true => Err(trouble(
                format!("the first line of {} is empty", file.display()),
                "write the password in the first line of the file",
            )),
        };
    }
    if let Ok(password) = env::var(PASSWORD) {
        return Ok(password);
    }
    let missing = |what: String| {
        trouble(
            what,
            format!("set {PASSWORD}, or name a file with the password with --password-file"),
        )
    };
    if !io::stdin().is_terminal() {
        return Err(missing(format!("there is no password for user {user:?}")));
    }
    ask(user).map_err(|error| missing(format!("the password of user {user:?} cannot be read: {error}")))
}

/// Asks for a password on the terminal, which does not show it.
fn ask(user: &str) -> io::Result<String> {
    /// Shows again what is typed, whatever happens.
    struct Hidden(Termios);
    impl Drop for Hidden {
        fn drop(&mut self) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
            note!("");
        }
    }
    output::stderr().log(format!("Password of {user}: ").into_bytes());
    let attributes = tcgetattr(io::stdin())?;
    let mut silent = attributes.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    let hidden = Hidden(attributes);
    tcsetattr(io::stdin(), OptionalActions::Now, &silent)?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    drop(hidden);
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// All but what stands for itself in a part of a URL: RFC 3986 2.3.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A part of a URL, percent-encoded.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// A part of a URL, percent-decoded. `None` if two hexadecimal digits do not follow each percent sign.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut escapes = text.split('%').skip(1);
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let is_valid = escapes.all(|digits| is_digit(digits.as_bytes().first()) && is_digit(digits.as_bytes().get(1)));
    is_valid.then(|| percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn parts_of_urls_are_encoded_and_decoded() {
        let cases = [
            ("ops:secret", Some("ops:secret")),
            ("ops:a%40b%2Fc%25d%3a", Some("ops:a@b/c%d:")),
            ("ops:p%C3%A9", Some("ops:pé")),
            ("ops:100%", None),
            ("ops:%zz", None),
            ("ops:%+1", None),
            ("%1%23", None),
        ];
        for (written, meant) in cases {
            assert_eq!(decoded(written).as_deref(), meant.map(str::as_bytes), "{written}");
        }
        assert_eq!(encoded("a-b.c_d~e/f é+%"), "a-b.c_d~e%2Ff%20%C3%A9%2B%25");
    }

    #[test]
    fn a_password_comes_from_the_first_line_of_a_file_that_is_not_endless() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "s3 cret\nmore\n").unwrap();
        assert_eq!(password("ops", Some(&file)).unwrap(), "s3 cret");
        let endless = password("ops", Some(Path::new("/dev/zero"))).unwrap_err();
        assert!(endless.what.contains("larger than 1 MiB"), "{endless:?}");
    }

    #[test]
    fn a_url_has_a_scheme_and_no_login() {
        for (url, expected) in [
            ("http://db:8083", Some("http://db:8083")),
            (
                "https://connect.internal/walferry/",
                Some("https://connect.internal/walferry"),
            ),
            ("db:8083", None),
            ("https://", None),
            ("ftp://db", None),
            ("https://ops:s3cret@db:8443", None),
        ] {
            let said = base("--url", url).map_err(|trouble| format!("{trouble:?}"));
            if let Err(said) = &said {
                assert!(!said.contains("s3cret"), "{said}");
            }
            assert_eq!(said.as_deref().ok(), expected, "{url}");
        }
    }

    #[test]
    fn a_url_without_a_scheme_is_shown_with_one() {
        for (url, hint) in [
            ("db:8083", "as in http://db:8083"),
            ("ftp://db", "http://HOST:8083 or https://HOST:8443"),
            ("", "http://HOST:8083 or https://HOST:8443"),
        ] {
            let said = base("--url", url).unwrap_err();
            assert!(said.hint.ends_with(hint), "{url}: {said:?}");
        }
    }

    #[test]
    fn of_a_name_that_no_connector_has_the_one_that_is_meant_is_shown_or_some_of_all() {
        let names: Vec<String> = (1..=12).map(|n| format!("orders-{n:02}-{}", "x".repeat(n))).collect();
        assert_eq!(other_names("ORDERS-03-xxx", &names), "did you mean orders-03-xxx?");
        assert_eq!(other_names("shp", &["shop".to_owned()]), "did you mean shop?");
        assert_eq!(
            other_names("billing", &["shop".to_owned()]),
            "its only connector is shop"
        );
        let hint = other_names("billing", &names);
        assert!(
            hint.starts_with("its connectors are orders-01-x, orders-02-xx, "),
            "{hint}"
        );
        assert!(hint.ends_with(" and 2 more (`walferry list`)"), "{hint}");
    }

    #[test]
    fn a_password_stays_on_this_machine_only_with_a_loopback_address() {
        for host in [
            "127.0.0.1:8083",
            "localhost",
            "localhost:8083/walferry",
            "[::1]:8083",
            "[::1]",
            "127.0.0.2",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["db:8083", "10.0.0.1:8083", "localhost.example:80", "[fe80::1]:8083"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_password_file_has_it_in_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "s3cret with spaces \nsecond line\n").unwrap();
        assert_eq!(password("ops", Some(&file)).unwrap(), "s3cret with spaces ");
        fs::write(&file, "\n").unwrap();
        assert!(password("ops", Some(&file)).unwrap_err().what.contains("is empty"));
        let missing = folder.path().join("missing");
        assert!(
            password("ops", Some(&missing))
                .unwrap_err()
                .what
                .contains("--password-file")
        );
    }
}
