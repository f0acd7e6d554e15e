//! Brings the servers that tests stand on, once, into a cache folder: Debian packages where this
//! process may install them, what Maven carries otherwise.

mod apt;
mod debian;
mod java;
mod maven;
mod postgres;
mod tools;

pub(crate) use debian::{package as debian_package, prometheus, promtool};
pub(crate) use tools::{browser, collector, dashboard_checker, helm, kubernetes_validate, tool};

use crate::{Outcome, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the servers' programs are. Tests learn it from the environment (`walferry_testkit::servers`).
pub(crate) struct Servers {
    java: PathBuf,
    jars: PathBuf,
    registry: PathBuf,
    converters: PathBuf,
    scripting: PathBuf,
    postgres_bin: PathBuf,
    /// Without it, the tests that need it fail, and say so.
    pgbouncer: Option<debian::PgBouncer>,
}

impl Servers {
    /// The program that runs what is written in Java.
    pub(crate) fn java(&self) -> &Path {
        &self.java
    }

    /// The major version of Postgres.
    pub(crate) fn postgres_major(&self) -> Outcome<u32> {
        postgres::major_of(&self.postgres_bin.join("postgres"))
    }

    /// Puts the places into the environment of a command that runs tests.
    pub(crate) fn tell(&self, command: &mut Command) {
        command
            .env("WALFERRY_TEST_JAVA", &self.java)
            .env("WALFERRY_TEST_JARS", &self.jars)
            .env("WALFERRY_TEST_REGISTRY", &self.registry)
            .env("WALFERRY_TEST_CONVERTERS", &self.converters)
            .env("WALFERRY_TEST_SCRIPTING", &self.scripting)
            .env("WALFERRY_TEST_POSTGRES", &self.postgres_bin);
        if let Some(pgbouncer) = &self.pgbouncer {
            command
                .env("WALFERRY_TEST_PGBOUNCER", &pgbouncer.program)
                .env("WALFERRY_TEST_PGBOUNCER_LIBRARIES", &pgbouncer.libraries);
        }
    }
}

/// Finds or fetches Postgres, PgBouncer, a JVM, the jars of Kafka, Kafka Connect and Debezium, and a schema registry.
pub(crate) fn servers(postgres: Option<u32>) -> Outcome<Servers> {
    Ok(Servers {
        postgres_bin: postgres::bin(postgres)?,
        java: java::newest()?,
        jars: maven::jars()?,
        registry: maven::registry()?,
        converters: maven::converters()?,
        scripting: maven::scripting()?,
        pgbouncer: debian::pgbouncer()
            .map_err(|error| println!("without PgBouncer: {error}"))
            .ok(),
    })
}

/// Major versions of Postgres on which all tests hold. [`servers`] brings older ones, too.
pub(crate) fn postgres_versions() -> impl Iterator<Item = u32> {
    postgres::versions()
}

/// Finds or fetches a Postgres alone: the folder of its programs.
pub(crate) fn postgres() -> Outcome<PathBuf> {
    postgres::bin(None)
}

/// Whether Debian's packages may be used here.
pub(crate) fn has_packages() -> bool {
    apt::allowed()
}

/// What a build with Kerberos needs.
pub(crate) fn sasl() -> Outcome {
    packages("a build with Kerberos", &[("/usr/include/sasl/sasl.h", "libsasl2-dev")])
}

/// What a build with Kerberos needs, and what its tests run.
pub(crate) fn kerberos() -> Outcome {
    sasl()?;
    let wanted = [
        ("/usr/bin/kinit", "krb5-user"),
        ("/usr/sbin/krb5kdc", "krb5-kdc"),
        ("/usr/sbin/kadmin.local", "krb5-admin-server"),
        (
            "/usr/share/doc/libsasl2-modules-gssapi-mit",
            "libsasl2-modules-gssapi-mit",
        ),
    ];
    packages("a test of Kerberos", &wanted)
}

/// What boots a systemd of its own.
pub(crate) fn systemd() -> Outcome {
    let wanted = [
        ("/usr/bin/systemd-nspawn", "systemd-container"),
        ("/usr/lib/systemd/systemd", "systemd"),
    ];
    packages("a test of the service", &wanted)
}

/// Installs the packages whose files are missing.
fn packages(what: &str, wanted: &[(&str, &'static str)]) -> Outcome {
    let missing = wanted.iter().filter(|(file, _)| !PathBuf::from(file).exists());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    match missing.as_slice() {
        [] => Ok(()),
        _ if apt::allowed() => apt::install(&missing),
        _ => Err(format!("{what} needs {} (names of Debian's packages)", missing.join(", ")).into()),
    }
}

/// What building librdkafka needs beside a C compiler.
pub(crate) fn build_dependencies() -> Outcome {
    let mut missing = Vec::new();
    for (program, package) in [
        ("cc", "gcc"),
        ("c++", "g++"),
        ("make", "make"),
        ("pkg-config", "pkg-config"),
    ] {
        if shell::find(program).is_none() {
            missing.push(package);
        }
    }
    for (header, package) in [("openssl/ssl.h", "libssl-dev"), ("zlib.h", "zlib1g-dev")] {
        if !["/usr/include", "/usr/local/include"]
            .iter()
            .any(|folder| PathBuf::from(folder).join(header).is_file())
        {
            missing.push(package);
        }
    }
    if missing.is_empty() || !apt::allowed() {
        // Where nothing may be installed the compiler's own message says what it lacks.
        return Ok(());
    }
    apt::install(&missing)
}
