//! The image: a layout of the Open Container Initiative with one layer, written without a container tool. It has the program, Debian's
//! glibc and CA certificates, and nothing else: no shell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{Release, copy, gzip, sha256};
use crate::{Outcome, provide, shell};

/// The user that the program runs as.
const USER: u32 = 1001;
/// The most that the packed image may have.
const LIMIT: u64 = 25 << 20;

/// What the image runs, as that of the Dockerfile.
const COMMAND: [&str; 2] = ["run", "--in-container"];

/// What the program, name resolution and TLS need of glibc.
const LIBRARIES: [&str; 9] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libnss_files.so.2",
    "libnss_dns.so.2",
];

pub(super) fn write(release: &Release) -> Outcome<PathBuf> {
    let root = release.stage("image")?;
    files(release, &root)?;

    let layout = release
        .dist
        .join(format!("walferry-{}-{}-oci", release.version, release.machine));
    if layout.exists() {
        fs::remove_dir_all(&layout)?;
    }
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;

    let tar = layout.join("layer.tar");
    let own = "./var/lib/walferry";
    shell::run(
        release
            .tar(0)
            .arg("-cf")
            .arg(&tar)
            .arg("-C")
            .arg(&root)
            .arg(format!("--exclude={own}"))
            .arg("."),
    )?;
    shell::run(release.tar(USER).arg("-rf").arg(&tar).arg("-C").arg(&root).arg(own))?;
    let unpacked = sha256(&tar)?;
    gzip(&tar)?;
    let layer = blob(
        &blobs,
        &layout.join("layer.tar.gz"),
        "application/vnd.oci.image.layer.v1.tar+gzip",
    )?;

    let date = shell::output(
        Command::new("date")
            .args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"])
            .arg(format!("--date=@{}", release.time)),
    )?;
    let config = config(release, date.trim(), &unpacked);
    let config = json_blob(&blobs, &config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest = json_blob(&blobs, &manifest, "application/vnd.oci.image.manifest.v1+json")?;
    manifest["platform"] = json!({"architecture": release.architecture, "os": "linux"});
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version,
        // `podman load` and containerd name the image by it. Without it, Podman takes the version for the name.
        "io.containerd.image.name": format!("localhost/walferry:{}", release.version),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;

    let file = layout.with_extension("tar");
    // with_extension would cut a version off.
    let file = file.with_file_name(format!(
        "{}.tar",
        layout.file_name().unwrap_or_default().to_string_lossy()
    ));
    shell::run(release.tar(0).arg("-cf").arg(&file).arg("-C").arg(&layout).args([
        "oci-layout",
        "index.json",
        "blobs",
    ]))?;
    let size = fs::metadata(&file)?.len();
    if size > LIMIT {
        return Err(format!("the image has {size} bytes, more than {LIMIT}").into());
    }
    Ok(file)
}

/// The files of the image.
fn files(release: &Release, root: &Path) -> Outcome {
    copy(&release.programs.image, &root.join("usr/bin/walferry"), 0o755)?;
    copy(
        &shell::root().join("LICENSE"),
        &root.join("usr/share/doc/walferry/copyright"),
        0o644,
    )?;
    fs::create_dir_all(root.join("etc"))?;
    fs::write(
        root.join("etc/passwd"),
        format!("root:x:0:0:root:/:/sbin/nologin\nwalferry:x:{USER}:{USER}::/var/lib/walferry:/sbin/nologin\n"),
    )?;
    fs::write(root.join("etc/group"), format!("root:x:0:\nwalferry:x:{USER}:\n"))?;
    fs::write(root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    for folder in ["etc/walferry", "var/lib/walferry", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    shell::run(Command::new("chmod").arg("1777").arg(root.join("tmp")))?;
    shell::run(Command::new("chmod").arg("0700").arg(root.join("var/lib/walferry")))?;

    let glibc = provide::debian_package("libc6")?;
    let triplet = format!("{}-linux-gnu", release.machine);
    for library in LIBRARIES {
        copy(
            &glibc.join("lib").join(&triplet).join(library),
            &root.join("lib").join(&triplet).join(library),
            0o755,
        )?;
    }
    let loader = match release.architecture {
        "amd64" => "lib64/ld-linux-x86-64.so.2",
        _ => "lib/ld-linux-aarch64.so.1",
    };
    let name = Path::new(loader).file_name().unwrap_or_default();
    copy(&glibc.join("lib").join(&triplet).join(name), &root.join(loader), 0o755)?;
    copy(
        &glibc.join("usr/share/doc/libc6/copyright"),
        &root.join("usr/share/doc/libc6/copyright"),
        0o644,
    )?;

    let certificates = provide::debian_package("ca-certificates")?;
    let mut authorities: Vec<PathBuf> = fs::read_dir(certificates.join("usr/share/ca-certificates/mozilla"))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    authorities.sort();
    let mut bundle = String::new();
    for authority in authorities {
        bundle.push_str(fs::read_to_string(authority)?.trim_end());
        bundle.push('\n');
    }
    fs::create_dir_all(root.join("etc/ssl/certs"))?;
    Ok(fs::write(root.join("etc/ssl/certs/ca-certificates.crt"), bundle)?)
}

fn config(release: &Release, date: &str, unpacked: &str) -> Value {
    let second = 1_000_000_000_u64;
    json!({
        "created": date,
        "architecture": release.architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": {"8083/tcp": {}},
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/walferry"],
            "Cmd": COMMAND,
            "Volumes": {"/var/lib/walferry": {}},
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            // Docker reads it; the Open Container Initiative does not know it.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/walferry", "health"],
                "Interval": 10 * second, "Timeout": 6 * second, "StartPeriod": 30 * second, "Retries": 6,
            },
            "Labels": {
                "org.opencontainers.image.title": "Walferry",
                "org.opencontainers.image.description": "Change data capture from Postgres to Kafka",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.created": date,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.source": "https://github.com/walferry/walferry",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{unpacked}")]},
        "history": [{"created": date, "created_by": "cargo xtask release"}],
    })
}

fn json_blob(blobs: &Path, content: &Value, media_type: &str) -> Outcome<Value> {
    let file = blobs.join("new");
    fs::write(&file, content.to_string())?;
    blob(blobs, &file, media_type)
}

/// Moves a file to the place that its digest names. Returns its descriptor.
fn blob(blobs: &Path, file: &Path, media_type: &str) -> Outcome<Value> {
    let digest = sha256(file)?;
    let size = fs::metadata(file)?.len();
    fs::rename(file, blobs.join(&digest))?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size}))
}

/// Runs the program as the image's user, in the image's files.
pub(super) fn check(release: &Release) -> Outcome {
    let root = release.dist.join("stage").join(format!("image-{}", release.machine));
    let chroot = shell::find("chroot").ok_or("`chroot` is not in PATH")?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&chroot);
        command
            .arg(format!("--userspec={USER}:{USER}"))
            .arg(&root)
            .arg("/usr/bin/walferry")
            .args(arguments);
        command.env_clear();
        command
    };
    let said = shell::output(&mut run(&["--version"]))?;
    if said.trim() != format!("walferry {}", release.version) {
        return Err(format!("the program of the image says {said:?}").into());
    }
    // Nobody listens, so the health check has to fail, with 1 and not with a crash.
    let code = run(&["health", "--admin", "127.0.0.1:9"]).output()?.status.code();
    if code != Some(1) {
        return Err(format!("`walferry health` of the image ends with {code:?}, not with 1").into());
    }
    println!("the image's program ran as user {USER} in the image's files");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_images_run_the_same() {
        let file = fs::read_to_string(shell::root().join("docker/Dockerfile")).unwrap();
        let command = file.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
        assert_eq!(serde_json::from_str::<Vec<String>>(command).unwrap(), COMMAND);
    }
}
