//! What the systemd unit and the compose file of the documents do when the program ends: they start it again where that can help.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Exit codes after which a person has to mend something: `Exit` of the engine, without the one of a connector that gave up.
const FOR_A_PERSON: [i32; 3] = [2, 3, 4];

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn the_unit_restarts_all_but_what_a_person_has_to_mend() {
    let unit = text("deploy/systemd/walferry.service");
    let codes = FOR_A_PERSON.map(|code| code.to_string()).join(" ");
    assert!(unit.contains("Restart=on-failure\n"));
    // systemd gives up after some starts, unless it is told not to count them.
    let (settings_of_unit, _) = unit.split_once("[Service]").unwrap();
    assert!(settings_of_unit.contains("\nStartLimitIntervalSec=0\n"));
    assert!(unit.contains(&format!("RestartPreventExitStatus={codes}\n")));
    let page = text("docs/reference/exit-codes.md");
    for code in FOR_A_PERSON {
        let row = page.lines().find(|line| line.starts_with(&format!("| {code} |")));
        assert!(
            row.is_some_and(|row| row.contains("| no")),
            "the page says that a restart does not help after {code}"
        );
    }
}

/// The script that the compose file runs, as the shell gets it.
fn script() -> String {
    let compose = text("docker/compose.yaml");
    let (_, tail) = compose
        .split_once("      - |\n")
        .expect("the compose file has a script");
    let lines = tail.lines().take_while(|line| line.starts_with("        "));
    let lines: Vec<&str> = lines.map(str::trim_start).collect();
    // A doubled dollar is how compose writes one. The pause is none of the test's.
    lines.join("\n").replace("$$", "$").replace("sleep 5", "sleep 0")
}

