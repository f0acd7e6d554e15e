//! What the stream has brought before any query shows it: its commit waits for a synchronous standby.

use std::thread;

use walferry_testkit::servers::{Postgres, Sql, Walferry, WalferryOptions, wait_for};

use crate::{signals, world};

const NAME: &str = "unseen";
const TOPIC: &str = "unseen.public.items";

/// What the log says.
const CONNECTED: &str = "streaming slot.name";
const FOUND: &str = "before a transaction that the stream contains was visible";
const COMPLETED: &str = "the incremental snapshot is complete";

/// As if a standby were needed that is gone.
fn have_commits_wait(sql: &Sql, waits: bool) {
    sql.run(match waits {
        true => "alter system set synchronous_standby_names = 'gone'",
        false => "alter system reset synchronous_standby_names",
    });
    sql.run("select pg_reload_conf()");
    let expected = if waits { "gone" } else { "" };
    wait_for("the setting", || {
        (sql.value("show synchronous_standby_names").unwrap_or_default() == expected).then_some(())
    });
}

/// However the test ends: the server would not stop while a commit waits.
struct Waiting<'a>(&'a Sql);

impl<'a> Waiting<'a> {
    fn new(sql: &'a Sql) -> Self {
        have_commits_wait(sql, true);
        Self(sql)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        have_commits_wait(self.0, false);
    }
}

/// A snapshot beside the stream sends no row as it was before a change that was sent, also if it begins in a later connection than
/// that change.
#[test]
fn no_row_is_sent_as_it_was_before_a_change_that_was_sent() {
    let world = world::shared();
    let postgres = Postgres::start();
    let database = postgres.database(NAME);
    let sql = database.sql();
    sql.run("create table items (id int primary key, v text); insert into items values (1, 'old'), (2, 'old')");
    let mut config = signals::config(NAME, &database, &[("read.only", "true")]);
    config.remove("signal.data.collection");
    let mut walferry = Walferry::start(WalferryOptions {
        name: NAME.to_owned(),
        config,
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    let begins_anew: [&dyn Fn(&Walferry); 2] = [
        &|walferry| {
            walferry.ask("PUT", &format!("/connectors/{NAME}/pause"));
            // A connector that is resumed before it has paused goes on as it was.
            wait_for("it to be paused", || {
                let status = walferry.get(&format!("/connectors/{NAME}/status"))?;
                (status.json()["connector"]["state"] == "PAUSED").then_some(())
            });
            walferry.ask("PUT", &format!("/connectors/{NAME}/resume"));
        },
        &|_| sql.run("select pg_terminate_backend(active_pid) from pg_replication_slots where active"),
    ];
    for (round, begin_anew) in begins_anew.into_iter().enumerate() {
        let waiting = Waiting::new(sql);
        let other = postgres.in_database(database.name());
        let update = format!("update items set v = 'new{round}' where id = 1");
        let commits = thread::spawn(move || other.run(&update));
        world.kafka.wait_for_records(TOPIC, round * 3 + 1);
        let count = |walferry: &Walferry, text| walferry.output().matches(text).count();
        let connected = count(&walferry, CONNECTED);
        begin_anew(&walferry);
        wait_for("the next connection", || {
            (count(&walferry, CONNECTED) > connected).then_some(())
        });
        let (found, completed) = (count(&walferry, FOUND), count(&walferry, COMPLETED));
        let given = walferry.command_at([
            "snapshot",
            NAME,
            "--table",
            "public.items",
            "--admin",
            &walferry.admin(),
        ]);
        assert!(given.status.success(), "{given:?}");
        signals::wait_for_log(&mut walferry, FOUND, found + 1);
        assert_eq!(count(&walferry, COMPLETED), completed, "{}", walferry.output());
        drop(waiting);
        commits.join().expect("it commits");
        signals::wait_for_log(&mut walferry, COMPLETED, completed + 1);
        let rows = signals::rebuilt(&world.kafka.wait_for_records(TOPIC, round * 3 + 3));
        assert_eq!(rows["{\"id\":1}"], format!("new{round}"), "{}", walferry.output());
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
