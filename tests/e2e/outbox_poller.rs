//! From a poller to Walferry, by the SQL of `docs/how-to/from-a-poller.md`.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use walferry_testkit::servers::{Checked, Sql, wait_for};

use crate::outbox::{Outbox, assert_runs};
use crate::world::{self, World};

/// The SQL of the page, by the number of the step.
#[track_caller]
fn step(number: u32) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is a folder of the checkout");
    let page = fs::read_to_string(root.join("docs/how-to/from-a-poller.md")).expect("the page is there");
    let (_, step) = page
        .split_once(&format!("### {number}. "))
        .expect("the page has this step");
    let (_, sql) = step.split_once("```sql\n").expect("the step has SQL");
    sql.split_once("```").expect("it ends").0.to_owned()
}

/// How many records a topic has.
fn count(world: &World, topic: &str) -> i64 {
    world.kafka.ends(&[topic.to_owned()]).values().sum()
}

/// A poller as people write it.
fn poll(sql: &Sql, world: &World, topic: &str, stopped: &AtomicBool) {
    while !stopped.load(SeqCst) {
        sql.run("begin");
        let rows = sql.rows(
            "select id, aggregateid, payload from outbox where status = 'pending' order by number limit 20 for update skip locked",
        );
        let text = |row: &[Option<String>], place: usize| row[place].clone().expect("no column is null");
        let records: Vec<_> = rows.iter().map(|row| (text(row, 1), text(row, 2))).collect();
        let records: Vec<_> = records
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        world.kafka.produce(topic, &records);
        let ids: Vec<_> = rows.iter().map(|row| text(row, 0)).collect();
        if !ids.is_empty() {
            sql.run(&format!(
                "update outbox set status = 'sent', attempts = attempts + 1 where id in ({})",
                ids.join(", ")
            ));
        }
        sql.run("commit");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_switch_from_a_poller_loses_and_repeats_nothing() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "poller");
    let sql = outbox.database.sql();
    sql.run(
        "alter table outbox add number bigint generated always as identity, add status text not null default 'pending',
           add attempts int not null default 0",
    );
    let topic = outbox.topic("order");
    world.kafka.create_topic(&topic, 1);
    let config = outbox.config_with([
        ("publication.name", "outbox"),
        ("publication.autocreate.mode", "disabled"),
        ("snapshot.mode", "no_data"),
    ]);

    let (writes, polls) = (AtomicBool::new(true), Arc::new(AtomicBool::new(false)));
    let written = AtomicI64::new(0);
    thread::scope(|scope| {
        let _stop = Stop(&writes, &polls);
        let writer = world.postgres.in_database(outbox.database.name());
        let (writes, written) = (&writes, &written);
        let writer = scope.spawn(move || {
            while writes.load(SeqCst) {
                let number = written.load(SeqCst) + 1;
                // As a library does that names all columns.
                writer.run(&format!(
                    "insert into outbox (id, aggregatetype, aggregateid, type, payload, status)
                     values ({number}, 'order', 'k', 'Created', '{number}', 'pending')"
                ));
                written.store(number, SeqCst);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let poller = world.postgres.in_database(outbox.database.name());
        let (stopped, servers, of) = (polls.clone(), &*world, topic.clone());
        let poller = scope.spawn(move || poll(&poller, servers, &of, &stopped));
        wait_for("the poller to send", || (count(&world, &topic) >= 100).then_some(()));

        let checked = Checked::of(&outbox.options(config.clone()), &[]);
        for told in [
            "public.outbox looks like a table that a poller reads: a program may mark in the columns status and attempts",
            "the topic is poller.${routedByValue}, from the column aggregatetype",
            "the key is the column aggregateid",
        ] {
            assert!(checked.stdout.contains(told), "{told}: {}", checked.stdout);
        }

        sql.run(&step(1));
        let mut walferry = outbox.start_with(config.clone());
        walferry.ask("PUT", "/connectors/poller/pause").expect("it listens");
        wait_for("the connector to be paused", || {
            let status = walferry.get("/connectors/poller/status")?;
            (status.json()["connector"]["state"] == "PAUSED").then_some(())
        });
        let switch = step(3);
        let (function, trigger) = switch.split_once("$$;").expect("the step makes a function");
        sql.run(&format!("{function}$$"));
        // As the page says: it is run again where it has waited too long for other transactions.
        wait_for("the trigger", || {
            let made = sql.try_run(trigger);
            let is_late = |error: &String| error.contains("lock timeout");
            assert!(made.as_ref().err().is_none_or(is_late), "{made:?}");
            made.ok()
        });
        let pending = step(4);
        wait_for("the poller to finish", || {
            (sql.value(&pending).as_deref() == Some("0")).then_some(())
        });
        polls.store(true, SeqCst);
        poller.join().expect("the poller has not failed");
        let of_poller = count(&world, &topic);
        walferry.ask("PUT", "/connectors/poller/resume").expect("it listens");
        wait_for("Walferry to send", || {
            (count(&world, &topic) >= of_poller + 100).then_some(())
        });
        writes.store(false, SeqCst);
        writer.join().expect("the writer has not failed");
        sql.run(&step(6));
        let all = written.load(SeqCst);
        sql.run(&format!(
            "insert into outbox (id, aggregatetype, aggregateid, type, payload) values ({0}, 'order', 'k', 'Created', '{0}')",
            all + 1
        ));
        let records = world
            .kafka
            .wait_for_records(&topic, usize::try_from(all + 1).expect("it is small"));
        assert_eq!(i64::try_from(records.len()), Ok(all + 1), "an event was sent twice");
        assert_runs(&records, &["k"], all + 1);
        assert!(walferry.runs());
    });
}

/// Ends the threads of a test that fails.
struct Stop<'a>(&'a AtomicBool, &'a Arc<AtomicBool>);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
        self.1.store(true, SeqCst);
    }
}

#[test]
fn check_counts_what_a_snapshot_would_send_again() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "poller_rows");
    outbox.database.sql().run(
        "alter table outbox add published_at timestamptz;
         insert into outbox select n, 'order', 'k', 'Created', n, case when n <= 7 then now() end from generate_series(1, 10) n",
    );
    for (mode, told) in [
        (
            "initial",
            "a snapshot would send 7 rows of public.outbox again, which are marked as sent",
        ),
        ("no_data", "3 rows of public.outbox are not marked as sent"),
    ] {
        let options = outbox.options(outbox.config_with([("snapshot.mode", mode)]));
        let checked = Checked::of(&options, &[]);
        assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
        assert!(checked.stdout.contains(told), "{mode}: {}", checked.stdout);
        assert!(checked.stdout.contains("[WF0790]"), "{}", checked.stdout);
    }
}
