//! The programs of `examples/`, by the commands of their READMEs: from the outbox to the inbox, with kills in the middle. Run by
//! `cargo xtask test examples`.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{
    Database, Kafka, Postgres, Walferry, WalferryOptions, folder, wait_for, wait_while_it_grows, walferry_program,
};

const TOPIC: &str = "outbox.event.order";
/// More orders than are written before the program is killed.
const TOO_MANY: i64 = 100_000;
/// Orders of a program that is not killed: more than a consumer ships before it is.
const MORE: i64 = 1_000;
/// How many orders are written while Walferry does not run.
const UNSENT: i64 = 20;

#[test]
fn python_ships_each_order_once() {
    ships_each_order_once("python");
}

#[test]
fn node_ships_each_order_once() {
    ships_each_order_once("node");
}

#[test]
fn go_ships_each_order_once() {
    ships_each_order_once("go");
}

#[test]
fn java_ships_each_order_once() {
    ships_each_order_once("java");
}

/// The commands of the page above the languages: the tables, and Walferry.
#[test]
fn the_start_of_the_examples_works_as_it_is_written() {
    let (postgres, kafka) = (Postgres::start(), Kafka::start());
    let database = postgres.database("shop");
    let folder = folder("examples");
    copy(&root().join("examples"), &folder);
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).expect("the scratch folder can be written");
    symlink(walferry_program(), programs.join("walferry")).expect("the scratch folder can be written");
    let readme = read(&folder.join("README.md"));
    let here = |text: &str| {
        let postgres = format!("127.0.0.1:{}", database.port());
        text.replace("localhost:5432", &postgres)
            .replace("localhost:9092", &kafka.bootstrap())
    };
    let exports = here(&block(&readme, "Start").join("\n"));
    let start = nth_block(&readme, "Start", 1);
    let [psql, run] = start.as_slice() else {
        panic!("{start:?} should be two commands")
    };
    // Not every machine of the tests has psql.
    assert_eq!(*psql, "psql \"$DATABASE_URL\" --file schema.sql");
    database.sql().run(&read(&folder.join("schema.sql")));
    // "change it if yours is elsewhere"
    let file = folder.join("walferry.json");
    let text = read(&file);
    let text = text.replace("\"localhost\"", "\"127.0.0.1\"");
    let text = text.replace("\"5432\"", &format!("\"{}\"", database.port()));
    fs::write(&file, text).expect("the scratch folder can be written");
    let log = fs::File::create(folder.join("walferry.log")).expect("the scratch folder can be written");
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap_or_default());
    let child = Command::new("sh")
        .args(["-c", &format!("{exports}\nexec {run} --admin 127.0.0.1:0")])
        .env("PATH", path)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file handle can be doubled"))
        .stderr(log)
        .spawn()
        .expect("there is a shell");
    let mut walferry = Running(child);
    wait_for("the slot to be streamed", || {
        let log = || fs::read_to_string(folder.join("walferry.log")).unwrap_or_default();
        assert!(walferry.runs(), "walferry ended:\n{}", log());
        (database.streams() > 0).then_some(())
    });
    database.sql().run(
        "insert into outbox (aggregatetype, aggregateid, type, payload) values ('order', '1', 'OrderPlaced', '{}')",
    );
    kafka.wait_for_records(TOPIC, 1);
    walferry.kill();
    database.sql().drop_slot("shop");
}

#[test]
fn the_tables_of_the_examples_are_those_that_the_commands_print() {
    let schema = read(&root().join("examples/schema.sql"));
    for args in [
        &["outbox", "create", "--publication", "shop"][..],
        &["inbox", "create", "--id-type", "uuid"],
    ] {
        let output = Command::new(walferry_program()).args(args).output();
        let output = output.expect("the program can be run");
        let printed = String::from_utf8(output.stdout).expect("it is text");
        assert!(
            !printed.trim().is_empty() && schema.contains(printed.trim()),
            "{args:?} prints:\n{printed}"
        );
    }
}

/// A copy of an example, with its servers.
struct Example {
    folder: PathBuf,
    database: Database,
    kafka: Kafka,
    connector: Map<String, Value>,
    place: String,
    ship: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is a folder of the checkout")
}

#[track_caller]
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()))
}

/// The lines of the first block of shell commands below a heading.
#[track_caller]
fn block<'a>(readme: &'a str, heading: &str) -> Vec<&'a str> {
    nth_block(readme, heading, 0)
}

