//! Listeners of a worker file, with TLS and client certificates, as `curl` reaches them. No server is needed: a worker without connectors
//! answers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use walferry_testkit::certificates::{Certificate, Key, Purpose, Wish};
use walferry_testkit::servers::{PATIENCE, free_port};

/// Certificates of one authority, in files.
struct Pki {
    folder: PathBuf,
    authority: Certificate,
}

impl Pki {
    fn new(folder: &Path, name: &str) -> Self {
        let authority = Certificate::make(&Wish::authority(name), None);
        fs::write(folder.join(format!("{name}.pem")), authority.pem()).unwrap();
        Self {
            folder: folder.to_owned(),
            authority,
        }
    }

    /// Writes a certificate with its key.
    fn sign(&self, name: &str, purpose: Purpose) -> PathBuf {
        self.make(&Wish {
            name,
            purpose: Some(purpose),
            ..Wish::server(&["127.0.0.1"])
        })
    }

    fn make(&self, wish: &Wish<'_>) -> PathBuf {
        let made = Certificate::make(wish, Some(&self.authority));
        let path = self.folder.join(format!("{}.pem", wish.name));
        fs::write(&path, made.pem() + &made.key_pem()).unwrap();
        path
    }
}

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a worker, and waits until it answers at one of its listeners.
fn worker(folder: &Path, lines: &[String], answers: &dyn Fn() -> bool) -> Worker {
    fs::write(folder.join("worker.properties"), lines.join("\n")).unwrap();
    let log = fs::File::create(folder.join("log")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_walferry"))
        .args([
            "run",
            "--worker",
            "worker.properties",
            "--bootstrap-servers",
            "127.0.0.1:1",
        ])
        .args(["--data-dir", "data"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut worker = Worker(child);
    let deadline = Instant::now() + PATIENCE;
    while !answers() {
        let log = || fs::read_to_string(folder.join("log")).unwrap();
        assert!(worker.0.try_wait().unwrap().is_none(), "it has ended:\n{}", log());
        assert!(Instant::now() < deadline, "it does not answer:\n{}", log());
        thread::sleep(Duration::from_millis(50));
    }
    worker
}

/// Status code of what `curl` gets; `None` where there is no answer.
fn curl(args: &[&str]) -> Option<u16> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--max-time",
            "60",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ])
        .args(args)
        .output()
        .expect("curl can be run");
    let code: u16 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    output.status.success().then_some(code)
}

fn ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| free_port())
}

#[test]
fn a_listener_speaks_tls_and_takes_the_certificates_of_its_truststore() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, theirs) = (Pki::new(folder, "ca"), Pki::new(folder, "other-ca"));
    let server = ours.sign("server", Purpose::Server);
    let client = ours.sign("client", Purpose::Client);
    let stranger = theirs.sign("stranger", Purpose::Client);
    let ca = folder.join("ca.pem");
    let store = folder.join("server.p12");
    let made = Command::new("openssl")
        .args(["pkcs12", "-export", "-passout", "pass:store-pw", "-out"])
        .arg(&store)
        .arg("-in")
        .arg(&server)
        .status();
    assert!(made.is_ok_and(|status| status.success()), "openssl pkcs12");

    for (auth, without_certificate) in [("required", false), ("requested", true), ("none", true)] {
        let [plain, tls, admin] = ports();
        let lines = [
            format!("listeners=http://127.0.0.1:{plain},https://127.0.0.1:{tls}"),
            format!("listeners.https.ssl.keystore.location={}", store.display()),
            "listeners.https.ssl.keystore.type=PKCS12".into(),
            "listeners.https.ssl.keystore.password=store-pw".into(),
            format!("listeners.https.ssl.truststore.location={}", ca.display()),
            "listeners.https.ssl.truststore.type=PEM".into(),
            format!("listeners.https.ssl.client.auth={auth}"),
            // Without a property of its own prefix, what stands without one counts.
            format!("admin.listeners=https://127.0.0.1:{admin}"),
            format!("ssl.keystore.location={}", server.display()),
        ];
        let url = |scheme: &str, port: u16, path: &str| format!("{scheme}://127.0.0.1:{port}{path}");
        let (plain_url, tls_url) = (url("http", plain, "/connectors"), url("https", tls, "/connectors"));
        let mut worker = worker(folder, &lines, &|| curl(&[&plain_url]) == Some(200));
        let (ca, client, stranger) = (
            ca.to_str().unwrap(),
            client.to_str().unwrap(),
            stranger.to_str().unwrap(),
        );
        let trusting = ["--cacert", ca];
        let ask = |url: &str, more: &[&str]| curl(&[&trusting[..], more, &[url]].concat());
        assert_eq!(ask(&tls_url, &["--cert", client]), Some(200), "{auth}");
        assert_eq!(ask(&tls_url, &[]).is_some(), without_certificate, "{auth}");
        let takes_stranger = auth == "none";
        assert_eq!(ask(&tls_url, &["--cert", stranger]).is_some(), takes_stranger, "{auth}");
        assert_eq!(
            ask(&tls_url, &["--cert", client, "--tls-max", "1.2"]),
            Some(200),
            "{auth}"
        );
        assert_eq!(
            curl(&["--cert", client, &tls_url]),
            None,
            "curl does not know the authority"
        );
        assert_eq!(
            curl(&[&url("http", tls, "/connectors")]),
            None,
            "no HTTP where TLS is spoken"
        );

        let loggers = |scheme: &str, port: u16| ask(&url(scheme, port, "/admin/loggers"), &["--cert", client]);
        assert_eq!(loggers("https", admin), Some(200), "{auth}");
        assert_eq!(loggers("https", tls), Some(404), "{auth}");
        assert_eq!(loggers("http", plain), Some(404), "{auth}");
        assert_eq!(ask(&url("https", admin, "/connectors"), &[]), Some(404), "{auth}");

        // Who connects and says nothing holds up neither the others nor the end.
        let _silent = std::net::TcpStream::connect(("127.0.0.1", tls)).unwrap();
        assert_eq!(ask(&tls_url, &["--cert", client]), Some(200), "{auth}");
        let id = worker.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(worker.0.wait().unwrap().code(), Some(0), "{auth}");
    }
}

