//! The README's commands for one's own Postgres, run as they stand there.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use walferry_testkit::servers::{Walferry, WalferryOptions, folder, walferry_program};

use crate::world;

/// The lines of the first listing below a heading of the README.
fn listing(heading: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is a folder of the checkout");
    let readme = fs::read_to_string(root.join("README.md")).expect("the README is text");
    let (_, section) = readme.split_once(heading).expect("the README has the section");
    let listing = section.split("```").nth(1).expect("it has a listing");
    listing.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn the_lines_of_the_readme_send_the_rows_of_two_tables() {
    let world = world::shared();
    let database = world.postgres.database("shop");
    database.sql().run(
        "create table customers (id int primary key, name text);
         create table orders (id int primary key, total numeric(10,2));
         create table salaries (id int primary key, amount int);
         insert into customers values (1, 'Ada');
         insert into salaries values (1, 4711)",
    );
    let lines = listing("\n## Your own Postgres\n");
    let out = folder("readme");
    let programs = folder("readme-programs");
    std::os::unix::fs::symlink(walferry_program(), programs.join("walferry")).expect("the folder can be written");
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap_or_default());
    // The line that begins so, with the addresses of the test in it.
    let line = |begin: &str| {
        let line = lines
            .iter()
            .find(|line| line.starts_with(begin))
            .unwrap_or_else(|| panic!("the README has no line {begin}"));
        let line = line.replace("localhost:5432", &format!("127.0.0.1:{}", database.port()));
        let line = line.replace("localhost:9092", &world.kafka.bootstrap());
        line.split("  #").next().unwrap_or_default().trim().to_owned()
    };
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&out);
        command
            .env("PATH", &path)
            .env("CDC_PASSWORD", "secret")
            .env_remove("PGPASSWORD");
        command
    };
    let done = |line: String| {
        let output = shell(&line).output().expect("there is a shell");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        said
    };

    done(line("walferry init"));
    assert_eq!(line("export CDC_PASSWORD"), "export CDC_PASSWORD=secret");
    // Not every machine of the tests has psql.
    assert!(line("psql").ends_with("-v password=\"$CDC_PASSWORD\" -f shop.sql"));
    let sql = fs::read_to_string(out.join("shop.sql")).expect("init has written it");
    // The script pins the path of its session, which ends with psql.
    database.sql().run(&format!(
        "{}; reset search_path",
        sql.replace(":'password'", "'secret'")
    ));

    let mut tail = shell(&format!("exec {} --limit 1", line("walferry tail")));
    let mut tail = tail
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut told = BufReader::new(tail.stderr.take().expect("it is piped"));
    let mut before = String::new();
    while !before.contains("Waiting for changes of ") {
        assert_ne!(told.read_line(&mut before).expect("it is text"), 0, "{before}");
    }
    database
        .sql()
        .run("insert into salaries values (2, 4712); insert into customers values (2, 'Grace')");
    let shown = tail.wait_with_output().expect("it ends after one record");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("Grace") && !shown.contains("4712"), "{shown}");

    let checked = done(line("walferry check"));
    assert!(checked.contains("nothing prevents a start"), "{checked}");
    assert!(
        checked.contains("captured: public.customers, public.orders"),
        "{checked}"
    );

    let run = line("walferry run");
    let bootstrap = world.kafka.bootstrap();
    let words = "walferry run --config shop.json --bootstrap-servers BOOTSTRAP --data-dir ./state";
    assert_eq!(
        run.split_whitespace().collect::<Vec<_>>().join(" "),
        words.replace("BOOTSTRAP", &bootstrap)
    );
    let file = fs::read_to_string(out.join("shop.json")).expect("init has written it");
    let file: Value = serde_json::from_str(&file).expect("the file is JSON");
    let mut walferry = Walferry::start(WalferryOptions {
        name: "shop".into(),
        config: file["config"].as_object().expect("it has properties").clone(),
        worker: Vec::new(),
        bootstrap,
        env: vec![("CDC_PASSWORD".into(), "secret".into())],
    });
    let customers = world.kafka.wait_for_records("shop.public.customers", 2);
    let customer = String::from_utf8_lossy(customers[0].value.as_deref().expect("a row has a value")).into_owned();
    assert!(customer.contains("Ada"), "{customer}");
    // The existing rows are read; what follows comes through the publication.
    walferry.wait_until_ready();
    database
        .sql()
        .run("insert into salaries values (3, 4713); insert into orders values (1, 9.90)");
    let orders = world.kafka.wait_for_records("shop.public.orders", 1);
    let order = orders[0].value_text().expect("a row has a value");
    assert!(
        order.contains(r#""total":"9.90""#),
        "a person can read amounts: {order}"
    );
    walferry.terminate();
    let topics = world.kafka.topics();
    assert!(!topics.iter().any(|topic| topic.contains("salaries")), "{topics:?}");
    database.sql().drop_slot("shop");
    database.sql().run("drop owned by walferry; drop role walferry");
}
