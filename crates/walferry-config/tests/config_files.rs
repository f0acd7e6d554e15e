//! Every file in `config/` is one that a user can take as it is.

use std::io;
use std::path::{Path, PathBuf};

use walferry_config::{Connector, Findings, Lookup, Submitted, Worker};

/// Every reference has a value.
struct Everything;

impl Lookup for Everything {
    fn variable(&self, _: &str) -> Option<String> {
        Some("value".to_owned())
    }

    fn file(&self, _: &Path) -> io::Result<String> {
        Ok("db.user=app\ndb.password=secret\n".to_owned())
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect()
}

fn texts(findings: &Findings) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn every_example_is_read_without_anything_to_tell() {
    let files = files();
    assert!(files.len() >= 6, "{files:?}");
    let worker_file = files.iter().find(|file| file.ends_with("worker.properties")).unwrap();
    let (submitted, findings) = Submitted::read(&std::fs::read_to_string(worker_file).unwrap()).unwrap();
    assert_eq!(texts(&findings), Vec::<String>::new());
    let (worker, findings) = Worker::read(&submitted, &Everything);
    assert_eq!(texts(&findings), Vec::<String>::new());
    let worker = worker.unwrap();

    for file in files.iter().filter(|file| *file != worker_file) {
        let text = std::fs::read_to_string(file).unwrap();
        let (submitted, findings) = Submitted::read(&text).unwrap();
        assert_eq!(texts(&findings), Vec::<String>::new(), "{}", file.display());
        for worker in [&worker, &Worker::default()] {
            let (connector, findings) =
                Connector::read(&submitted, None, worker, &Everything, &|_| Findings::default());
            assert_eq!(texts(&findings), Vec::<String>::new(), "{}", file.display());
            assert!(connector.is_some(), "{}", file.display());
        }
    }
}
