//! The settings of the REST API, from the worker file.

use std::{env, fs, net::ToSocketAddrs as _};

use walferry_admin::{AccessList, BoundListener, Digested, HeaderRule, Resources, RestSettings, User};
use walferry_config::{RestSection, Worker, java_properties, shown_text};
use walferry_diagnosis::Kind;

use crate::{error::Error, listen};

/// Reads the files that the worker file names.
pub(crate) fn settings(worker: &Worker) -> Result<RestSettings, Error> {
    let rest = &worker.rest;
    let headers = HeaderRule::parse_all(&rest.response_headers).map_err(|why| {
        let hint = "write rules such as `add X-Frame-Options: DENY`, with commas between them";
        wrong(format!("response.http.headers.config: {why}"), hint)
    })?;
    Ok(RestSettings {
        topic_tracking: rest.topic_tracking,
        topic_tracking_reset: rest.topic_tracking_reset,
        origins: rest.allow_origin.clone(),
        origin_methods: rest.allow_methods.clone(),
        headers,
        doors: doors(rest)?,
        ..RestSettings::default()
    })
}

fn wrong(what: String, hint: impl Into<String>) -> Error {
    Error::new(Kind::Configuration, "the admin endpoint did not start").cause(what, Some(hint.into()))
}

/// Connect's `worker_id`: the host and the port at which other workers reach this one. The host is `rest.advertised.host.name`, or else that
/// of the listener as it was written (`hosts`), or else the address of this machine. The port is `rest.advertised.port`, or else that of the
/// listener.
pub(crate) fn worker_id(rest: &RestSection, doors: &[BoundListener], hosts: &[Option<String>]) -> String {
    let all = doors.iter().zip(hosts);
    let public = all.filter(|(door, _)| door.resources != Resources::OnlyAdmin);
    // As in Connect, the first listener of the scheme that is asked for, or else the first one without TLS.
    let is_tls = rest
        .advertised_listener
        .as_deref()
        .is_some_and(|scheme| scheme.trim().eq_ignore_ascii_case("https"));
    let first_of = |is_tls: bool| public.clone().find(|(door, _)| door.tls.is_some() == is_tls);
    let listener = first_of(is_tls).or_else(|| first_of(!is_tls));
    let set = rest.advertised_host.as_deref().map(str::trim);
    let host = match set.filter(|host| !host.is_empty()) {
        Some(host) => host.to_owned(),
        None => listener
            .and_then(|(_, host)| host.clone())
            .unwrap_or_else(address_of_this_machine),
    };
    let bound = listener.and_then(|(door, _)| door.listener.local_addr().ok());
    let port = rest.advertised_port.or(bound.map(|address| address.port()));
    let port = port.unwrap_or(listen::DEFAULT.port());
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The address to which the name of this machine resolves. As in Java, IPv4 is preferred.
fn address_of_this_machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let found = (name.trim(), 0).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let found = found.unwrap_or_default();
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address.map_or_else(|| listen::DEFAULT.ip().to_string(), |address| address.ip().to_string())
}