/// The script with a `walferry` whose runs do these things, one after the other.
fn start(name: &str, runs: &[&str]) -> (Child, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("supervisor-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let log = folder.join("runs");
    let cases: Vec<String> = runs
        .iter()
        .enumerate()
        .map(|(i, run)| format!("{}) {run} ;;", i + 1))
        .collect();
    let program = format!(
        "#!/bin/sh\necho run >> {log}\ncase $(wc -l < {log}) in {cases} esac\n",
        log = log.display(),
        cases = cases.join(" ")
    );
    let file = folder.join("walferry");
    fs::write(&file, program).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let script = script().replace("/tmp/rest.users", &users_file(&log).display().to_string());
    let child = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", path)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    (child, log)
}

/// The file with the users, which the script makes.
fn users_file(log: &Path) -> PathBuf {
    log.with_file_name("rest.users")
}

fn runs(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

#[test]
fn the_compose_file_restarts_all_but_what_a_person_has_to_mend() {
    for code in FOR_A_PERSON.into_iter().chain([0]) {
        let end = format!("exit {code}");
        let (mut shell, log) = start(&format!("code-{code}"), &["exit 1", "kill -KILL $$", "exit 101", &end]);
        assert_eq!(shell.wait().unwrap().code(), Some(code));
        assert_eq!(runs(&log), 4, "exit code {code}");
    }
}

#[test]
fn the_compose_file_makes_a_password_at_each_start_and_its_worker_asks_for_it() {
    assert!(text("docker/worker.properties").contains("\nwalferry.rest.users.file=/tmp/rest.users\n"));
    let mut passwords = Vec::new();
    for name in ["password-1", "password-2"] {
        let (mut shell, log) = start(name, &["exit 0"]);
        assert_eq!(shell.wait().unwrap().code(), Some(0));
        let users = users_file(&log);
        assert_eq!(fs::metadata(&users).unwrap().permissions().mode() & 0o777, 0o600);
        let line = fs::read_to_string(users).unwrap();
        let password = line.strip_prefix("admin=").and_then(|line| line.strip_suffix('\n'));
        let password = password.expect("one user").to_owned();
        assert!(
            password.len() == 32 && password.chars().all(|c| c.is_ascii_hexdigit()),
            "{line}"
        );
        passwords.push(password);
    }
    assert_ne!(passwords[0], passwords[1]);
}

#[test]
fn the_compose_file_pins_its_images_checks_each_service_and_keeps_its_data() {
    let compose = text("docker/compose.yaml");
    let (services, volumes) = compose
        .split_once("\nvolumes:\n")
        .expect("the compose file has volumes");
    for image in services.lines().filter_map(|line| line.trim().strip_prefix("image: ")) {
        let version = image.rsplit(':').next().unwrap_or_default();
        assert!(version.contains('.'), "{image} is not pinned to a release");
    }
    for name in ["postgres", "kafka", "walferry"] {
        let (_, service) = services
            .split_once(&format!("\n  {name}:\n"))
            .expect("the service is there");
        let service: Vec<&str> = service
            .lines()
            .take_while(|line| line.is_empty() || line.starts_with("   "))
            .collect();
        for needed in ["    healthcheck:", "    stop_grace_period:"] {
            assert!(
                service.iter().any(|line| line.starts_with(needed)),
                "{name} has no {}",
                needed.trim()
            );
        }
        let keeps = |volume: &str| {
            service
                .iter()
                .any(|line| line.trim().starts_with(&format!("- {volume}:/")))
        };
        let volume = volumes
            .lines()
            .filter_map(|line| line.trim().strip_suffix(':'))
            .find(|volume| keeps(volume));
        assert!(volume.is_some(), "{name} loses its data when it goes down");
    }
}

/// The lines of a service, without their indent.
fn service(name: &str) -> Vec<String> {
    let compose = text("docker/compose.yaml");
    let (_, service) = compose
        .split_once(&format!("\n  {name}:\n"))
        .expect("the service is there");
    let lines = service
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("   "));
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn containers_get_no_right_that_they_do_not_need() {
    let walferry = service("walferry");
    for line in [
        "user: \"1001:1001\"",
        "read_only: true",
        "cap_drop: [ALL]",
        "security_opt: [\"no-new-privileges:true\"]",
        "- \"127.0.0.1:8083:8083\"",
    ] {
        assert!(walferry.iter().any(|found| found == line), "{line}: {walferry:#?}");
    }
    for name in ["postgres", "kafka"] {
        let found = service(name);
        assert!(
            found
                .iter()
                .any(|line| line == "security_opt: [\"no-new-privileges:true\"]"),
            "{found:#?}"
        );
        assert!(
            !found.iter().any(|line| line == "ports:"),
            "{name} is reachable from outside: {found:#?}"
        );
    }
    for name in ["postgres", "kafka", "walferry"] {
        let found = service(name);
        for word in ["privileged:", "cap_add:", "network_mode:", "pid:", "docker.sock"] {
            assert!(!found.iter().any(|line| line.contains(word)), "{name} has {word}");
        }
    }
    let image = text("docker/Dockerfile");
    let users: Vec<&str> = image.lines().filter(|line| line.starts_with("USER ")).collect();
    assert_eq!(
        users,
        ["USER 1001"],
        "a number, so that Kubernetes can see that it is not root"
    );
    // The rendered chart, and the chart itself.
    for place in [
        "deploy/kubernetes/walferry.yaml",
        "deploy/helm/walferry/templates/statefulset.yaml",
    ] {
        let manifests = text(place);
        for line in [
            "automountServiceAccountToken: false",
            "runAsNonRoot: true",
            "runAsUser: 1001",
            "seccompProfile: {type: RuntimeDefault}",
            "allowPrivilegeEscalation: false",
            "readOnlyRootFilesystem: true",
            "capabilities: {drop: [ALL]}",
        ] {
            assert!(
                manifests.lines().any(|found| found.trim() == line),
                "{place} has no {line}"
            );
        }
        for word in ["hostNetwork", "hostPID", "hostPath", "privileged: true"] {
            assert!(!manifests.contains(word), "{place} has {word}");
        }
    }
}

/// The workflow's own script, with a registry that knows two digests.
#[test]
fn a_release_pins_the_images_of_compose_file_and_dockerfile_by_digest() {
    let workflow = text(".github/workflows/release.yaml");
    let (_, script) = workflow
        .split_once("      - name: compose file and Dockerfile with the digests of their images\n        run: |\n")
        .expect("the step is there");
    let script: String = script
        .lines()
        .take_while(|line| line.starts_with("          "))
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let run = |digest: &str| {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("source/docker")).unwrap();
        fs::create_dir_all(at("dist")).unwrap();
        for name in ["compose.yaml", "Dockerfile"] {
            fs::write(at("source/docker").join(name), text(&format!("docker/{name}"))).unwrap();
        }
        let docker = at("docker");
        fs::write(&docker, format!("#!/bin/sh\necho {digest}\n")).unwrap();
        fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let ran = Command::new("bash")
            .args(["-e", "-c", &script])
            .current_dir(folder.path())
            .env("PATH", path)
            .status()
            .unwrap();
        let pinned = ["compose.yaml", "Dockerfile"]
            .map(|name| fs::read_to_string(at("dist/pinned").join(name)).unwrap_or_default());
        let sums = fs::read_to_string(at("SHA256SUMS")).unwrap_or_default();
        (ran.success(), pinned.concat(), sums)
    };
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let (ran, pinned, sums) = run(&digest);
    assert!(ran);
    let named = |line: &&str| line.starts_with("FROM ") || line.starts_with("    image: ");
    let images: Vec<&str> = pinned.lines().filter(named).collect();
    assert_eq!(images.len(), 4, "{images:?}");
    for image in images {
        assert_eq!(image.matches(&format!("@{digest}")).count(), 1, "{image}");
    }
    assert!(pinned.contains(&format!("FROM rust:1.95-slim-bookworm@{digest} AS build")));
    assert!(sums.contains("compose.yaml") && sums.contains("Dockerfile"));
    for wrong in ["", "sha256:0123", "'sha256:/x'"] {
        assert!(!run(wrong).0, "{wrong:?} is taken for a digest");
    }
}

#[test]
fn the_compose_file_passes_a_stop_on() {
    let trapped = "trap 'exit 0' TERM; touch \"$0.up\"; while :; do sleep 0.05; done";
    let (mut shell, log) = start("stop", &[trapped]);
    let up = log.with_file_name("walferry.up");
    let patience = Instant::now() + Duration::from_secs(60);
    while !up.exists() {
        assert!(Instant::now() < patience, "the program does not start");
        sleep(Duration::from_millis(10));
    }
    let pid = shell.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(shell.wait().unwrap().code(), Some(0));
    assert_eq!(runs(&log), 1);
}
