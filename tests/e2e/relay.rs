//! Relay mode: an outbox that is polled, on real servers.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;

use serde_json::{Map, Value};
use walferry_testkit::servers::{Checked, Database, Record, Walferry, WalferryOptions, wait_for, walferry_program};

use crate::outbox::Outbox;
use crate::world::{self, World};

/// A table as pollers have it, and connectors for it.
pub(crate) struct Relayed<'a> {
    pub(crate) outbox: Outbox,
    world: &'a World,
}

impl<'a> Relayed<'a> {
    /// `columns` come after those of the event.
    pub(crate) fn new(world: &'a World, name: &str, columns: &str) -> Self {
        let table = format!(
            "create table events (id bigint generated always as identity primary key, aggregatetype text not null default 'order',
             aggregateid text not null, type text not null default 'Created', payload text not null, {columns})"
        );
        Self::with_table(world, name, &table)
    }

    /// The same with a table of another form.
    pub(crate) fn with_table(world: &'a World, name: &str, table: &str) -> Self {
        let outbox = Outbox::new(world, name);
        outbox.database.sql().run(table);
        world.kafka.create_topic(&outbox.topic("order"), 3);
        Self { outbox, world }
    }

    pub(crate) fn config(&self, changes: &[(&str, &str)]) -> Map<String, Value> {
        let mut config = self.outbox.config();
        config.retain(|name, _| !name.starts_with("slot.") && !name.starts_with("publication."));
        for name in ["snapshot.mode", "plugin.name"] {
            config.remove(name);
        }
        config.insert("connector.class".into(), "walferry.OutboxRelay".into());
        config.insert("table.include.list".into(), "public.events".into());
        config.extend(changes.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        config
    }

    pub(crate) fn options(&self, changes: &[(&str, &str)]) -> WalferryOptions {
        self.outbox.options(self.config(changes))
    }

    pub(crate) fn start(&self, changes: &[(&str, &str)]) -> Walferry {
        let mut walferry = Walferry::start(self.options(changes));
        walferry.wait_until_ready();
        walferry
    }

    pub(crate) fn database(&self) -> &Database {
        &self.outbox.database
    }

    pub(crate) fn insert(&self, key: &str, first: i64, last: i64) {
        self.database().sql().run(&format!(
            "insert into events (aggregateid, payload) select '{key}', n from generate_series({first}, {last}) n"
        ));
    }

    pub(crate) fn count(&self, condition: &str) -> usize {
        let count = self
            .database()
            .sql()
            .value(&format!("select count(*) from events where {condition}"));
        count.expect("there is a count").parse().expect("it is a number")
    }

    #[track_caller]
    pub(crate) fn wait_until_none(&self, condition: &str) {
        wait_for(&format!("no row with {condition}"), || {
            (self.count(condition) == 0).then_some(())
        });
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.world.kafka.read(&[self.outbox.topic("order")])
    }

    /// The numbers that have arrived for each key, in their order.
    pub(crate) fn numbers(&self) -> BTreeMap<String, Vec<i64>> {
        let mut numbers: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for record in self.records() {
            let key = record.key_text().expect("each event has a key").to_owned();
            let number = record.value_text().expect("each event has a payload");
            numbers
                .entry(key)
                .or_default()
                .push(number.parse().expect("it is a number"));
        }
        numbers
    }
}

/// Nothing is missing, and what is repeated does not skip anything: each number comes at most one after the highest before it.
#[track_caller]
pub(crate) fn assert_runs(numbers: &[i64], last: i64) {
    let mut highest = 0;
    for number in numbers {
        assert!(*number <= highest + 1, "{number} comes after {highest}: {numbers:?}");
        highest = highest.max(*number);
    }
    assert_eq!(highest, last, "{numbers:?}");
}

pub(crate) const POLLER: &str = "status text not null default 'PENDING', attempts int not null default 0,
     available_at timestamptz not null default now(), last_error text";

