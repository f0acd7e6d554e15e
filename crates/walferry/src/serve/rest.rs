//! The settings of the REST API, from the worker file.

use std::{
    env, fs,
    net::{IpAddr, ToSocketAddrs as _},
    os::unix::fs::MetadataExt as _,
};

use tracing::warn;
use walferry_admin::{AccessList, BoundListener, Digested, HeaderRule, Resources, RestSettings, StoredPassword, User};
use walferry_config::{Jaas, RestSection, Worker, java_properties, shown_text};
use walferry_diagnosis::Kind;

use crate::{
    error::Error,
    serve::listen::{self, ListenerSettings},
};

/// Reads the files that the worker file names.
pub(crate) fn settings(worker: &Worker) -> Result<RestSettings, Error> {
    let section = &worker.rest_api;
    let headers = HeaderRule::parse_all(&section.response_headers).map_err(|why| {
        let hint = "write rules such as `add X-Frame-Options: DENY`, with commas between them";
        wrong(format!("response.http.headers.config: {why}"), hint)
    })?;
    Ok(RestSettings {
        topic_tracking: section.topic_tracking,
        topic_tracking_reset: section.topic_tracking_reset,
        origins: section.allow_origin.clone(),
        origin_methods: section.allow_methods.clone(),
        headers,
        doors: doors(section)?,
        ..RestSettings::default()
    })
}

fn wrong(what: String, hint: impl Into<String>) -> Error {
    Error::new(Kind::Configuration, "the admin endpoint did not start").cause(what, Some(hint.into()))
}

/// Connect's `worker_id`: the host and the port at which other workers reach this one. The host is `rest.advertised.host.name`, or else that
/// of the listener as it was written (`hosts`), or else the address of this machine. The port is `rest.advertised.port`, or else that of the
/// listener.
pub(crate) fn worker_id(section: &RestSection, doors: &[BoundListener], hosts: &[Option<String>]) -> String {
    let listener = advertised_listener(section, doors, hosts);
    let set = section.advertised_host.as_deref().map(str::trim);
    let host = match set.filter(|host| !host.is_empty()) {
        Some(host) => host.to_owned(),
        None => listener
            .and_then(|(_, host)| host.clone())
            .unwrap_or_else(address_of_this_machine),
    };
    let bound = listener.and_then(|(door, _)| door.listener.local_addr().ok());
    let port = section.advertised_port.or(bound.map(|address| address.port()));
    let port = port.unwrap_or(listen::DEFAULT.port());
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The listener that others are told. As in Connect, the first one of the scheme that is asked for, or else the first one without TLS.
fn advertised_listener<'a>(
    section: &RestSection,
    doors: &'a [BoundListener],
    hosts: &'a [Option<String>],
) -> Option<(&'a BoundListener, &'a Option<String>)> {
    let all = doors.iter().zip(hosts);
    let public = all.filter(|(door, _)| door.resources != Resources::OnlyAdmin);
    let is_tls = section
        .advertised_listener
        .as_deref()
        .is_some_and(|scheme| scheme.trim().eq_ignore_ascii_case("https"));
    let first_of = |is_tls: bool| public.clone().find(|(door, _)| door.tls.is_some() == is_tls);
    first_of(is_tls).or_else(|| first_of(!is_tls))
}

/// The URL at which other workers reach this one.
pub(crate) fn worker_url(section: &RestSection, doors: &[BoundListener], hosts: &[Option<String>]) -> String {
    let is_tls = advertised_listener(section, doors, hosts).is_some_and(|(door, _)| door.tls.is_some());
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{}", worker_id(section, doors, hosts))
}

/// The host at which others would be told to reach a worker, if only this machine can.
pub(crate) fn loopback_host(section: &RestSection, wanted: &[ListenerSettings]) -> Option<String> {
    let set = section
        .advertised_host
        .as_deref()
        .map(str::trim)
        .filter(|host| !host.is_empty());
    let host = match set {
        Some(host) => host,
        None => wanted
            .iter()
            .find(|wanted| wanted.resources != Resources::OnlyAdmin)?
            .host
            .as_deref()?,
    };
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback.then(|| host.to_owned())
}

