//! Stored offsets: shown, exported, imported, and never taken for another's or for none.

use crate::outbox::{Outbox, assert_runs};
use crate::world;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use walferry_testkit::servers::Walferry;

#[test]
fn offsets_move_to_another_data_directory_as_the_json_of_connect() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "exported");
    let mut first = outbox.start();
    outbox.insert("k", 1, 20);
    world.kafka.wait_for_records(&outbox.topic("order"), 20);
    assert_eq!(first.terminate(), Some(0), "{}", first.output());
    let config = first.config_file();
    let config = config.to_string_lossy();
    let shown = first.command(["offsets", "show", "--config", &config]);
    assert!(shown.status.success(), "{shown:?}");
    let exported = first.command(["offsets", "export", "--config", &config]);
    assert!(exported.status.success(), "{exported:?}");
    let json: Value = serde_json::from_slice(&exported.stdout).expect("the export is JSON");
    let offset = &json["offsets"][0];
    assert_eq!(offset["partition"]["server"], "exported");
    assert!(offset["offset"]["lsn"].is_u64(), "{json}");

    outbox.insert("k", 21, 30);
    let file = first.data_dir().with_extension("json");
    fs::write(&file, &exported.stdout).expect("the folder can be written");
    // A second installation that has never run.
    let mut second = Walferry::start(outbox.options(outbox.config_with([("database.port", "1")])));
    second.kill();
    let second_config = second.config_file();
    let (second_config, file) = (second_config.to_string_lossy(), file.to_string_lossy());
    let imported = second.command(["offsets", "import", "--config", &second_config, &file]);
    assert!(imported.status.success(), "{imported:?}");
    second.options().config = outbox.config();
    second.start_again();
    outbox.wait_until_streaming(&mut second);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 30);
    assert_eq!(records.len(), 30, "the import repeats nothing");
    assert_runs(&records, &["k"], 30);
}

#[test]
fn a_damaged_offset_is_never_a_fresh_start() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "damaged");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let files: Vec<PathBuf> = files(&walferry.data_dir())
        .into_iter()
        .filter(|path| {
            fs::read(path).is_ok_and(|bytes| bytes.windows(5).any(|part| part == b"\"lsn\"" || part == b"lsn\\\""))
        })
        .collect();
    assert!(
        !files.is_empty(),
        "no file under {} holds an offset",
        walferry.data_dir().display()
    );
    for file in files {
        let mut bytes = fs::read(&file).expect("the file was just read");
        bytes.truncate(bytes.len() / 2);
        fs::write(&file, bytes).expect("the file can be written");
    }
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(4), "{}", walferry.output());
}

#[test]
fn two_processes_do_not_share_a_data_directory() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "locked");
    let walferry = outbox.start();
    let config = walferry.config_file();
    let bootstrap = world.kafka.bootstrap();
    let args = [
        "run",
        "--config",
        &config.to_string_lossy(),
        "--bootstrap-servers",
        &bootstrap,
        "--admin",
        "127.0.0.1:0",
    ];
    let second = walferry.command(args);
    assert_eq!(second.status.code(), Some(4), "{second:?}");
}

#[test]
fn a_slot_that_was_moved_by_someone_else_is_a_gap() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "gap");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    outbox.insert("k", 6, 10);
    outbox.database.sql().wait_for_free_slot(&outbox.slot());
    outbox.database.sql().run(&format!(
        "select pg_replication_slot_advance('{}', pg_current_wal_insert_lsn())",
        outbox.slot()
    ));
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    assert!(
        walferry.output().contains("offset.mismatch.strategy"),
        "{}",
        walferry.output()
    );
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}
