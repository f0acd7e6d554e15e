//! Commands whose output nobody reads to its end.

use std::{fs, io, process::Command};

#[test]
fn a_command_whose_output_is_cut_off_ends_quietly() {
    let folder = std::env::temp_dir().join(format!("walferry-unread-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    let config = folder.join("connector.json");
    let connector = r#"{"name": "c", "config": {"plugin.name": "pgoutput", "topic.prefix": "p", "database.hostname": "localhost",
        "database.user": "u", "database.password": "p", "database.dbname": "d", "transforms": ""}}"#;
    fs::write(&config, connector).expect("it can be written");
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_walferry"))
        .args(["offsets", "show", "--config"])
        .arg(&config)
        .arg("--data-dir")
        .arg(&folder)
        .stdout(writer)
        .output()
        .expect("it can be run");
    fs::remove_dir_all(&folder).expect("it was made here");
    // As a shell says it of a program that SIGPIPE has ended.
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