fn doors(rest: &RestSection) -> Result<AccessList, Error> {
    let file = match (&rest.users_file, rest.basic_auth) {
        (Some(file), _) => Some(file.clone()),
        (None, true) => Some(jaas_file()?),
        (None, false) => None,
    };
    // Connect's own file has plain passwords.
    let is_connects = rest.users_file.is_none();
    let users = match &file {
        Some(file) => users(file, is_connects)?,
        None => Vec::new(),
    };
    let tokens = match &rest.tokens_file {
        Some(file) => {
            let text = read(file)?;
            let lines = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            let tokens = lines.map(|line| {
                digested(line).ok_or_else(|| {
                    wrong(
                        format!("{file} has a line with sha256: and no 64 hexadecimal digits"),
                        "take what `sha256sum` prints",
                    )
                })
            });
            tokens.collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    if !tokens.is_empty() && users.is_empty() {
        let hint = "name users in walferry.rest.users.file, too, or leave the tokens out";
        return Err(wrong(
            "walferry.rest.tokens.file is set, and nobody has a password: the tokens would open what is open".into(),
            hint,
        ));
    }
    Ok(AccessList { users, tokens })
}

/// The file with users and passwords that Connect uses: KAFKA_OPTS names a JAAS file, whose section KafkaConnect names this file.
fn jaas_file() -> Result<String, Error> {
    const HINT: &str = "name the file with the users in walferry.rest.users.file, or let KAFKA_OPTS have \
                        -Djava.security.auth.login.config=FILE as for Kafka Connect";
    let missing = |what: &str| wrong(format!("rest.extension.classes asks for a log-in, and {what}"), HINT);
    let options = env::var("KAFKA_OPTS").unwrap_or_default();
    let jaas = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("-Djava.security.auth.login.config="));
    let jaas = jaas.ok_or_else(|| missing("nothing says who may log in"))?;
    let text = read(jaas)?;
    let section = text
        .split_once("KafkaConnect")
        .and_then(|(_, rest)| rest.split_once('{'))
        .and_then(|(_, rest)| rest.split_once('}'));
    let (section, _) = section.ok_or_else(|| missing(&format!("{jaas} has no section KafkaConnect")))?;
    if !section.contains("PropertyFileLoginModule") {
        return Err(missing(&format!(
            "the section KafkaConnect of {jaas} names another login module than PropertyFileLoginModule"
        )));
    }
    let file = section.split_once("file").and_then(|(_, rest)| rest.split('"').nth(1));
    file.map(ToOwned::to_owned)
        .ok_or_else(|| missing(&format!("the section KafkaConnect of {jaas} names no file")))
}

fn users(file: &str, is_connects: bool) -> Result<Vec<User>, Error> {
    let text = read(file)?;
    let lines = java_properties(&text).map_err(|error| {
        let hint = "write one NAME=PASSWORD on each line, and two backslashes for one";
        wrong(format!("{} {error}", shown_text(file)), hint)
    })?;
    let mut users: Vec<User> = Vec::new();
    for (number, name, text) in lines {
        let (password, writes) = match text.trim_end().strip_suffix(",read") {
            Some(password) if !is_connects => (password, false),
            _ => (text.as_str(), true),
        };
        let password = if is_connects {
            Some(Digested::of(password))
        } else {
            digested(password.trim())
        };
        let password = password.filter(|_| !text.trim().is_empty()).ok_or_else(|| {
            let hint = "write a password, or sha256: and what `printf PASSWORD | sha256sum` prints";
            wrong(format!("{file} has no usable password in line {number}"), hint)
        })?;
        // As in Java, the last one counts.
        users.retain(|known| known.name != name);
        users.push(User { name, password, writes });
    }
    // Connect would allow everybody.
    if users.is_empty() {
        return Err(wrong(
            format!("{file} names no user"),
            "write one NAME=PASSWORD on each line",
        ));
    }
    Ok(users)
}

fn digested(text: &str) -> Option<Digested> {
    match text.strip_prefix("sha256:") {
        Some(digits) => Digested::from_hex(digits.trim()),
        None => Some(Digested::of(text)),
    }
}

fn read(file: &str) -> Result<String, Error> {
    fs::read_to_string(file).map_err(|error| {
        let hint = "mend the path, and let the user that Walferry runs as read it";
        wrong(format!("{} cannot be read: {error}", shown_text(file)), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, is_connects: bool) -> Vec<(String, Digested, bool)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        fs::write(&file, text).unwrap();
        let users = users(file.to_str().unwrap(), is_connects).unwrap();
        users
            .into_iter()
            .map(|user| (user.name, user.password, user.writes))
            .collect()
    }

    #[test]
    fn a_worker_is_named_by_host_and_port_as_in_connect() {
        let runtime = crate::process::runtime().expect("a runtime");
        runtime.block_on(async {
            let open = |resources| async move {
                let listener = walferry_admin::bind(([127, 0, 0, 1], 0).into()).await.expect("a port");
                BoundListener {
                    listener,
                    tls: None,
                    resources,
                }
            };
            let doors = [open(Resources::OnlyAdmin).await, open(Resources::All).await];
            let port = doors[1].listener.local_addr().expect("an address").port();
            let cases = [
                (None, None, Some("connect-1"), format!("connect-1:{port}")),
                (None, Some(9), Some("connect-1"), "connect-1:9".to_owned()),
                (Some("proxy"), None, Some("connect-1"), format!("proxy:{port}")),
                (Some(" "), Some(9), Some("0.0.0.0"), "0.0.0.0:9".to_owned()),
                (Some("proxy"), Some(9), None, "proxy:9".to_owned()),
                (None, None, Some("::1"), format!("[::1]:{port}")),
            ];
            for (set, advertised_port, host, expected) in cases {
                let rest = RestSection {
                    advertised_host: set.map(ToOwned::to_owned),
                    advertised_port,
                    ..RestSection::default()
                };
                let hosts = [Some("admin".to_owned()), host.map(ToOwned::to_owned)];
                assert_eq!(worker_id(&rest, &doors, &hosts), expected);
            }
            // Without a host, it is the address of this machine.
            let found = worker_id(&RestSection::default(), &doors, &[None, None]);
            let (host, found_port) = found.rsplit_once(':').expect("host and port");
            assert!(
                host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok(),
                "{found}"
            );
            assert_eq!(found_port, port.to_string());
        });
    }

    #[test]
    fn users_are_read_as_java_reads_properties_and_the_last_password_counts() {
        let text = "# people\nops=old\nops=s3\\=cr:et\ntwo\\ words : p\\u00e9\ntail=x,read\n";
        let of = |name: &str, password: &str, writes| (name.to_owned(), Digested::of(password), writes);
        let expected = [
            of("ops", "s3=cr:et", true),
            of("two words", "pé", true),
            of("tail", "x,read", true),
        ];
        assert_eq!(names(text, true), expected, "Connect's file");
        let expected = [
            of("ops", "s3=cr:et", true),
            of("two words", "pé", true),
            of("tail", "x", false),
        ];
        assert_eq!(names(text, false), expected, "Walferry's own");
    }
}