/// The lines of a later block.
#[track_caller]
fn nth_block<'a>(readme: &'a str, heading: &str, nth: usize) -> Vec<&'a str> {
    let (_, below) = readme
        .split_once(&format!("## {heading}\n"))
        .unwrap_or_else(|| panic!("the README has no heading {heading}"));
    let commands = below.split("```sh\n").nth(nth + 1).expect("commands are below it");
    commands.lines().take_while(|line| *line != "```").collect()
}

/// Copies the files of a folder and of the folders below it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the scratch folder can be written");
    for entry in fs::read_dir(from).expect("the example is a folder") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            // What a person has built there.
            true if [".venv", "node_modules", "bin", "target", "__pycache__"]
                .iter()
                .any(|name| entry.file_name() == *name) => {}
            true => copy(&entry.path(), &target),
            false => {
                fs::copy(entry.path(), target).expect("it can be copied");
            }
        }
    }
}

impl Example {
    #[track_caller]
    fn install(language: &str, postgres: &Postgres) -> Self {
        let folder = folder("example").join(language);
        copy(&root().join("examples").join(language), &folder);
        let readme = read(&folder.join("README.md"));
        for command in block(&readme, "Install") {
            let output = Command::new("sh").args(["-c", command]).current_dir(&folder).output();
            let output = output.expect("there is a shell");
            assert!(
                output.status.success(),
                "{command}: {}\n{}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let run = block(&readme, "Run");
        let [place, ship] = run.as_slice() else {
            panic!("{run:?} should be two commands")
        };
        let database = postgres.database(&format!("example_{language}"));
        // The names of slots and publications are those of the file: slots belong to the server, so they get the name of the language.
        database.sql().run(&read(&root().join("examples/schema.sql")));
        let file: Value =
            serde_json::from_str(&read(&root().join("examples/walferry.json"))).expect("the file is JSON");
        let mut connector = file["config"].as_object().expect("it has properties").clone();
        for (property, value) in [
            ("database.hostname", "127.0.0.1".to_owned()),
            ("database.port", database.port().to_string()),
            ("database.password", "unused".to_owned()),
            ("database.dbname", database.name().to_owned()),
            ("slot.name", format!("example_{language}")),
        ] {
            let known = connector.insert(property.into(), value.into());
            assert!(known.is_some(), "the file has {property}");
        }
        let kafka = Kafka::start();
        kafka.create_topic(TOPIC, 1);
        Self {
            place: (*place).to_owned(),
            ship: (*ship).to_owned(),
            folder,
            database,
            kafka,
            connector,
        }
    }

    fn walferry(&self) -> Walferry {
        Walferry::start(WalferryOptions {
            name: "shop".into(),
            config: self.connector.clone(),
            worker: Vec::new(),
            bootstrap: self.kafka.bootstrap(),
            env: Vec::new(),
        })
    }

    /// Starts one of its programs. Its output goes to a file.
    fn start(&self, command: &str, log: &str) -> Running {
        let file = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(log))
            .expect("the folder can be written");
        let copy = file.try_clone().expect("a file handle can be doubled");
        let child = Command::new("sh")
            // The shell becomes the program, so that a kill reaches it.
            .args(["-c", &format!("exec {command}")])
            .env(
                "DATABASE_URL",
                format!(
                    "postgres://postgres:unused@127.0.0.1:{}/{}",
                    self.database.port(),
                    self.database.name()
                ),
            )
            .env("KAFKA_BOOTSTRAP", self.kafka.bootstrap())
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .expect("there is a shell");
        Running(child)
    }

    fn count(&self, of: &str) -> i64 {
        let count = self.database.sql().value(&format!("select {of}")).expect("a number");
        count.parse().expect("a number")
    }

    fn log(&self, log: &str) -> String {
        fs::read_to_string(self.folder.join(log)).unwrap_or_default()
    }

    /// Sends all events once more.
    #[track_caller]
    fn replay(&self) {
        let file = self.folder.join("connector.json");
        let connector = json!({ "name": "shop", "config": self.connector });
        fs::write(&file, connector.to_string()).expect("the folder can be written");
        let output = Command::new(walferry_program())
            .args(["outbox", "replay", "--all", "--yes", "--config"])
            .arg(&file)
            .args(["--bootstrap-servers", &self.kafka.bootstrap()])
            .current_dir(&self.folder)
            .output()
            .expect("it can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A program that is killed when the test ends.
struct Running(Child);

impl Running {
    fn kill(&mut self) {
        // It may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

#[track_caller]
fn ships_each_order_once(language: &str) {
    let postgres = Postgres::start();
    let example = Example::install(language, &postgres);
    let mut walferry = example.walferry();
    wait_for("the slot to be streamed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (example.database.streams() > 0).then_some(())
    });
    let (place, _) = example
        .place
        .rsplit_once(' ')
        .expect("it ends with the number of orders");
    let orders = || example.count("count(*) from orders");

    // The first one is killed while it writes.
    let mut first = example.start(&format!("{place} {TOO_MANY}"), "place.log");
    wait_for("some orders", || {
        assert!(first.runs(), "no more orders:\n{}", example.log("place.log"));
        (orders() >= 50).then_some(())
    });
    first.kill();
    let killed_at = orders();
    assert!((50..TOO_MANY).contains(&killed_at), "{killed_at}: it was at its end");

    // The next one writes to its end. Walferry is killed meanwhile, and does not run when the third one writes.
    let second = example.start(&format!("{place} {MORE}"), "place.log");
    wait_for("some more orders", || (orders() >= killed_at + 50).then_some(()));
    let sent = || -> i64 { example.kafka.ends(&[TOPIC.to_owned()]).values().sum() };
    example.kafka.wait_for_records(TOPIC, 50);
    walferry.kill();
    let wait = |mut place: Running| {
        let ended = place.0.wait().expect("it is ours");
        assert!(ended.success(), "{}", example.log("place.log"));
    };
    wait(second);
    wait(example.start(&format!("{place} {UNSENT}"), "place.log"));
    let orders = orders();
    // The server may have been at the commit of one more when the first one was killed.
    let late = orders - killed_at - MORE - UNSENT;
    assert!(
        (0..=1).contains(&late),
        "{orders} orders, {killed_at} before {MORE} and {UNSENT} more"
    );
    assert_eq!(
        example.count("count(*) from outbox"),
        orders,
        "an order without its event, or an event without its order"
    );

    // The consumer is killed before it has all of them: some are not in Kafka yet.
    let sent_at_first = sent();
    assert!(
        sent_at_first <= orders - UNSENT,
        "{sent_at_first} events of {orders} were sent by nobody"
    );
    let wait_until = |ship: &mut Running, what: &str, query: &str, least: i64| {
        wait_while_it_grows(what, || {
            assert!(ship.runs(), "the consumer ended:\n{}", example.log("ship.log"));
            let there = example.count(query);
            (there >= least)
                .then_some(())
                .ok_or_else(|| usize::try_from(there).expect("it is a count"))
        });
    };
    let mut ship = example.start(&example.ship, "ship.log");
    wait_until(&mut ship, "some shipments", "count(*) from shipments", 50);
    ship.kill();
    let shipped = example.count("count(*) from shipments");
    assert!(
        (50..=sent_at_first).contains(&shipped),
        "{shipped} of {sent_at_first} are shipped"
    );

    // Walferry is killed once more after it has sent some.
    walferry.start_again();
    wait_for("more events", || (sent() > sent_at_first).then_some(()));
    walferry.kill();
    walferry.start_again();
    let mut ship = example.start(&example.ship, "ship.log");
    wait_until(&mut ship, "all shipments", "count(*) from shipments", orders);
    // All events come once more, and then a new one.
    example.replay();
    let mut one = example.start(&format!("{place} 1"), "place.log");
    wait_until(
        &mut ship,
        "the shipment of the last order",
        "count(*) from shipments",
        orders + 1,
    );
    assert!(
        one.0.wait().expect("it is ours").success(),
        "{}",
        example.log("place.log")
    );

    assert_eq!(example.count("count(*) from shipments"), orders + 1);
    assert_eq!(example.count("count(distinct order_id) from shipments"), orders + 1);
    assert_eq!(
        example.count("count(*) from orders where id in (select order_id from shipments)"),
        orders + 1
    );
    assert_eq!(example.count("count(*) from inbox"), orders + 1);
    let repeated = example.log("ship.log").matches("seen before").count();
    assert!(
        repeated as i64 >= orders,
        "only {repeated} of {orders} events came twice"
    );
    // It ends by itself when it is told to.
    let ended = Command::new("kill").arg(ship.0.id().to_string()).status();
    assert!(ended.expect("there is a shell").success());
    let ended = wait_for("the consumer to end", || ship.0.try_wait().expect("it is ours"));
    let code = ended.code();
    assert!(matches!(code, Some(0 | 143)), "{ended}:\n{}", example.log("ship.log"));
}
