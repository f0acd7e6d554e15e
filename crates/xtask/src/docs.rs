//! `cargo xtask docs`: the pages under `docs/reference`, written from the declarations in the code.

use crate::{Outcome, shell};
use std::fs;
use std::path::PathBuf;

/// A page: where it stands, and what it says.
struct Page {
    path: &'static str,
    text: String,
}

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from the declarations in the code; a test fails when it is stale. -->

Names, defaults and allowed values are those of Debezium's connector and of Kafka Connect; see
[compatibility](../compatibility.md) for what differs. A property that is not listed here is a warning with the nearest name
that is, never an error. **Refused** says that the property would change what is sent and is not honoured yet;
**no effect** that leaving it out changes nothing here.";

fn pages() -> [Page; 2] {
    let groups = [
        walferry_config::CONNECTOR_GROUPS,
        walferry_transform::GROUPS,
        walferry_converter::GROUPS,
        walferry_config::WORKER_GROUPS,
    ];
    let configuration =
        walferry_config::reference_markdown("Configuration", INTRODUCTION, groups.into_iter().flatten());
    [
        Page {
            path: "docs/reference/configuration.md",
            text: configuration,
        },
        Page {
            path: "docs/reference/metrics.md",
            text: walferry_telemetry::reference(),
        },
    ]
}

impl Page {
    fn file(&self) -> PathBuf {
        shell::root().join(self.path)
    }
}

pub(crate) fn run() -> Outcome {
    for page in pages() {
        fs::write(page.file(), &page.text).map_err(|e| format!("{}: {e}", page.path))?;
        println!("wrote {}", page.path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn pages_are_what_the_declarations_say() {
        for page in super::pages() {
            let text = std::fs::read_to_string(page.file()).unwrap_or_default();
            assert!(text == page.text, "{} is stale: run `cargo xtask docs`", page.path);
        }
    }
}
