//! What the stream has brought before any query shows it: its commit waits for a synchronous standby.

use std::thread::{self, JoinHandle};

use walferry_testkit::servers::{Database, Kafka, Postgres, PostgresOptions, Sql, Walferry, WalferryOptions, wait_for};

use crate::{signals, world};

const NAME: &str = "unseen";
const TOPIC: &str = "unseen.public.items";

/// What the log says.
const CONNECTED: &str = "streaming slot.name";
const FOUND: &str = "it is read again";
const COMPLETED: &str = "the incremental snapshot is complete";

/// A statement whose commit waits for a standby that is gone. However the test ends, it waits no longer then: the server would not
/// stop.
struct Waiting<'a> {
    sql: &'a Sql,
    pid: String,
    commits: Option<JoinHandle<()>>,
}

impl<'a> Waiting<'a> {
    fn new(sql: &'a Sql, other: Sql, statement: String) -> Self {
        let commits = thread::spawn(move || other.run(&format!("set synchronous_commit = on; {statement}")));
        let pid = wait_for("the commit to wait", || {
            sql.value("select pid from pg_stat_activity where wait_event = 'SyncRep'")
        });
        Self {
            sql,
            pid,
            commits: Some(commits),
        }
    }

    /// The transaction is committed: only the wait is cancelled.
    fn end(mut self) {
        self.cancel();
        self.commits
            .take()
            .map(JoinHandle::join)
            .transpose()
            .expect("it commits");
    }

    fn cancel(&self) {
        self.sql.run(&format!("select pg_cancel_backend({})", self.pid));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.commits.is_some() {
            self.cancel();
        }
    }
}

fn begin(kafka: &Kafka, database: &Database) -> Walferry {
    let mut config = signals::config(NAME, database, &[("read.only", "true")]);
    config.remove("signal.data.collection");
    let mut walferry = Walferry::start(WalferryOptions {
        name: NAME.to_owned(),
        config,
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    walferry
}

fn pause_and_resume(walferry: &Walferry) {
    walferry.ask("PUT", &format!("/connectors/{NAME}/pause"));
    // A connector that is resumed before it has paused goes on as it was.
    wait_for("it to be paused", || {
        let status = walferry.get(&format!("/connectors/{NAME}/status"))?;
        (status.json()["connector"]["state"] == "PAUSED").then_some(())
    });
    walferry.ask("PUT", &format!("/connectors/{NAME}/resume"));
}

fn wait_for_row(kafka: &Kafka, id: usize, v: &str) {
    let key = format!("{{\"id\":{id}}}");
    wait_for(&format!("row {id} to be {v}"), || {
        let rows = signals::rebuilt(&kafka.wait_for_records(TOPIC, 1));
        (rows.get(&key).map(String::as_str) == Some(v)).then_some(())
    });
}

/// A snapshot beside the stream sends no row as it was before a change that was sent, also if it begins in a later connection than
/// that change; nor if another commit, which is visible, lies between them.
#[test]
fn no_row_is_sent_as_it_was_before_a_change_that_was_sent() {
    let world = world::shared();
    let postgres = Postgres::start_with(&PostgresOptions {
        // Only a session that sets synchronous_commit=on waits.
        settings: vec![
            "synchronous_standby_names = 'gone'".to_owned(),
            "synchronous_commit = local".to_owned(),
        ],
        ..PostgresOptions::default()
    });
    let database = postgres.database(NAME);
    let sql = database.sql();
    sql.run("create table items (id int primary key, v text); insert into items values (1, 'old'), (2, 'old')");
    let mut walferry = begin(&world.kafka, &database);
    let cut = |_: &Walferry| sql.run("select pg_terminate_backend(active_pid) from pg_replication_slots where active");
    let rounds: [(bool, &dyn Fn(&Walferry)); 3] =
        [(false, &pause_and_resume), (false, &cut), (true, &pause_and_resume)];
    for (round, (is_followed, begin_anew)) in rounds.into_iter().enumerate() {
        let new = format!("new{round}");
        let update = format!("update items set v = '{new}' where id = 1");
        let waiting = Waiting::new(sql, postgres.in_database(database.name()), update);
        wait_for_row(&world.kafka, 1, &new);
        if is_followed {
            sql.run("update items set v = 'visible' where id = 2");
            wait_for_row(&world.kafka, 2, "visible");
        }
        let count = |walferry: &Walferry, text| walferry.output().matches(text).count();
        let connected = count(&walferry, CONNECTED);
        begin_anew(&walferry);
        wait_for("the next connection", || {
            (count(&walferry, CONNECTED) > connected).then_some(())
        });
        let (found, completed) = (count(&walferry, FOUND), count(&walferry, COMPLETED));
        signals::ask_for(&walferry, NAME, "public.items");
        signals::wait_for_log(&mut walferry, FOUND, found + 1);
        assert_eq!(count(&walferry, COMPLETED), completed, "{}", walferry.output());
        waiting.end();
        signals::wait_for_log(&mut walferry, COMPLETED, completed + 1);
        // It comes behind all rows of the snapshot.
        sql.run(&format!("insert into items values (10{round}, 'last')"));
        wait_for_row(&world.kafka, 100 + round, "last");
        let rows = signals::rebuilt(&world.kafka.wait_for_records(TOPIC, 1));
        assert_eq!(rows["{\"id\":1}"], new, "{}", walferry.output());
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// A column that is read again for a change has the value that it has after this change, however long the commit waits for a standby
/// while the stream has it already.
#[test]
fn a_column_is_not_read_again_as_it_was_before_its_change() {
    let name = "unseen_reselect";
    let world = world::shared();
    let postgres = Postgres::start_with(&PostgresOptions {
        settings: vec![
            "synchronous_standby_names = 'gone'".to_owned(),
            "synchronous_commit = local".to_owned(),
        ],
        ..PostgresOptions::default()
    });
    let database = postgres.database(name);
    let sql = database.sql();
    sql.run("create table items (id int primary key, v text); insert into items values (1, 'old'), (2, 'old')");
    let mut config = signals::config(
        name,
        &database,
        &[
            ("post.processors", "again"),
            (
                "post.processors.again.type",
                "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
            ),
        ],
    );
    config.remove("signal.data.collection");
    let mut walferry = signals::start_as(world, name, config);
    // Another transaction is visible, so the connection has been used.
    sql.run("update items set v = null where id = 2");
    let topic = format!("{name}.public.items");
    world.kafka.wait_for_records(&topic, 1);
    let update = "update items set v = null where id = 1".to_owned();
    let waiting = Waiting::new(sql, postgres.in_database(database.name()), update);
    wait_for("the wait to be told", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let ready = walferry.get("/ready")?;
        ready.body.contains("other sessions do not see yet").then_some(())
    });
    assert_eq!(world.kafka.read(&[topic.clone()]).len(), 1);
    waiting.end();
    let records = world.kafka.wait_for_records(&topic, 2);
    let after = signals::value(&records[1])["after"].clone();
    assert_eq!(after, serde_json::json!({"id": 1, "v": null}));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