/// The names of the endpoint that the operator or the system gives: requests for them are answered without a login.
pub(crate) fn host_names(section: &RestSection, hosts: &[Option<String>]) -> Vec<String> {
    let advertised = section.advertised_host.iter().chain(hosts.iter().flatten());
    let given = advertised
        .chain(&section.allowed_hosts)
        .map(|name| name.trim().to_owned());
    let table = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let machine = names_of_this_machine(&name_of_this_machine(), &table);
    given.chain(machine).filter(|name| !name.is_empty()).collect()
}

/// The name of this machine, and those that stand beside it in `/etc/hosts`, such as its name with the domain.
fn names_of_this_machine(name: &str, table: &str) -> Vec<String> {
    if name.is_empty() {
        return Vec::new();
    }
    let mut names = vec![name.to_owned()];
    for line in table.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let listed: Vec<&str> = line.split_whitespace().skip(1).collect();
        if listed.iter().any(|listed| listed.eq_ignore_ascii_case(name)) {
            names.extend(listed.into_iter().map(ToOwned::to_owned));
        }
    }
    names
}

fn name_of_this_machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The address to which the name of this machine resolves. As in Java, IPv4 is preferred.
fn address_of_this_machine() -> String {
    let found = (name_of_this_machine().as_str(), 0)
        .to_socket_addrs()
        .map(Iterator::collect::<Vec<_>>);
    let found = found.unwrap_or_default();
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address.map_or_else(|| listen::DEFAULT.ip().to_string(), |address| address.ip().to_string())
}