#[test]
fn rows_of_a_poller_are_sent_once_and_marked() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_mark", POLLER);
    let checked = Checked::of(&relayed.options(&[]), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    for part in [
        "status in \"status\" ('PENDING' to 'SENT'), attempts in \"attempts\"",
        "ordered by \"id\" within \"aggregateid\"; sent rows are marked",
        "CREATE INDEX CONCURRENTLY ON \"public\".\"events\" (\"id\") WHERE \"status\" = 'PENDING';",
    ] {
        assert!(checked.stdout.contains(part), "{part}: {}", checked.stdout);
    }
    let hints = checked
        .stdout
        .lines()
        .filter_map(|line| line.split_once("create one: "));
    hints.for_each(|(_, statement)| relayed.database().sql().run(statement));
    let checked = Checked::of(&relayed.options(&[]), &[]);
    assert!(!checked.stdout.contains("CREATE INDEX"), "{}", checked.stdout);

    for key in ["a", "b", "c"] {
        relayed.insert(key, 1, 300);
    }
    let mut walferry = relayed.start(&[]);
    relayed.wait_until_none("status <> 'SENT'");
    relayed.insert("a", 301, 302);
    relayed.wait_until_none("status <> 'SENT'");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let numbers = relayed.numbers();
    assert_eq!(numbers["a"], (1..=302).collect::<Vec<_>>());
    assert_eq!(numbers["b"], (1..=300).collect::<Vec<_>>());
    assert_eq!(numbers["c"], (1..=300).collect::<Vec<_>>());
    let slots = relayed.database().sql().value(&format!(
        "select count(*) from pg_replication_slots where database = '{}'",
        relayed.database().name()
    ));
    assert_eq!(slots.as_deref(), Some("0"));
}

#[test]
fn two_relays_that_are_killed_lose_nothing_and_keep_the_order_of_each_key() {
    const LAST: i64 = 400;
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_kill", "published_at timestamptz");
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let changes = [("relay.batch.size", "40"), ("relay.poll.interval.ms", "20")];
    let mut both = [relayed.start(&changes), relayed.start(&changes)];
    let mut kills = 0;
    for first in (1..=LAST).step_by(50) {
        for key in &keys {
            relayed.insert(key, first, first + 49);
        }
        // In the middle of what it does.
        let before = relayed.count("published_at is not null");
        wait_for("some rows to be marked", || {
            (relayed.count("published_at is not null") > before + 100).then_some(())
        });
        let victim = &mut both[kills % 2];
        victim.kill();
        victim.start_again();
        kills += 1;
    }
    relayed.wait_until_none("published_at is null");
    let numbers = relayed.numbers();
    let total: usize = numbers.values().map(Vec::len).sum();
    for key in &keys {
        assert_runs(&numbers[key], LAST);
    }
    let most = keys.len() * LAST as usize + kills * 40;
    assert!(
        total <= most,
        "{total} records: more than what was in flight was repeated"
    );
}

#[test]
fn rows_are_deleted_only_if_that_is_asked_for_and_only_after_kafka_has_them() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_delete", "note text");
    let refused = Checked::of(&relayed.options(&[]), &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(
        refused.stdout.contains("set relay.done=delete, which removes each row"),
        "{}",
        refused.stdout
    );
    relayed.insert("a", 1, 1000);
    let mut walferry = relayed.start(&[("relay.done", "delete")]);
    relayed.wait_until_none("true");
    assert_eq!(walferry.terminate(), Some(0));
    assert_eq!(
        relayed.numbers(),
        BTreeMap::from([("a".to_owned(), (1..=1000).collect())])
    );
}

#[test]
fn rows_that_the_old_poller_has_locked_are_left_to_it() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_beside", "processed_at timestamptz");
    relayed.insert("a", 1, 10);
    relayed.insert("b", 11, 20);
    let poller = world.postgres.in_database(relayed.database().name());
    poller.run("begin; select * from events where aggregateid = 'a' for update skip locked");
    let _walferry = relayed.start(&[]);
    relayed.wait_until_none("aggregateid = 'b' and processed_at is null");
    poller.run("update events set processed_at = now() where aggregateid = 'a'; commit");
    relayed.insert("a", 21, 21);
    relayed.wait_until_none("processed_at is null");
    let by_key: HashMap<String, Vec<i64>> = relayed.numbers().into_iter().collect();
    assert_eq!(by_key["a"], [21]);
    assert_eq!(by_key["b"], (11..=20).collect::<Vec<_>>());
}