/// As manuals make certificates, and as hardening lists want keys and suites.
#[test]
fn a_listener_takes_the_certificates_keys_and_suites_that_java_takes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ours = Pki::new(folder, "ca");
    let ca = folder.join("ca.pem").display().to_string();
    let localhost: &[&str] = &["localhost"];
    let odd = |name, key| Wish {
        name,
        key,
        ..Wish::server(localhost)
    };
    // Without extensions, the common name is the name of the host.
    let version_1 = Wish {
        version: 1,
        key: Key::Rsa(2048),
        ..Wish::client("localhost")
    };
    let dhe = ["--tls-max", "1.2", "--ciphers", "DHE-RSA-AES256-GCM-SHA384"];
    let aes_128 = ["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES128-GCM-SHA256"];
    let suites = "ssl.cipher.suites=TLS_DHE_RSA_WITH_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384";
    // The certificate, a property, what curl is told, and whether it gets an answer.
    type Case<'a> = (Wish<'a>, &'a str, &'a [&'a str], bool);
    let cases: [Case<'_>; 8] = [
        (version_1, "", &[], true),
        (odd("p521", Key::P521), "", &[], true),
        (odd("pss", Key::RsaPss), "", &[], true),
        (odd("rsa", Key::Rsa(2048)), "", &dhe, true),
        (odd("rsa", Key::Rsa(2048)), suites, &dhe, true),
        (odd("rsa", Key::Rsa(2048)), suites, &["--tlsv1.3"], true),
        (odd("rsa", Key::Rsa(2048)), suites, &aes_128, false),
        (
            odd("rsa", Key::Rsa(2048)),
            "ssl.enabled.protocols=TLSv1.2",
            &["--tlsv1.3"],
            false,
        ),
    ];
    for (wish, property, more, is_answered) in cases {
        let store = ours.make(&wish);
        let [plain, tls] = ports();
        let lines = [
            format!("listeners=http://localhost:{plain},https://localhost:{tls}"),
            format!("ssl.keystore.location={}", store.display()),
            property.to_owned(),
        ];
        let plain = format!("http://localhost:{plain}/connectors");
        let _worker = worker(folder, &lines, &|| curl(&[&plain]) == Some(200));
        let url = format!("https://localhost:{tls}/connectors");
        let got = curl(&[&["--cacert", &ca][..], more, &[&url]].concat());
        assert_eq!(
            got == Some(200),
            is_answered,
            "{} {property} {more:?}: {got:?}",
            wish.name
        );
    }
}

