//! Where the servers' programs are.

use std::env;
use std::path::PathBuf;

/// The `java` program that runs Kafka and Kafka Connect.
pub fn java() -> PathBuf {
    place("WALFERRY_TEST_JAVA")
}

/// The folder with the jars of Kafka, Kafka Connect and Debezium.
pub fn jars() -> PathBuf {
    place("WALFERRY_TEST_JARS")
}

/// The folder of the schema registry's program.
pub(super) fn registry() -> PathBuf {
    place("WALFERRY_TEST_REGISTRY")
}

/// The `plugin.path` with converters that use a schema registry.
pub fn converters() -> PathBuf {
    place("WALFERRY_TEST_CONVERTERS")
}

/// The folder with Debezium's transforms that evaluate expressions, and with Groovy.
pub fn scripting() -> PathBuf {
    place("WALFERRY_TEST_SCRIPTING")
}

/// The folder of `initdb` and `postgres`.
pub fn postgres() -> PathBuf {
    place("WALFERRY_TEST_POSTGRES")
}

/// The program of PgBouncer, and the folders of its libraries.
pub(super) fn pgbouncer() -> (PathBuf, String) {
    let libraries = env::var("WALFERRY_TEST_PGBOUNCER_LIBRARIES").unwrap_or_default();
    (place("WALFERRY_TEST_PGBOUNCER"), libraries)
}

/// The program of Prometheus.
pub(super) fn prometheus() -> PathBuf {
    place("WALFERRY_TEST_PROMETHEUS")
}

/// The program of the OpenTelemetry Collector.
pub(super) fn collector() -> PathBuf {
    place("WALFERRY_TEST_COLLECTOR")
}

/// The Walferry program under test: the one built beside this test unless the environment names another.
pub fn walferry() -> PathBuf {
    if let Some(program) = env::var_os("WALFERRY_TEST_WALFERRY") {
        return program.into();
    }
    let test = env::current_exe().expect("a running test has a path");
    let program = test
        .ancestors()
        .nth(2)
        .expect("tests lie in target/<profile>/deps")
        .join("walferry");
    assert!(
        program.is_file(),
        "{} is not built: run `cargo xtask test e2e`",
        program.display()
    );
    program
}

fn place(variable: &str) -> PathBuf {
    let place = env::var_os(variable).map(PathBuf::from);
    let place = place.unwrap_or_else(|| {
        panic!("{variable} is not set: run the test by `cargo xtask test`, which brings the servers")
    });
    assert!(
        place.exists(),
        "{variable} names {}, which is not there: run the test by `cargo xtask test`",
        place.display()
    );
    place
}