#[test]
fn a_row_that_cannot_be_sent_holds_back_its_own_key_until_it_is_put_back() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_failed", POLLER);
    // Its topic has no valid name.
    relayed
        .database()
        .sql()
        .run("insert into events (aggregatetype, aggregateid, payload) values ('no topic', 'a', '1')");
    relayed.insert("a", 2, 5);
    relayed.insert("b", 1, 5);
    let changes = [("relay.max.attempts", "3"), ("relay.backoff.ms", "20")];
    let walferry = relayed.start(&changes);
    relayed.wait_until_none("status = 'PENDING' and not (aggregateid = 'a' and id > 1)");
    let row = relayed
        .database()
        .sql()
        .rows("select attempts, last_error from events where status = 'FAILED'");
    assert_eq!(row[0][0].as_deref(), Some("3"));
    let error = row[0][1].as_deref().unwrap_or_default();
    assert!(error.contains("no topic"), "{error}");
    relayed.insert("b", 6, 6);
    relayed.wait_until_none("status = 'PENDING' and aggregateid = 'b'");
    assert_eq!(relayed.numbers(), BTreeMap::from([("b".to_owned(), (1..=6).collect())]));

    relayed
        .database()
        .sql()
        .run("update events set aggregatetype = 'order' where status = 'FAILED'");
    let config = walferry.config_file().display().to_string();
    let retried = Command::new(walferry_program())
        .args(["outbox", "retry", "--config", &config, "--key", "a"])
        .output()
        .expect("it can be run");
    assert!(
        String::from_utf8_lossy(&retried.stdout).contains("1 row is tried again"),
        "{retried:?}"
    );
    relayed.wait_until_none("status <> 'SENT'");
    assert_eq!(relayed.numbers()["a"], [1, 2, 3, 4, 5]);
}

#[test]
fn a_row_that_kafka_refuses_is_found_and_all_others_are_sent() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_refused", POLLER);
    let topic = relayed.outbox.topic("order");
    world.kafka.configure_topic(&topic, &[("max.message.bytes", "5000")]);
    let large = |key: &str| {
        let insert = format!("insert into events (aggregateid, payload) values ('{key}', repeat('7', 20000))");
        relayed.database().sql().run(&insert);
    };
    relayed.insert("a", 1, 5);
    large("b");
    relayed.insert("c", 1, 5);
    large("d");
    relayed.insert("c", 6, 10);
    relayed.insert("b", 1, 1);
    let _walferry = relayed.start(&[("relay.max.attempts", "2"), ("relay.backoff.ms", "20")]);
    relayed.wait_until_none("status = 'PENDING' and aggregateid <> 'b'");
    wait_for("both rows to fail", || {
        (relayed.count("status = 'FAILED'") == 2).then_some(())
    });
    let failed = relayed
        .database()
        .sql()
        .rows("select aggregateid, attempts, last_error from events where status = 'FAILED' order by 1");
    for (row, key) in failed.iter().zip(["b", "d"]) {
        let error = row[2].as_deref().unwrap_or_default();
        assert_eq!(
            (row[0].as_deref(), row[1].as_deref()),
            (Some(key), Some("2")),
            "{error}"
        );
        assert!(
            error.contains("is larger than Kafka accepts") && !error.contains("LSN"),
            "{error}"
        );
    }
    let numbers = relayed.numbers();
    assert_eq!(
        numbers.keys().collect::<Vec<_>>(),
        ["a", "c"],
        "later rows of b are held back"
    );
    assert_runs(&numbers["a"], 5);
    assert_runs(&numbers["c"], 10);
}

/// Without a word for it, the number of attempts says that a row has failed for good.
#[test]
fn a_boolean_status_needs_no_word_for_failed_rows() {
    let world = world::shared();
    let columns = "state boolean not null default false, attempts int not null default 0, available_at timestamptz";
    let relayed = Relayed::new(&world, "relay_boolean", columns);
    relayed
        .database()
        .sql()
        .run("insert into events (aggregatetype, aggregateid, payload) values ('no topic', 'a', '1')");
    relayed.insert("b", 1, 5);
    let mut walferry = relayed.start(&[
        ("relay.max.attempts", "2"),
        ("relay.backoff.ms", "20"),
        ("transforms.outbox.type", "EventRouter"),
    ]);
    relayed.wait_until_none("not state and aggregateid = 'b'");
    relayed.wait_until_none("not state and attempts < 2");
    relayed.insert("b", 6, 6);
    relayed.wait_until_none("not state and aggregateid = 'b'");
    assert_eq!(relayed.count("not state and attempts = 2"), 1);
    assert!(
        walferry.output().contains("is not tried again"),
        "{}",
        walferry.output()
    );
    relayed
        .database()
        .sql()
        .run("update events set aggregatetype = 'order'");
    let config = walferry.config_file().display().to_string();
    let retried = Command::new(walferry_program())
        .args(["outbox", "retry", "--config", &config])
        .output()
        .expect("it can be run");
    assert!(retried.status.success(), "{retried:?}");
    relayed.wait_until_none("not state");
    assert_eq!(relayed.numbers()["a"], [1]);
    assert_eq!(walferry.terminate(), Some(0));
}

