//! ReselectColumnsPostProcessor: columns of changed rows are read again from the table, whatever happens meanwhile.

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Record, Walferry, wait_for};

use crate::outbox::Outbox;
use crate::world;

/// A table with values outside of its rows, which an update leaves out.
pub(crate) const TABLE: &str = "
    create table t (id int primary key, n int, body text); alter table t alter body set storage external;
    insert into t select id, 1, repeat(chr(96 + id), case when id % 7 = 0 then 100000 else 3000 end) from generate_series(1, 26) id";

pub(crate) fn config(outbox: &Outbox, mode: &str) -> Map<String, Value> {
    let mut config = outbox.config_with([
        ("table.include.list", "public.t"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("key.converter.schemas.enable", "false"),
        ("value.converter.schemas.enable", "false"),
        ("post.processors", "again"),
        (
            "post.processors.again.type",
            "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        ),
        ("post.processors.again.reselect.error.handling.mode", mode),
        ("transforms.flat.type", "io.debezium.transforms.ExtractNewRecordState"),
    ]);
    config.retain(|name, _| !name.starts_with("transforms.outbox"));
    config.insert("transforms".into(), json!("flat"));
    config
}

/// Id, n, and the first letter and the length of the body.
fn told(record: &Record) -> String {
    let value: Value = serde_json::from_slice(record.value.as_deref().expect("it is no tombstone")).expect("JSON");
    let body = value["body"].as_str().unwrap_or_default();
    let first = body.get(..1).unwrap_or_default();
    format!("{} {} {first}{}", value["id"], value["n"], body.len())
}

fn row(id: u8, n: i32) -> String {
    let length = if id.is_multiple_of(7) { 100_000 } else { 3_000 };
    format!("{id} {n} {}{length}", char::from(96 + id))
}

#[test]
fn while_rows_cannot_be_read_everything_waits_and_nothing_is_lost() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "reselect_away");
    let sql = outbox.database.sql();
    sql.run(TABLE);
    let mut walferry = outbox.start_with(config(&outbox, "fail"));
    let topic = outbox.topic("public.t");
    sql.run("update t set n = 2");
    let records = world.kafka.wait_for_records(&topic, 26);
    let expected: Vec<String> = (1..=26).map(|id| row(id, 2)).collect();
    assert_eq!(records.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    // Two transactions of which nothing can be read while somebody else has the table. The last row needs no look.
    sql.run(
        "update t set n = 3 where id <= 20; begin; update t set n = 4; insert into t values (27, 4, 'short'); commit",
    );
    let other = world.postgres.in_database(outbox.database.name());
    other.run("begin; lock table t in access exclusive mode");
    walferry.start_again();
    let waiting = "select pid from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and application_name like 'Walferry%'";
    // The connection is lost while it waits, twice; then the process is killed.
    for _ in 0..2 {
        let pid = wait_for("a row to be asked for", || sql.value(waiting));
        sql.run(&format!("select pg_terminate_backend({pid})"));
    }
    wait_for("the wait to be told", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let ready = walferry.get("/ready")?;
        (ready.body.contains("a row of public.t") && ready.status != 200).then_some(())
    });
    wait_for("a row to be asked for again", || sql.value(waiting));
    walferry.kill();
    assert_eq!(
        world.kafka.read(&[topic.clone()]).len(),
        26,
        "nothing is sent before it is whole"
    );
    walferry.start_again();
    let pid = wait_for("a row to be asked for", || sql.value(waiting));
    sql.run(&format!("select pg_terminate_backend({pid})"));
    other.run("commit");

    let records = world.kafka.wait_for_records(&topic, 26 + 20 + 27);
    let told: Vec<String> = records[26..].iter().map(told).collect();
    assert_eq!(told[..20], (1..=20).map(|id| row(id, 3)).collect::<Vec<_>>());
    // An update takes rows in the order in which they lie in the table.
    let mut updated = told[20..46].to_vec();
    updated.sort_by_key(|row| row.split(' ').next().and_then(|id| id.parse::<u8>().ok()));
    assert_eq!(updated, (1..=26).map(|id| row(id, 4)).collect::<Vec<_>>());
    assert_eq!(told[46], "27 4 s5");
    walferry.wait_until_ready();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn a_row_that_is_gone_stops_the_connector_or_is_sent_as_it_came() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "reselect_gone");
    let sql = outbox.database.sql();
    sql.run(TABLE);
    let mut walferry = outbox.start_with(config(&outbox, "warn"));
    let topic = outbox.topic("public.t");
    sql.run(
        "begin; update t set n = 2 where id = 1; delete from t where id = 1; commit; update t set n = 2 where id = 2",
    );
    let records = world.kafka.wait_for_records(&topic, 3);
    assert_eq!(told(&records[0]), "1 2 _28");
    assert_eq!(records[1].value_text(), Some("null"), "the delete, without a row");
    assert_eq!(told(&records[2]), row(2, 2));
    let metrics = wait_for("the metric", || {
        let text = walferry.get("/metrics")?.body;
        text.contains("row_not_reselected").then_some(text)
    });
    let count = metrics.lines().find(|line| line.contains("row_not_reselected"));
    assert!(count.is_some_and(|line| line.ends_with(" 1")), "{count:?}");
    // What the server refuses is no other than a row that is gone.
    sql.run("begin; update t set n = 3 where id = 2; alter table t rename to elsewhere; commit");
    let records = world.kafka.wait_for_records(&topic, 4);
    assert_eq!(told(&records[3]), "2 3 _28");
    sql.run("alter table elsewhere rename to t");
    // The next one has nothing but the slot to go by. A server that is short of time may close the connection at the end before it has read the
    // last status update.
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    for part in ["cannot be read again, because it no longer exists", "does not exist"] {
        assert!(
            walferry.output().contains(part),
            "{part:?} is missing in:\n{}",
            walferry.output()
        );
    }

    sql.run("begin; update t set n = 4 where id = 3; delete from t where id = 3; commit");
    let mut strict = Walferry::start(outbox.options(config(&outbox, "fail")));
    drop(walferry);
    // A folder of its own would begin afresh; here it goes on where the slot stands.
    assert_eq!(strict.wait(), Some(3), "{}", strict.output());
    for part in [
        "a row of public.t",
        "cannot be read again, because it no longer exists",
        "reselect.error.handling.mode",
    ] {
        assert!(
            strict.output().contains(part),
            "{part:?} is missing in:\n{}",
            strict.output()
        );
    }
    assert_eq!(
        world.kafka.read(&[topic]).len(),
        4,
        "a record was sent that could not be made whole"
    );
}
