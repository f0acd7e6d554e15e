//! Any text as a file that a user hands over: a connector or a worker, in any of the forms that are known.
#![no_main]

use std::{io, path::Path, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use walferry_config::{Connector, Findings, Lookup, Submitted, Worker, limited};
use walferry_engine::history::Lineage;
use walferry_transform::Chain;

/// One variable and one file.
struct Surroundings;

impl Lookup for Surroundings {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "V").then(|| "of the variable".to_owned())
    }
    fn file(&self, path: &Path) -> io::Result<String> {
        match path.to_str() {
            Some("/f") => Ok("key=of the file\n".to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// So many properties of an input are read as those of a connector.
const MOST_PROPERTIES: usize = 10;

static WORKER: LazyLock<Worker> = LazyLock::new(Worker::default);

fn format_all(findings: &Findings) {
    for finding in findings.iter() {
        drop(finding.to_string());
    }
}

fuzz_target!(|text: &str| {
    if text.len() > 2000 {
        return;
    }
    let _ = limited(|| {
        if let Ok((submitted, findings)) = Submitted::from_properties(text) {
            format_all(&findings);
            if submitted.properties.len() <= MOST_PROPERTIES {
                format_all(&Worker::read(&submitted, &Surroundings).1);
            }
        }
        match Submitted::read(text) {
            Ok((mut submitted, findings)) => {
                format_all(&findings);
                // Each unknown name is compared with all known ones.
                submitted.properties.truncate(MOST_PROPERTIES);
                let check = |plugins: &walferry_config::connector::Plugins| {
                    Chain::new(&plugins.transforms, &plugins.predicates).1
                };
                let (connector, findings) = Connector::read(&submitted, Some("c"), &WORKER, &Surroundings, &check);
                format_all(&findings);
                assert_eq!(connector.is_none(), findings.has_problems());
            }
            Err(error) => drop((error.to_string(), error.hint().len())),
        }
    });
    // The answer to TIMELINE_HISTORY.
    let lineage = Lineage::read(7, text);
    let _ = lineage.parts_from(&Lineage::read(9, text));
});
