//! `cargo xtask release`: the program for other machines, as an archive, a Debian package and an image, with checksums and a list of what
//! is in them, and the text of the release. Everything lands in `target/dist`.

mod build;
mod debian;
mod image;
mod sbom;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::build::Variant;
use crate::{Outcome, shell, site};

/// The oldest glibc that the program runs with. Debian 8, Ubuntu 14.04 and RHEL 7 have it.
const GLIBC: &str = "2.17";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The machine to build for: x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu. The image takes glibc from Debian, so build on the
    /// same architecture
    #[arg(long, default_value = "x86_64-unknown-linux-gnu")]
    target: String,
    /// Pack this program into all three instead of building them
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The programs of a release.
struct Programs {
    archive: PathBuf,
    package: PathBuf,
    image: PathBuf,
}

/// What all parts of a release know.
struct Release {
    version: String,
    /// As in names of files: x86_64 or aarch64.
    machine: String,
    /// As Debian and container images call it: amd64 or arm64.
    architecture: &'static str,
    programs: Programs,
    dist: PathBuf,
    /// Seconds since 1970, for all files: the same sources give the same bytes.
    time: u64,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let machine = args.target.split('-').next().unwrap_or_default().to_owned();
    let architecture = match machine.as_str() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return Err(format!("there is no release for {other}: x86_64 and aarch64 are known").into()),
    };
    let dist = shell::root().join("target/dist");
    fs::create_dir_all(&dist)?;
    let program = |variant: Variant| -> Outcome<PathBuf> {
        let program = match &args.program {
            Some(program) => fs::canonicalize(program).map_err(|e| format!("{}: {e}", program.display()))?,
            None => build::build(&args.target, &machine, variant)?,
        };
        check_program(&program, variant)?;
        Ok(program)
    };
    let programs = Programs {
        archive: program(Variant::Archive)?,
        image: program(Variant::Image)?,
        package: program(Variant::Package)?,
    };
    let release = Release {
        version: version()?,
        machine,
        architecture,
        programs,
        dist,
        time: time(),
    };
    let sbom = sbom::write(&release, &args.target)?;
    let archive = release.archive(&sbom)?;
    let package = debian::write(&release)?;
    let image = image::write(&release)?;
    debian::check(&release, &package)?;
    image::check(&release)?;
    fs::write(release.dist.join("RELEASE-NOTES.md"), site::notes(&release.version)?)?;
    // Last: whoever finds the checksums finds files that have passed their checks.
    release.checksums(&[&archive, &package, &image, &sbom])?;
    let Programs {
        archive: a,
        package: p,
        image: i,
    } = &release.programs;
    for file in [a, p, i, &archive, &package, &image] {
        let size = fs::metadata(file)?.len() as f64 / (1 << 20) as f64;
        println!("{size:6.1} MiB  {}", file.display());
    }
    Ok(())
}

fn version() -> Outcome<String> {
    let manifest: toml::Value = toml::from_str(&fs::read_to_string(shell::root().join("Cargo.toml"))?)?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.ok_or("Cargo.toml has no version")?.to_owned())
}

/// `SOURCE_DATE_EPOCH`, or the time of the commit.
fn time() -> u64 {
    let given = env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || {
        shell::output(
            Command::new("git")
                .args(["log", "-1", "--format=%ct"])
                .current_dir(shell::root()),
        )
        .ok()
    };
    given
        .or_else(commit)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// The program needs the libraries of its variant alone, and no newer glibc than promised.
fn check_program(program: &Path, variant: Variant) -> Outcome {
    let needed = shell::output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(program))?;
    for line in needed.lines().filter(|line| line.contains("(NEEDED)")) {
        let library = line.split(['[', ']']).nth(1).unwrap_or_default();
        if !variant.libraries().any(|allowed| library.starts_with(allowed)) {
            return Err(format!("{} needs {library}, which not every machine has", program.display()).into());
        }
    }
    let symbols = shell::output(Command::new("readelf").args(["--version-info", "--wide"]).arg(program))?;
    let newest: Option<Vec<u32>> = symbols
        .split("Name: GLIBC_")
        .skip(1)
        .filter_map(|tail| tail.split_whitespace().next())
        .map(|version| version.split('.').filter_map(|part| part.parse().ok()).collect())
        .max();
    let newest = newest.ok_or("the program names no version of glibc")?;
    let limit: Vec<u32> = GLIBC.split('.').filter_map(|part| part.parse().ok()).collect();
    if newest > limit {
        return Err(format!("the program needs glibc {newest:?}, and {GLIBC} is promised").into());
    }
    Ok(())
}

impl Release {
    /// An empty folder below `target/dist`.
    fn stage(&self, name: &str) -> Outcome<PathBuf> {
        let folder = self.dist.join("stage").join(format!("{name}-{}", self.machine));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// GNU tar, so that the same files give the same bytes.
    fn tar(&self, owner: u32) -> Command {
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--numeric-owner", "--format=gnu"])
            .arg(format!("--mtime=@{}", self.time))
            .arg(format!("--owner={owner}"))
            .arg(format!("--group={owner}"));
        tar
    }

    fn archive(&self, sbom: &Path) -> Outcome<PathBuf> {
        let name = format!("walferry-{}-{}-linux", self.version, self.machine);
        let stage = self.stage("archive")?;
        let top = stage.join(&name);
        copy(&self.programs.archive, &top.join("walferry"), 0o755)?;
        copy(sbom, &top.join("sbom.cdx.json"), 0o644)?;
        for file in ["LICENSE", "README.md", "SECURITY.md"] {
            copy(&shell::root().join(file), &top.join(file), 0o644)?;
        }
        fs::write(top.join("CHANGELOG.md"), site::changelog("docs/")?)?;
        // The README links to them.
        fs::copy(shell::root().join("CONTRIBUTING.md"), top.join("CONTRIBUTING.md"))?;
        for folder in [
            "config",
            "docs",
            "deploy/prometheus",
            "deploy/grafana",
            "deploy/systemd",
            "deploy/helm",
            "deploy/kubernetes",
        ] {
            copy_all(&shell::root().join(folder), &top.join(folder))?;
        }
        // Sources and the container files are not in the archive.
        site::link_to_repository(&top)?;
        let file = self.dist.join(format!("{name}.tar.gz"));
        let tar = file.with_extension("");
        shell::run(self.tar(0).arg("-cf").arg(&tar).arg("-C").arg(&stage).arg(&name))?;
        gzip(&tar)?;
        Ok(file)
    }

    fn checksums(&self, files: &[&Path]) -> Outcome {
        // The other architecture's lines stay.
        let sums = self.dist.join("SHA256SUMS");
        let mut lines: Vec<String> = fs::read_to_string(&sums)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            lines.retain(|line| !line.ends_with(&format!("  {name}")));
            lines.push(format!("{}  {name}", sha256(file)?));
        }
        lines.sort_by_key(|line| line.split("  ").nth(1).map(str::to_owned));
        Ok(fs::write(sums, lines.join("\n") + "\n")?)
    }
}

/// Leaves `FILE.gz` in the place of `FILE`, without a time in it.
fn gzip(file: &Path) -> Outcome {
    shell::run(Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(file))
}

fn sha256(file: &Path) -> Outcome<String> {
    let said = shell::output(Command::new("sha256sum").arg(file))?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn copy_all(from: &Path, to: &Path) -> Outcome {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &target)?;
        } else {
            copy(&entry.path(), &target, 0o644)?;
        }
    }
    Ok(())
}