fn doors(section: &RestSection) -> Result<AccessList, Error> {
    let file = match (&section.users_file, section.basic_auth) {
        (Some(file), _) => Some(file.clone()),
        (None, true) => Some(jaas_file()?),
        (None, false) => None,
    };
    // Connect's own file has plain passwords.
    let is_connects = section.users_file.is_none();
    let users = match &file {
        Some(file) => {
            tell_if_open_to_others(file);
            users(file, is_connects)?
        }
        None => Vec::new(),
    };
    let tokens = match &section.tokens_file {
        Some(file) => {
            tell_if_open_to_others(file);
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
    // As in Java, the last one counts.
    let jaas = options
        .split_whitespace()
        .filter_map(|option| option.strip_prefix("-Djava.security.auth.login.config="))
        .next_back();
    let jaas = jaas.ok_or_else(|| missing("nothing says who may log in"))?;
    let text = read(jaas)?;
    let section = Jaas::section(&text, "KafkaConnect");
    let section = section.map_err(|error| missing(&format!("the file {jaas}, or a section in it, {error}")))?;
    let section = section.ok_or_else(|| missing(&format!("{jaas} has no section KafkaConnect")))?;
    if section.module != "PropertyFileLoginModule" {
        return Err(missing(&format!(
            "the section KafkaConnect of {jaas} names another login module than PropertyFileLoginModule"
        )));
    }
    let file = section.options.get("file").cloned();
    file.ok_or_else(|| missing(&format!("the section KafkaConnect of {jaas} names no file")))
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
            Some(Digested::of(password).into())
        } else {
            stored(password.trim())
        };
        let password = password.filter(|_| !text.trim().is_empty()).ok_or_else(|| {
            let hint = "write what `htpasswd -nB -C 10 NAME` prints, with 5 to 15 rounds, or a password";
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

/// Warns if accounts besides the file's owner and group can read the passwords, or add users.
fn tell_if_open_to_others(file: &str) {
    let Ok(mode) = fs::metadata(file).map(|found| found.mode() & 0o777) else {
        return;
    };
    if let Some(what) = open_to_others(mode) {
        warn!(
            file = ?file,
            mode = %format_args!("{mode:04o}"),
            hint = "chmod it to 0600, or to 0640 with a group of which only Walferry is a member",
            "other users of this machine can {what} the file that says who may use the REST API"
        );
    }
}

/// What others than the owner can do with a file that they should not.
const fn open_to_others(mode: u32) -> Option<&'static str> {
    match mode {
        mode if mode & 0o022 != 0 => Some("change"),
        mode if mode & 0o004 != 0 => Some("read"),
        _ => None,
    }
}

/// A password of Walferry's own file. What begins as a hash is one.
fn stored(text: &str) -> Option<StoredPassword> {
    match ["$2y$", "$2b$", "$2a$"].iter().any(|version| text.starts_with(version)) {
        true => StoredPassword::bcrypt(text),
        false => digested(text).map(StoredPassword::from),
    }
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

    fn names(text: &str, is_connects: bool) -> Vec<(String, StoredPassword, bool)> {
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
        let runtime = walferry_worker::process::runtime().expect("a runtime");
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
                let section = RestSection {
                    advertised_host: set.map(ToOwned::to_owned),
                    advertised_port,
                    ..RestSection::default()
                };
                let hosts = [Some("admin".to_owned()), host.map(ToOwned::to_owned)];
                assert_eq!(worker_id(&section, &doors, &hosts), expected);
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
    fn the_names_of_the_endpoint_are_given_by_the_operator_and_the_system() {
        let section = RestSection {
            advertised_host: Some(" proxy ".into()),
            allowed_hosts: vec!["connect.example".into()],
            ..RestSection::default()
        };
        let names = host_names(&section, &[Some("0.0.0.0".into()), None]);
        assert_eq!(names[..3], ["proxy", "0.0.0.0", "connect.example"]);
        let table = "127.0.0.1 localhost\n10.1.2.3\tdb-1.lan DB-1 # db-1 evil.example\n10.9.9.9 other\n# 1 db-1 x\n";
        assert_eq!(names_of_this_machine("db-1", table), ["db-1", "db-1.lan", "DB-1"]);
        assert!(names_of_this_machine("", table).is_empty());
    }

    #[test]
    fn a_line_of_htpasswd_is_a_user_and_a_malformed_hash_is_no_password() {
        let hash = "$2y$08$abcdefghijklmnopqrstuu5o6c51BSX/KPQ0o000X4ljwXauTuVtC";
        let text = format!("ops:{hash}\neyes={hash},read\n");
        let stored = StoredPassword::bcrypt(hash).expect("it is well formed");
        let expected = [
            ("ops".to_owned(), stored.clone(), true),
            ("eyes".to_owned(), stored, false),
        ];
        assert_eq!(names(&text, false), expected);
        // In Connect's own file it is the password itself.
        let of_connect = names(&format!("ops={hash}"), true);
        assert_eq!(of_connect[0].1, Digested::of(hash).into());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        for wrong in [&hash[..59], "$2y$08$", &hash.replace("$08$", "$31$")] {
            fs::write(&file, format!("ops={wrong}\n")).unwrap();
            let error = format!("{:?}", users(file.to_str().unwrap(), false).unwrap_err());
            assert!(
                error.contains("no usable password in line 1") && !error.contains(wrong),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_with_passwords_is_for_its_owner_and_its_group() {
        for (mode, expected) in [
            (0o600, None),
            (0o400, None),
            (0o640, None),
            (0o440, None),
            (0o644, Some("read")),
            (0o660, Some("change")),
            (0o602, Some("change")),
        ] {
            assert_eq!(open_to_others(mode), expected, "{mode:o}");
        }
    }

    #[test]
    fn users_are_read_as_java_reads_properties_and_the_last_password_counts() {
        let text = "# people\nops=old\nops=s3\\=cr:et\ntwo\\ words : p\\u00e9\ntail=x,read\n";
        let of = |name: &str, password: &str, writes| (name.to_owned(), Digested::of(password).into(), writes);
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
