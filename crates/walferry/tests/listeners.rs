//! Listeners of a worker file, with TLS and client certificates, as `curl` reaches them. No server is needed: a worker without connectors
//! answers.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Certificates of one authority, in files.
struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        Self {
            folder: folder.to_owned(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Writes a certificate with its key.
    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> PathBuf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = self.folder.join(format!("{name}.pem"));
        fs::write(&path, certificate.pem() + &key.serialize_pem()).unwrap();
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
    let deadline = Instant::now() + Duration::from_secs(120);
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
    let told = Command::new("curl")
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
    let code: u16 = String::from_utf8(told.stdout).unwrap().trim().parse().unwrap();
    told.status.success().then_some(code)
}

fn ports<const N: usize>() -> [u16; N] {
    let sockets = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().port())
}

#[test]
fn a_listener_speaks_tls_and_takes_the_certificates_of_its_truststore() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, theirs) = (Pki::new(folder, "ca"), Pki::new(folder, "other-ca"));
    let server = ours.sign("server", ExtendedKeyUsagePurpose::ServerAuth);
    let client = ours.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
    let stranger = theirs.sign("stranger", ExtendedKeyUsagePurpose::ClientAuth);
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