/// A client's certificate without extensions, with a P-521 key, is as good as another.
#[test]
fn a_listener_takes_odd_certificates_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ours = Pki::new(folder, "ca");
    let server = ours.sign("server", Purpose::Server);
    let old = ours.make(&Wish {
        version: 1,
        key: Key::P521,
        ..Wish::client("old")
    });
    let expired = ours.make(&Wish {
        days: (-9, -1),
        ..Wish::client("expired")
    });
    let of_servers = ours.sign("of-servers", Purpose::Server);
    let [plain, tls] = ports();
    let lines = [
        format!("listeners=http://127.0.0.1:{plain},https://127.0.0.1:{tls}"),
        format!("ssl.keystore.location={}", server.display()),
        format!("ssl.truststore.location={}", folder.join("ca.pem").display()),
        "ssl.client.auth=required".into(),
    ];
    let plain = format!("http://127.0.0.1:{plain}/connectors");
    let _worker = worker(folder, &lines, &|| curl(&[&plain]) == Some(200));
    let url = format!("https://127.0.0.1:{tls}/connectors");
    let ca = folder.join("ca.pem").display().to_string();
    let ask = |client: &Path| curl(&["--cacert", &ca, "--cert", client.to_str().unwrap(), &url]);
    assert_eq!(ask(&old), Some(200));
    assert_eq!(ask(&expired), None);
    assert_eq!(ask(&of_servers), None);
}

/// `walferry signal` and `walferry snapshot` reach a worker that has only TLS, wants a client certificate, and names users. Each obstacle is
/// told with the option that removes it.
#[test]
fn signals_reach_a_worker_that_wants_a_certificate_and_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ours = Pki::new(folder, "ca");
    let server = ours.sign("server", Purpose::Server);
    ours.sign("client", Purpose::Client);
    fs::write(folder.join("users"), "ops=s3cret\neyes=s3cret,read\n").unwrap();
    fs::write(folder.join("password"), "s3cret\n").unwrap();
    let [tls] = ports();
    let lines = [
        format!("listeners=https://127.0.0.1:{tls}"),
        format!("ssl.keystore.location={}", server.display()),
        "ssl.keystore.type=PEM".into(),
        format!("ssl.truststore.location={}", folder.join("ca.pem").display()),
        "ssl.truststore.type=PEM".into(),
        "ssl.client.auth=required".into(),
        format!("walferry.rest.users.file={}", folder.join("users").display()),
    ];
    let url = format!("https://127.0.0.1:{tls}");
    let path = |name: &str| folder.join(name).display().to_string();
    let health = [
        "--cacert".to_owned(),
        path("ca.pem"),
        "--cert".into(),
        path("client.pem"),
        format!("{url}/health"),
    ];
    let health: Vec<&str> = health.iter().map(String::as_str).collect();
    let _worker = worker(folder, &lines, &|| curl(&health) == Some(200));
    let said = |arguments: &[&str], password: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_walferry"));
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.env_remove("WALFERRY_REST_PASSWORD");
        command.envs(password.map(|password| ("WALFERRY_REST_PASSWORD", password)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("s3cret"), "{said}");
        said
    };
    let pause = ["signal", "orders", "pause-snapshot", "--url", &url];
    let trusting = [&pause[..], &["--ca", "ca.pem"]].concat();
    let known = [&trusting[..], &["--cert", "client.pem", "--key", "client.pem"]].concat();
    let user = |name: &'static str| [&known[..], &["--user", name]].concat();
    let in_plain = url.replace("https", "http");
    // Nobody needs to log in to ask whether it lives.
    let health = ["health", "--url", &url, "--ca", "ca.pem"];
    let lives = Command::new(env!("CARGO_BIN_EXE_walferry"))
        .args(health)
        .args(["--cert", "client.pem", "--key", "client.pem"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(lives.status.success(), "{lives:?}");
    let refused = Command::new(env!("CARGO_BIN_EXE_walferry"))
        .args(health)
        .current_dir(folder)
        .output()
        .unwrap();
    let hint = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{hint}");
    assert!(hint.contains("name it with --cert and --key"), "{hint}");

    let cases: [(&[&str], Option<&str>, &str); 8] = [
        (
            &["signal", "orders", "pause-snapshot", "--url", &in_plain],
            None,
            "write --url https://",
        ),
        (&pause, None, "name a file with the authority's certificate with --ca"),
        (&trusting, None, "name it with --cert and --key"),
        (&known, None, "give the user with --user NAME"),
        (&user("ops"), None, "set WALFERRY_REST_PASSWORD"),
        (&user("ops"), Some("wrong"), "check the user of --user"),
        (&user("eyes"), Some("s3cret"), "must not end with `,read`"),
        (&user("ops"), Some("s3cret"), "this process has no connector"),
    ];
    for (arguments, password, expected) in cases {
        let said = said(arguments, password);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    let with_file = [
        &[
            "snapshot",
            "orders",
            "--table",
            "public.t",
            "--password-file",
            "password",
        ],
        &user("ops")[3..],
    ]
    .concat();
    let said = said(&with_file, Some("wrong"));
    assert!(
        said.contains("this process has no connector"),
        "the file counts first: {said}"
    );
}
