//! The Debian package: program, unit, user, folders, examples. `dpkg-deb` packs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Release, copy, copy_all};
use crate::{Outcome, shell};

const CONFFILES: [&str; 3] = ["connector.json", "worker.properties", "secrets.env"];

pub(super) fn write(release: &Release) -> Outcome<PathBuf> {
    let root = release.stage("debian")?;
    let from = shell::root().join("deploy/debian");
    copy(&release.programs.package, &root.join("usr/bin/walferry"), 0o755)?;
    let unit = shell::root().join("deploy/systemd/walferry.service");
    copy(&unit, &root.join("usr/lib/systemd/system/walferry.service"), 0o644)?;
    copy(
        &from.join("sysusers.conf"),
        &root.join("usr/lib/sysusers.d/walferry.conf"),
        0o644,
    )?;
    copy(
        &from.join("tmpfiles.conf"),
        &root.join("usr/lib/tmpfiles.d/walferry.conf"),
        0o644,
    )?;
    for file in CONFFILES {
        let mode = if file == "secrets.env" { 0o600 } else { 0o640 };
        copy(&from.join(file), &root.join("etc/walferry").join(file), mode)?;
    }
    let doc = root.join("usr/share/doc/walferry");
    copy(&from.join("copyright"), &doc.join("copyright"), 0o644)?;
    for (folder, name) in [
        ("config", "config"),
        ("deploy/prometheus", "prometheus"),
        ("deploy/grafana", "grafana"),
    ] {
        copy_all(&shell::root().join(folder), &doc.join("examples").join(name))?;
    }
    let completions = shell::output(Command::new(&release.programs.package).args(["completions", "bash"]))?;
    let folder = root.join("usr/share/bash-completion/completions");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("walferry"), completions)?;
    let manual = root.join("usr/share/man/man1");
    fs::create_dir_all(&manual)?;
    shell::run(Command::new(&release.programs.package).arg("man").arg(&manual))?;

    let size = shell::output(
        Command::new("du")
            .args(["--summarize", "--block-size=1024", "--apparent-size"])
            .arg(&root),
    )?;
    let control = fs::read_to_string(from.join("control"))?
        .replace("{version}", &release.version)
        .replace("{architecture}", release.architecture)
        .replace("{size}", size.split_whitespace().next().unwrap_or("0"));
    let own = root.join("DEBIAN");
    fs::create_dir_all(&own)?;
    fs::write(own.join("control"), control)?;
    fs::write(
        own.join("conffiles"),
        CONFFILES.map(|file| format!("/etc/walferry/{file}\n")).concat(),
    )?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&from.join(script), &own.join(script), 0o755)?;
    }
    let file = release
        .dist
        .join(format!("walferry_{}_{}.deb", release.version, release.architecture));
    shell::run(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(&root)
            .arg(&file)
            .env("SOURCE_DATE_EPOCH", release.time.to_string()),
    )?;
    Ok(file)
}

/// Installs, removes and purges the package in a folder of its own, as dpkg does it on a machine.
pub(super) fn check(release: &Release, package: &Path) -> Outcome {
    let root = release.stage("installed")?;
    prepare_dpkg(&root)?;
    dpkg(&root, "--install", package)?;
    is_installed(release, &root)?;
    dpkg(&root, "--remove", Path::new("walferry"))?;
    must(
        !root.join("usr/bin/walferry").exists(),
        "the program stays after a removal",
    )?;
    must(
        root.join("etc/walferry/connector.json").exists(),
        "the configuration is gone after a removal",
    )?;
    must(
        root.join("var/lib/walferry").exists(),
        "the offsets are gone after a removal",
    )?;
    dpkg(&root, "--purge", Path::new("walferry"))?;
    must(
        !root.join("etc/walferry").exists() && !root.join("var/lib/walferry").exists(),
        "something stays after a purge",
    )?;
    println!(
        "the Debian package was installed, removed and purged in {}",
        root.display()
    );
    Ok(fs::remove_dir_all(root)?)
}

fn must(holds: bool, what: &str) -> Outcome {
    match holds {
        true => Ok(()),
        false => Err(format!("the Debian package: {what}").into()),
    }
}

/// What dpkg wants to find in the root of a system.
fn prepare_dpkg(root: &Path) -> Outcome {
    for folder in [
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "var/lib/dpkg/triggers",
        "etc",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "")?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n")?;
    Ok(fs::write(root.join("etc/group"), "root:x:0:\n")?)
}

fn dpkg(root: &Path, action: &str, what: &Path) -> Outcome {
    let mut command = Command::new("dpkg");
    command
        .arg(format!("--root={}", root.display()))
        // The folder has no shell and no libc6 of its own.
        .args([
            "--force-script-chrootless",
            "--force-depends",
            "--force-not-root",
            "--force-architecture",
            action,
        ])
        .arg(what);
    shell::run(&mut command)
}

/// The user, who may read what, and a program that runs.
fn is_installed(release: &Release, root: &Path) -> Outcome {
    use std::os::unix::fs::MetadataExt;
    let passwd = fs::read_to_string(root.join("etc/passwd"))?;
    let user = passwd
        .lines()
        .find(|line| line.starts_with("walferry:"))
        .unwrap_or_default();
    must(!user.is_empty(), "there is no user walferry")?;
    let id: u32 = user.split(':').nth(2).and_then(|id| id.parse().ok()).unwrap_or(0);
    let state = fs::metadata(root.join("var/lib/walferry"))?;
    must(
        state.uid() == id && state.mode() & 0o777 == 0o700,
        "the folder of offsets is not walferry's alone",
    )?;
    let secrets = fs::metadata(root.join("etc/walferry/secrets.env"))?;
    must(
        secrets.uid() == 0 && secrets.mode() & 0o777 == 0o600,
        "others than root can read secrets.env",
    )?;
    let said = shell::output(Command::new(root.join("usr/bin/walferry")).arg("--version"))?;
    must(
        said.trim() == format!("walferry {}", release.version),
        "the program says another version",
    )?;
    // Looking for an offset reads all of the configuration, and connects to nothing.
    shell::run(
        Command::new(root.join("usr/bin/walferry"))
            .args(["offsets", "show", "--config"])
            .arg(root.join("etc/walferry/connector.json"))
            .arg("--data-dir")
            .arg(root.join("var/lib/walferry"))
            .env("PGPASSWORD", "secret"),
    )
}
