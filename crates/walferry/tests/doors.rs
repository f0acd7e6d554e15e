//! Who gets in, and what others can read: names of hosts, logins, the data directory, and passwords for servers that may be none. The real
//! program runs; no server is needed.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

struct Worker {
    child: Child,
    log: std::path::PathBuf,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    /// Starts a worker with these lines in its file, and waits until it answers at a port.
    fn start(folder: &Path, port: u16, lines: &[String]) -> Self {
        fs::write(folder.join("worker.properties"), lines.join("\n")).unwrap();
        let log = folder.join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_walferry"))
            .args(["run", "--worker", "worker.properties", "--data-dir", "data"])
            .args(["--bootstrap-servers", "127.0.0.1:1"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut worker = Self { child, log };
        let deadline = Instant::now() + Duration::from_secs(120);
        while ask(port, "GET /live HTTP/1.1\r\nHost: localhost\r\n", "").is_none() {
            assert!(
                worker.child.try_wait().unwrap().is_none(),
                "it has ended:\n{}",
                worker.log()
            );
            assert!(Instant::now() < deadline, "it does not answer:\n{}", worker.log());
            thread::sleep(Duration::from_millis(50));
        }
        worker
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The status code and the text of an answer. `None` without one.
fn ask(port: u16, head: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let length = body.len();
    let request =
        format!("{head}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let code = text.split(' ').nth(1)?.parse().ok()?;
    Some((code, text))
}

fn code(port: u16, head: &str) -> u16 {
    ask(port, head, "").expect("an answer").0
}

/// A password, as a header.
fn basic(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters = text.as_bytes().chunks(3).flat_map(|bytes| {
        let number = bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
        (0..4).map(move |place| match place <= bytes.len() {
            true => char::from(LETTERS[(number >> (18 - 6 * place) & 63) as usize]),
            false => '=',
        })
    });
    format!("Authorization: Basic {}\r\n", letters.collect::<String>())
}

#[test]
fn without_a_login_no_name_that_a_web_page_could_have_is_answered_on_any_address() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let lines = [
        format!("listeners=http://0.0.0.0:{port}"),
        "walferry.rest.allowed.hosts=connect.internal".to_owned(),
        "rest.advertised.host.name=worker-7".to_owned(),
    ];
    let _worker = Worker::start(folder.path(), port, &lines);
    let of = |hosts: &str| code(port, &format!("GET /connectors HTTP/1.1\r\n{hosts}"));
    for host in [
        "localhost",
        "127.0.0.1",
        "[::1]",
        "10.1.2.3",
        "connect.internal",
        "worker-7",
        "WORKER-7",
    ] {
        assert_eq!(of(&format!("Host: {host}:{port}\r\n")), 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "worker-7.evil.example",
    ] {
        let (code, text) = ask(
            port,
            &format!("GET /connectors HTTP/1.1\r\nHost: {host}:{port}\r\n"),
            "",
        )
        .unwrap();
        assert_eq!(code, 403, "{host}");
        assert!(text.contains("walferry.rest.allowed.hosts"), "{text}");
        let origin = format!("Host: {host}:{port}\r\nOrigin: http://{host}:{port}\r\n");
        assert_eq!(of(&origin), 403, "{host}");
    }
    let two = format!("Host: localhost:{port}\r\nHost: evil.example:{port}\r\n");
    assert_eq!(of(&two), 400);
}

#[test]
fn who_logs_in_fails_or_changes_something_is_in_the_log_with_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    // `htpasswd -nbB -C 8 ops sesame`
    let salted = "ops:$2y$08$abcdefghijklmnopqrstuu5o6c51BSX/KPQ0o000X4ljwXauTuVtC\n";
    fs::write(&users, format!("{salted}eyes=look,read\n")).unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o644)).unwrap();
    let port = free_port();
    let lines = [
        format!("listeners=http://127.0.0.1:{port}"),
        "walferry.rest.users.file=users".to_owned(),
    ];
    let worker = Worker::start(folder.path(), port, &lines);
    let of = |request: &str, login: &str| code(port, &format!("{request} HTTP/1.1\r\nHost: localhost\r\n{login}"));
    assert_eq!(of("GET /connectors", ""), 401);
    assert!(
        !worker.log().contains("has failed"),
        "a browser asks without a password first"
    );
    assert_eq!(of("GET /connectors", &basic("ops:open barley")), 401);
    assert_eq!(of("GET /connectors", &basic("s3cret-as-a-name:x")), 401);
    assert_eq!(of("GET /connectors", &basic("ops:sesame")), 200);
    assert_eq!(of("DELETE /connectors/none%0Aforged", &basic("ops:sesame")), 404);
    assert_eq!(of("DELETE /connectors/none", &basic("eyes:look")), 403);
    let log = worker.log();
    let line = |parts: &[&str]| {
        let found = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line has {parts:?}:\n{log}");
    };
    line(&["a login to the admin endpoint has failed", "127.0.0.1", "ops"]);
    line(&["a login to the admin endpoint has failed", "(unknown)"]);
    line(&["has logged in", "127.0.0.1", "ops"]);
    line(&[
        "changes something",
        "DELETE",
        "/connectors/none%0Aforged",
        "404",
        "ops",
        "127.0.0.1",
    ]);
    line(&["may only read has tried", "eyes", "127.0.0.1"]);
    line(&["other users of this machine can read", "0644"]);
    for secret in ["sesame", "barley", "s3cret-as-a-name", "look,", "$2y$"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}

#[test]
fn the_data_directory_is_for_its_owner_alone_also_an_older_one() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for is_there in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let old = data.join("orders/offset.json");
        if is_there {
            fs::create_dir_all(data.join("orders")).unwrap();
            fs::write(data.join("orders/lock"), "").unwrap();
            fs::write(&old, "{}").unwrap();
            set(&data, 0o755);
            set(&data.join("orders"), 0o755);
            set(&old, 0o644);
        }
        let port = free_port();
        let worker = Worker::start(folder.path(), port, &[format!("listeners=http://127.0.0.1:{port}")]);
        let mut waiting = vec![data.clone()];
        let mut files = 0;
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                assert_eq!(mode(&path), 0o700, "{}", path.display());
                waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                files += 1;
            }
        }
        // Those of the older directory, and the lock of the worker.
        assert_eq!(files, if is_there { 3 } else { 1 });
        assert_eq!(
            worker.log().contains("were open to other users"),
            is_there,
            "{}",
            worker.log()
        );
    }
}

