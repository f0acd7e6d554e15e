//! Tables, schemas, columns, roles and databases whose names try to run something: what is printed runs nothing, whoever reads it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::json;
use walferry_testkit::servers::{
    Checked, Postgres, Sql, Surroundings, Walferry, WalferryOptions, folder, postgres_folder, wait_for,
    walferry_program,
};

use crate::world;

/// What somebody may call a table. Each of these would make a file `owned` or a role `owned_…`, if it were read as a command by psql, by a
/// shell or by the server.
const HOSTILE: [&str; 16] = [
    "a\rcreate role owned_cr superuser; --",
    "b\r\\! touch owned #",
    "c\ncreate role owned_lf superuser; --",
    "d\n\\! touch owned #",
    "e\r\n\\! touch owned #",
    "f\u{1b}]0;owned\u{7}\u{9b}2J",
    "g\u{85}\u{2028}\\! touch owned\u{2029}x",
    "h\u{202e}gnp.\u{2066}x",
    "i\"; create role owned_dq; --",
    "j'; create role owned_sq; --",
    "k\\! touch owned",
    ":'password' :var :{?x} l",
    "m$(touch owned)`touch owned`$$",
    "--n; touch owned",
    "-o */ ' \\' \" ; create role owned_c; --",
    // In Shift JIS, the last byte and the quote after it are one character.
    "p\\! touch owned #\u{c1}",
];

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Whether a character moves a cursor, ends a line or turns the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Nothing that was printed controls its reader.
#[track_caller]
pub(crate) fn assert_is_printable(what: &str, printed: &str) {
    for line in printed.lines() {
        assert!(!line.contains(is_control), "{what} printed {line:?}");
        // A name begins no line of its own.
        let begins = line.trim_start();
        assert!(
            !begins.starts_with("\\!") && !begins.starts_with("create role owned"),
            "{what} printed {line:?}"
        );
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A place where commands run, and the server against which they run.
struct Place<'a> {
    folder: PathBuf,
    server: &'a Postgres,
}

impl Place<'_> {
    /// Runs a line as a person would who copies it into a shell, once for each shell.
    #[track_caller]
    fn shell(&self, line: &str) {
        for shell in ["bash", "sh"] {
            let path = format!(
                "{}:{}",
                postgres_folder().display(),
                std::env::var("PATH").unwrap_or_default()
            );
            let mut command = Command::new(shell);
            command
                .args(["-c", line])
                .env("PATH", path)
                .env("CDC_PASSWORD", "x")
                .env("PGPASSWORD", "x");
            command.current_dir(&self.folder).output().expect("there is a shell");
            self.assert_nothing_ran(line);
        }
    }

    /// Runs a script with psql, for which text is in this encoding.
    #[track_caller]
    fn psql(&self, database: &str, script: &str, encoding: &str) -> Output {
        let file = self.folder.join("script.sql");
        fs::write(&file, script).expect("it can be written");
        let mut command = Command::new(postgres_folder().join("psql"));
        command.env("PGCLIENTENCODING", encoding);
        let port = self.server.port().to_string();
        command.args([
            "-X",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            "password=x",
        ]);
        command.args(["-v", "var=public; create role owned_var", "-d"]);
        // A name with an equals sign would be a connection string.
        command.arg(format!(
            "dbname='{}'",
            database.replace('\\', "\\\\").replace('\'', "\\'")
        ));
        let output = command
            .arg("-f")
            .arg(file)
            .current_dir(&self.folder)
            .output()
            .expect("psql is installed");
        self.assert_nothing_ran(script);
        output
    }

    #[track_caller]
    fn assert_nothing_ran(&self, what: &str) {
        assert!(!self.folder.join("owned").exists(), "a command ran: {what}");
        let roles = self
            .server
            .sql()
            .value("select string_agg(rolname, ', ') from pg_roles where rolname like 'owned%'");
        assert_eq!(roles, None, "a statement ran: {what}");
    }
}

