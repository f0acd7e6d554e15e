//! `cargo xtask docs`: the pages under `docs/reference`, written from the declarations in the code.

use crate::{Outcome, shell};
use std::fs;

/// Written by the crate that links the Kafka client, which declares what is on it.
const KAFKA_CLIENT: &str = "docs/reference/kafka-client.md";

pub(crate) fn run() -> Outcome {
    shell::run(&mut shell::cargo(["run", "--quiet", "--package", "walferry-reference"]))?;
    let text = shell::output(&mut shell::cargo([
        "run",
        "--quiet",
        "--package",
        "walferry-kafka",
        "--example",
        "reference",
    ]))?;
    fs::write(shell::root().join(KAFKA_CLIENT), text).map_err(|e| format!("{KAFKA_CLIENT}: {e}"))?;
    println!("wrote {KAFKA_CLIENT}");
    Ok(())
}