/// Something that answers like a Postgres without TLS that asks for a way of logging in. Returns what it gets as an answer to that.
fn fake_postgres(request: &'static [u8]) -> (u16, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, answers) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            // The request for TLS has eight bytes.
            let Ok(8) = stream.read(&mut buffer) else { continue };
            stream.write_all(b"N").unwrap();
            let _ = stream.read(&mut buffer);
            stream.write_all(request).unwrap();
            let got = stream.read(&mut buffer).unwrap_or(0);
            let _ = sender.send(buffer[..got].to_vec());
        }
    });
    (port, answers)
}

#[test]
fn an_unverified_server_does_not_get_the_password_unless_a_property_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (clear, md5): (&[u8], &[u8]) = (b"R\0\0\0\x08\0\0\0\x03", b"R\0\0\0\x0c\0\0\0\x05salt");
    for (request, method) in [(clear, "password"), (md5, "md5")] {
        for allowed in [false, true] {
            let (port, answers) = fake_postgres(request);
            let mut config = json!({"name": "c", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "plugin.name": "pgoutput", "database.hostname": "127.0.0.1", "database.port": port.to_string(),
                "database.user": "u", "database.dbname": "d", "topic.prefix": "t", "database.password": "MITMSECRET"});
            if allowed {
                config["database.requireAuth"] = method.into();
            }
            let file = folder.path().join("c.json");
            fs::write(&file, config.to_string()).unwrap();
            let checked = Command::new(env!("CARGO_BIN_EXE_walferry"))
                .args([
                    "check",
                    "--bootstrap-servers",
                    "127.0.0.1:1",
                    "--data-dir",
                    "data",
                    "--config",
                ])
                .arg(&file)
                .current_dir(folder.path())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&checked.stdout) + String::from_utf8_lossy(&checked.stderr);
            let answer = answers.recv_timeout(Duration::from_secs(60)).expect("it has logged in");
            assert_eq!(answer.first() == Some(&b'p'), allowed, "{method}: {answer:?}\n{text}");
            assert_eq!(
                text.contains(&format!("`database.requireAuth={method}`")),
                !allowed,
                "{text}"
            );
            assert!(!text.contains("MITMSECRET"), "{text}");
        }
    }
}

/// A writer chooses the server, and what of the configuration it is sent: nobody but the operator can keep a value from them.
#[test]
fn a_writer_can_send_what_a_listed_provider_returns_to_a_server_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secrets.properties");
    fs::write(&secret, "password=LISTED-SECRET\n").unwrap();
    let reference = format!("${{file:{}:password}}", secret.display());
    for is_listed in [true, false] {
        let (server, answers) = fake_postgres(b"R\0\0\0\x08\0\0\0\x03");
        let port = free_port();
        let mut lines = vec![format!("listeners=http://127.0.0.1:{port}")];
        if is_listed {
            lines.push("config.providers=file".into());
            lines.push("config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider".into());
        }
        let _worker = Worker::start(folder.path(), port, &lines);
        let config = json!({"name": "c", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput", "database.hostname": "127.0.0.1", "database.port": server.to_string(),
            "database.user": "u", "database.dbname": "d", "topic.prefix": "t", "database.password": reference,
            "database.requireAuth": "password"});
        let put = "PUT /connector-plugins/PostgresConnector/config/validate HTTP/1.1\r\nHost: localhost\r\n";
        let (code, text) = ask(port, put, &config.to_string()).expect("an answer");
        assert!(!text.contains("LISTED-SECRET"), "{text}");
        match is_listed {
            true => {
                let sent = answers.recv_timeout(Duration::from_secs(60)).expect("it has logged in");
                assert!(String::from_utf8_lossy(&sent).contains("LISTED-SECRET"), "{sent:?}");
            }
            false => {
                assert_eq!(code, 500, "{text}");
                assert!(answers.try_recv().is_err(), "nothing is sent");
            }
        }
    }
}

#[test]
fn a_crash_leaves_no_memory_behind_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let worker = Worker::start(folder.path(), port, &[format!("listeners=http://127.0.0.1:{port}")]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", worker.child.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(
        core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(),
        ["0", "0"],
        "{core}"
    );
}
