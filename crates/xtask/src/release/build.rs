//! Builds the programs of a release: OpenSSL and zlib compiled in, for an old glibc. Zig brings the headers and symbols of that glibc.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{GLIBC, copy_all};
use crate::{Outcome, provide, shell};

/// What a program is for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Variant {
    Archive,
    /// With Kerberos, through the libsasl2 that the package depends on.
    Package,
    /// Without the demo.
    Image,
}

impl Variant {
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Archive => &["--features", "vendored"],
            Self::Package => &["--features", "vendored,gssapi"],
            Self::Image => &["--no-default-features", "--features", "vendored"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Package => "package",
            Self::Image => "image",
        }
    }

    /// The shared libraries that the program may need.
    pub(super) fn libraries(self) -> impl Iterator<Item = &'static str> {
        const GLIBC_AND_LOADER: [&str; 7] = [
            "libc.so.6",
            "libm.so.6",
            "libpthread.so.0",
            "libdl.so.2",
            "librt.so.1",
            "libutil.so.1",
            "ld-linux",
        ];
        let sasl = (self == Self::Package).then_some("libsasl2.so.2");
        GLIBC_AND_LOADER.into_iter().chain(sasl)
    }
}

/// Builds the program, and returns where it is.
pub(super) fn build(target: &str, machine: &str, variant: Variant) -> Outcome<PathBuf> {
    if shell::find("cargo-zigbuild").is_none() {
        return Err("`cargo-zigbuild` is not in PATH: `pip install cargo-zigbuild ziglang` brings it with a Zig, or `cargo install cargo-zigbuild`"
            .into());
    }
    let top = shell::root().join("target/release-build");
    // What is built with other flags has a folder of its own: Cargo would build everything again.
    let folder = match variant {
        Variant::Package => top.join("kerberos"),
        Variant::Archive | Variant::Image => top.clone(),
    };
    fs::create_dir_all(&folder)?;
    let mut command = shell::cargo(["zigbuild", "--release", "--locked", "--package", "walferry"]);
    command
        .args(variant.arguments())
        .args(["--target", &format!("{target}.{GLIBC}")])
        .env("CARGO_TARGET_DIR", &folder);
    let mut flags = String::new();
    if variant == Variant::Package {
        let sasl = sasl(&folder, machine)?;
        let (headers, library) = (sasl.join("include"), sasl.join("lib"));
        // libsasl2 may need a newer glibc than the program: the package of libsasl2 depends on that one.
        command.env(
            "RUSTFLAGS",
            format!(
                "-L native={} -C link-arg=-Wl,--allow-shlib-undefined",
                library.display()
            ),
        );
        flags = format!(
            "-I'{}' -L'{}' -Wl,--allow-shlib-undefined",
            headers.display(),
            library.display()
        );
    }
    // librdkafka's configure script asks only these two variables.
    for (variable, compiler) in [("CC", "cc"), ("CXX", "c++")] {
        let script = folder.join(format!("zig-{compiler}"));
        // librdkafka's version script names symbols that it does not define, which Zig's linker refuses otherwise.
        let text = format!(
            "#!/bin/sh\ncase \" $* \" in *\" -shared \"*) set -- \"$@\" -Wl,--undefined-version ;; esac\n\
             exec cargo-zigbuild zig {compiler} -- -target {machine}-linux-gnu.{GLIBC} {flags} \"$@\"\n"
        );
        fs::write(&script, text)?;
        shell::run(Command::new("chmod").arg("+x").arg(&script))?;
        command.env(variable, &script);
    }
    shell::run(&mut command)?;
    let program = top.join(format!("walferry-{}", variant.name()));
    fs::copy(folder.join(target).join("release/walferry"), &program)?;
    Ok(program)
}

/// A folder with the headers and the library of Cyrus SASL alone: the system's own folders have the headers of another glibc.
fn sasl(folder: &Path, machine: &str) -> Outcome<PathBuf> {
    provide::sasl()?;
    let own = folder.join("sasl");
    if own.exists() {
        fs::remove_dir_all(&own)?;
    }
    copy_all(Path::new("/usr/include/sasl"), &own.join("include/sasl"))?;
    fs::create_dir_all(own.join("lib"))?;
    let library = format!("/usr/lib/{machine}-linux-gnu/libsasl2.so");
    symlink(
        fs::canonicalize(&library).map_err(|e| format!("{library}: {e}"))?,
        own.join("lib/libsasl2.so"),
    )?;
    Ok(own)
}