/// A database of that name with one schema, one table with a key and one without, each of that name.
fn make(server: &Postgres, name: &str, number: usize) -> Sql {
    let quoted = quoted(name);
    server.sql().run(&format!("create database {quoted}"));
    let sql = server.in_database(name);
    sql.run(&format!(
        "create schema {quoted}; create table {quoted}.{quoted} ({quoted} int primary key);
         create table {quoted}.{} ({quoted} text); create table public.{quoted} (id int);
         insert into {quoted}.{quoted} values (1)",
        self::quoted(&format!("{number}{}", &name[..name.len().min(40)])),
    ));
    sql
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn init(place: &Place<'_>, database: &str, out: &Path, arguments: &[&str]) -> Output {
    let url = format!(
        "postgres://postgres:x@127.0.0.1:{}/{}",
        place.server.port(),
        encoded(database)
    );
    let mut command = Command::new(walferry_program());
    command
        .args(["init", &url, "--out"])
        .arg(out)
        .args(arguments)
        .current_dir(&place.folder);
    command.output().expect("it can be run")
}

#[test]
fn scripts_of_init_run_nothing_but_themselves_whatever_names_there_are() {
    let server = Postgres::start();
    for (number, name) in HOSTILE.into_iter().enumerate() {
        let place = Place {
            folder: folder("hostile"),
            server: &server,
        };
        make(&server, name, number);
        let role = format!("--role=role {name}");
        let key = format!("--table={name}.{name}");
        for (label, arguments) in [
            ("plain", &[][..]),
            ("table", &[key.as_str()]),
            ("outbox", &["--outbox=public.new_outbox"]),
        ] {
            let name_of_it = format!("h{number}_{label}");
            let arguments = [arguments, &["--name", &name_of_it, &role]].concat();
            let output = init(&place, name, &place.folder, &arguments);
            let (said, errors) = (text(&output.stdout), text(&output.stderr));
            assert_is_printable("init", &said);
            assert_is_printable("init", &errors);
            assert!(output.status.success(), "{name:?}: {said}{errors}");
            let script = fs::read_to_string(place.folder.join(format!("{name_of_it}.sql"))).expect("it was written");
            assert_is_printable("the script", &script);
            let connector =
                fs::read_to_string(place.folder.join(format!("{name_of_it}.json"))).expect("it was written");
            assert_is_printable("the connector's file", &connector);
            let ran = place.psql(name, &script, "SJIS");
            assert!(ran.status.success(), "{name:?}: {}\n{script}", text(&ran.stderr));
            // As it is told in the terminal and in the script.
            let told = said
                .lines()
                .find(|line| line.trim_start().starts_with("psql "))
                .expect("it says how");
            place.shell(told);
            let published = server.in_database(name).value(&format!(
                "select count(*) from pg_publication_tables where pubname = '{name_of_it}'"
            ));
            assert_eq!(published.as_deref(), Some("1"), "{name:?} {label}: {script}");
        }
    }
}

#[test]
fn what_check_prints_about_hostile_names_runs_and_controls_nothing() {
    let server = Postgres::start();
    for (number, name) in HOSTILE.into_iter().enumerate() {
        let place = Place {
            folder: folder("hostile"),
            server: &server,
        };
        let sql = make(&server, name, number);
        let role = format!("check {name}");
        sql.run(&format!("create role {} login", quoted(&role)));
        let config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1", "database.port": server.port().to_string(), "database.user": role,
            "database.dbname": name, "topic.prefix": "hostile", "plugin.name": "pgoutput", "slot.name": format!("check_{number}"),
            "publication.name": format!("pub {name}"), "publication.autocreate.mode": "disabled",
        });
        let options = WalferryOptions {
            name: "hostile".into(),
            config: config.as_object().expect("it is one").clone(),
            worker: Vec::new(),
            bootstrap: world::shared().kafka.bootstrap(),
            env: Vec::new(),
        };
        let checked = Checked::of(&options, &["--fix", "--show-records"]);
        assert_is_printable("check", &checked.stdout);
        assert_is_printable("check", &checked.stderr);
        let statements: Vec<&str> = checked
            .stdout
            .lines()
            .skip_while(|line| !line.starts_with("SQL for connector"))
            .skip(1)
            .take_while(|line| line.starts_with("  "))
            .filter(|line| line.trim_start().starts_with("--") || line.ends_with(';'))
            .collect();
        assert!(statements.len() > 3, "{name:?}: {}{}", checked.stdout, checked.stderr);
        let script = statements.join("\n");
        let ran = place.psql(name, &script, "UTF8");
        assert!(ran.status.success(), "{name:?}: {}\n{script}", text(&ran.stderr));
        // It has mended what was found.
        let again = Checked::of(&options, &["--show-records"]);
        assert_is_printable("check", &again.stdout);
        assert_is_printable("check", &again.stderr);
        assert_eq!(again.code, Some(0), "{name:?}: {}{}", again.stdout, again.stderr);
    }
}

#[test]
fn lines_of_the_log_are_one_line_each_whatever_names_there_are() {
    let server = Postgres::start();
    for (number, json) in [(0, false), (1, true)] {
        let database = format!("log_{number}");
        server.sql().run(&format!("create database {database}"));
        let sql = server.in_database(&database);
        for (number, name) in HOSTILE.into_iter().enumerate() {
            sql.run(&format!(
                "create schema {0}; create table {0}.{0} (id int primary key, {0} text); insert into {0}.{0} values (1)",
                quoted(&format!("{number}{}", &name[..name.len().min(50)].trim_end_matches('\u{fffd}')))
            ));
        }
        let config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1", "database.port": server.port().to_string(), "database.user": "postgres",
            "database.dbname": database, "topic.prefix": database, "plugin.name": "pgoutput", "slot.name": database,
            "notification.enabled.channels": "log",
        });
        let options = WalferryOptions {
            name: database,
            config: config.as_object().expect("it is one").clone(),
            worker: Vec::new(),
            bootstrap: world::shared().kafka.bootstrap(),
            env: Vec::new(),
        };
        let arguments = if json {
            vec!["--log-json".to_owned()]
        } else {
            Vec::new()
        };
        let surroundings = Surroundings {
            arguments,
            ..Surroundings::default()
        };
        let mut walferry = Walferry::start_in(options, surroundings);
        wait_for("the tables to be read", || {
            assert!(walferry.runs(), "{}", walferry.output());
            (walferry.output().matches("table read").count() >= HOSTILE.len()).then_some(())
        });
        walferry.terminate();
        let log = walferry.output();
        assert_is_printable("run", &log);
    }
}
