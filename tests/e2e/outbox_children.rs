//! An outbox partitioned by the hour whose partitions come and go: no row is lost, also if its partition is dropped before it was sent.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    thread,
};

use walferry_testkit::servers::{Sql, Walferry, wait_for};

use crate::outbox::{Outbox, assert_runs};
use crate::world::{self, World};

/// Hours that the writer goes through.
const HOURS: i64 = 25;
/// Rows that it writes at least in each.
const ROWS: i64 = 10;

fn partitioned(world: &World, name: &str) -> Outbox {
    let outbox = Outbox::new(world, name);
    outbox.database.sql().run(
        "drop table outbox;
         create table outbox (id bigint not null, aggregatetype text not null, aggregateid text not null, type text not null,
           payload text, created_at timestamptz not null, primary key (id, created_at)) partition by range (created_at)",
    );
    create(outbox.database.sql(), 0);
    outbox
}

#[track_caller]
fn start(outbox: &Outbox) -> Walferry {
    outbox.start_with(outbox.config_with([("publish.via.partition.root", "true")]))
}

/// Seconds since 1970.
fn begin(hour: i64) -> i64 {
    1_767_225_600 + 3600 * hour
}

#[track_caller]
fn create(sql: &Sql, hour: i64) {
    sql.run(&format!(
        "create table outbox_{hour} partition of outbox for values from (to_timestamp({})) to (to_timestamp({}))",
        begin(hour),
        begin(hour + 1)
    ));
}

#[track_caller]
fn insert(sql: &Sql, hour: i64, first: i64, last: i64) {
    sql.run(&format!(
        "insert into outbox select n, 'order', 'k', 'Created', n, to_timestamp({}) from generate_series({first}, {last}) n",
        begin(hour) + 60
    ));
}

/// A panic must not leave the writer writing.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn partitions_that_are_created_and_dropped_while_rows_are_streamed_lose_none() {
    let world = world::shared();
    let outbox = partitioned(&world, "children");
    let mut walferry = start(&outbox);
    let sql = outbox.database.sql();
    let (hour, written, stop) = (AtomicI64::new(0), AtomicI64::new(0), AtomicBool::new(false));
    let writers_sql = world.postgres.in_database(outbox.database.name());
    thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let number = written.load(Relaxed) + 1;
                insert(&writers_sql, hour.load(Relaxed), number, number);
                written.store(number, Relaxed);
            }
        });
        for next in 1..=HOURS {
            create(sql, next);
            hour.store(next, Relaxed);
            let before = written.load(Relaxed);
            wait_for("rows of this hour", || {
                (written.load(Relaxed) >= before + ROWS).then_some(())
            });
            // What the writer has begun is of this hour by now. Nobody asks whether the rows of the last one were sent.
            sql.run(&format!("drop table outbox_{}", next - 1));
        }
    });
    let count = written.load(Relaxed);
    let records = outbox.wait_for_event(&world.kafka, count);
    assert_runs(&records, &["k"], count);
    assert_eq!(records.len() as i64, count, "nothing was killed");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn partitions_that_are_dropped_while_walferry_is_away_lose_no_row() {
    let world = world::shared();
    let outbox = partitioned(&world, "late");
    let sql = outbox.database.sql();
    let mut walferry = start(&outbox);
    insert(sql, 0, 1, 10);
    outbox.wait_for_event(&world.kafka, 10);

    walferry.kill();
    insert(sql, 0, 11, 20);
    create(sql, 1);
    insert(sql, 1, 21, 30);
    sql.run("drop table outbox_0; alter table outbox detach partition outbox_1; drop table outbox_1");
    // Another partition gets the name and the hour of the dropped one.
    create(sql, 1);
    insert(sql, 1, 31, 40);
    sql.run("drop table outbox_1");
    create(sql, 2);

    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    insert(sql, 2, 41, 50);
    assert_runs(&outbox.wait_for_event(&world.kafka, 50), &["k"], 50);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