#[test]
fn what_relay_mode_does_not_do_is_refused_or_told() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_refuses", "published_at timestamptz");
    let mut options = relayed.options(&[("slot.name", "s"), ("message.key.columns", "public.events:type")]);
    let checked = Checked::of(&options, &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    for property in ["slot.name", "message.key.columns"] {
        let told = format!("{property} has no effect in relay mode");
        assert!(checked.stdout.contains(&told), "{told}: {}", checked.stdout);
    }
    for (option, value) in [
        ("table.field.event.timestamp", "published_at"),
        ("walferry.retention.ms", "5000"),
    ] {
        options
            .config
            .insert(format!("transforms.outbox.{option}"), value.into());
    }
    let checked = Checked::of(&options, &[]);
    assert_eq!(checked.code, Some(2), "{}{}", checked.stdout, checked.stderr);
    let said = checked.stdout + &checked.stderr;
    assert!(
        said.contains("walferry.retention.ms is not possible in relay mode"),
        "{said}"
    );
}

/// Kafka has acknowledged all of its rows, and the marks are held up when it is stopped.
#[test]
fn an_owner_that_wakes_late_sends_and_marks_nothing_more() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_stopped", "published_at timestamptz");
    relayed.database().sql().run(
        "create function hold() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(7); return new; end $$;
         create trigger hold before update on events for each row execute function hold()",
    );
    let holder = world.postgres.in_database(relayed.database().name());
    holder.run("select pg_advisory_lock(7)");
    relayed.insert("a", 1, 100);
    let mut first = relayed.start(&[]);
    wait_for("the marks to wait", || {
        let waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted";
        (relayed.database().sql().value(waits).as_deref() == Some("1")).then_some(())
    });
    first.hang();
    holder.run("select pg_advisory_unlock(7)");
    let mut second = relayed.start(&[]);
    relayed.wait_until_none("published_at is null");
    let before = relayed.numbers()["a"].len();
    first.resume();
    first.wait_until_ready();
    relayed.insert("a", 101, 101);
    relayed.wait_until_none("published_at is null");
    let numbers = relayed.numbers().remove("a").unwrap_or_default();
    assert_runs(&numbers, 101);
    assert_eq!(
        numbers.len(),
        before + 1,
        "the owner that woke has sent something again"
    );
    assert_eq!(second.terminate(), Some(0));
}

/// What its client has given to the network may arrive after it has woken, but no more than one look has read.
#[test]
fn an_owner_that_is_stopped_while_it_sends_repeats_one_look_at_most() {
    const LOOK: usize = 500;
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_stopped_sending", "published_at timestamptz");
    let mut first = relayed.start(&[]);
    relayed.insert("a", 1, 2000);
    wait_for("some rows to be marked", || {
        (relayed.count("published_at is not null") > 0).then_some(())
    });
    first.hang();
    let mut second = relayed.start(&[]);
    relayed.wait_until_none("published_at is null");
    let before = relayed.numbers()["a"].len();
    first.resume();
    first.wait_until_ready();
    relayed.insert("a", 2001, 2001);
    relayed.wait_until_none("published_at is null");
    let numbers = relayed.numbers().remove("a").unwrap_or_default();
    assert_runs(&numbers, 2001);
    assert!(numbers.len() <= before + 1 + LOOK, "{} after {before}", numbers.len());
    assert_eq!(second.terminate(), Some(0));
}

#[test]
fn a_notification_wakes_the_relay_before_it_would_look() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_notify", "published_at timestamptz");
    let changes = [
        ("relay.poll.interval.ms", "3600000"),
        ("relay.notify.channel", "Out box"),
    ];
    let walferry = relayed.start(&changes);
    wait_for("it to listen", || {
        walferry.output().contains("listening for notifications").then_some(())
    });
    for number in 1..=3 {
        relayed.insert("a", number, number);
        relayed.database().sql().run("notify \"Out box\"");
        relayed.wait_until_none("published_at is null");
    }
    assert_eq!(relayed.numbers()["a"], [1, 2, 3]);
}
