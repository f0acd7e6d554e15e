//! What arrives: committed rows, keyed, routed and in order, and nothing else.

use crate::outbox::{Outbox, assert_runs, insert_sql};
use crate::world;
use walferry_testkit::servers::Walferry;

#[test]
fn committed_rows_arrive_keyed_and_routed() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "routed");
    let _walferry = outbox.start();
    outbox.database.sql().run(
        "insert into outbox values (1, 'order', 'o-1', 'OrderCreated', '{\"total\": 12.50}');
         insert into outbox values (2, 'user', 'ann', 'UserRegistered', null);
         insert into outbox values (3, 'order', 'o-1', 'OrderPaid', 'grüße')",
    );
    let orders = world.kafka.wait_for_records(&outbox.topic("order"), 2);
    let seen: Vec<_> = orders
        .iter()
        .map(|record| {
            (
                record.key_text(),
                record.value_text(),
                record.header_text("id"),
                record.header_text("eventType"),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some("o-1"), Some("{\"total\": 12.50}"), Some("1"), Some("OrderCreated")),
            (Some("o-1"), Some("grüße"), Some("3"), Some("OrderPaid")),
        ]
    );
    let users = world.kafka.wait_for_records(&outbox.topic("user"), 1);
    assert_eq!((users[0].key_text(), users[0].value_text()), (Some("ann"), None));
}

#[test]
fn rolled_back_rows_never_arrive() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "rolled_back");
    let _walferry = outbox.start();
    let sql = outbox.database.sql();
    sql.run(&format!("begin; {}; rollback", insert_sql("gone", 1, 100)));
    sql.run(&format!(
        "begin; {}; savepoint s; {}; rollback to s; {}; commit",
        insert_sql("kept", 1, 1),
        insert_sql("gone", 101, 200),
        insert_sql("kept", 2, 2)
    ));
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 2);
    assert_runs(&records, &["kept"], 2);
}

#[test]
fn a_large_transaction_arrives_whole_and_in_order_on_every_partition() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "large");
    world.kafka.create_topic(&outbox.topic("order"), 4);
    let _walferry = outbox.start();
    let keys = ["a", "b", "c", "d", "e", "f"];
    let inserts: Vec<String> = keys.iter().map(|key| insert_sql(key, 1, 3_000)).collect();
    outbox
        .database
        .sql()
        .run(&format!("begin; {}; commit", inserts.join("; ")));
    let records = world.kafka.wait_for_records(&outbox.topic("order"), keys.len() * 3_000);
    assert_runs(&records, &keys, 3_000);
    assert!(
        records.iter().any(|record| record.partition != records[0].partition),
        "several partitions are used"
    );
}

#[test]
fn rows_of_other_tables_stay_where_they_are() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "others");
    let sql = outbox.database.sql();
    sql.run("create table secrets (id int primary key, text text)");
    let _walferry = outbox.start();
    sql.run("insert into secrets values (1, 'not captured')");
    outbox.insert("k", 1, 1);
    world.kafka.wait_for_records(&outbox.topic("order"), 1);
    let topics = world.kafka.topics();
    let ours: Vec<_> = topics.iter().filter(|topic| topic.starts_with("others.")).collect();
    assert_eq!(ours, ["others.order"]);
}

#[test]
fn rows_that_are_there_at_the_first_start_are_sent_where_a_snapshot_is_asked_for() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "existing");
    outbox.insert("k", 1, 100);
    let _walferry = outbox.start_with(outbox.config_with([("snapshot.mode", "initial")]));
    outbox.insert("k", 101, 110);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 110);
    assert_eq!(records.len(), 110, "the hand-over to the stream repeats nothing");
    assert_runs(&records, &["k"], 110);
}

#[test]
fn converters_of_the_worker_file_hold_where_the_connector_names_none() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "worker_converters");
    let sql = outbox.database.sql();
    sql.run("alter table outbox alter payload type bytea using payload::bytea");
    let mut config = outbox.config();
    config.retain(|name, _| !name.ends_with(".converter"));
    let mut options = outbox.options(config);
    options.worker.extend([
        "key.converter=org.apache.kafka.connect.storage.StringConverter".into(),
        "value.converter=org.apache.kafka.connect.converters.ByteArrayConverter".into(),
        "header.converter=org.apache.kafka.connect.json.JsonConverter".into(),
        "header.converter.schemas.enable=false".into(),
    ]);
    let mut walferry = Walferry::start(options);
    outbox.wait_until_streaming(&mut walferry);
    sql.run(r"insert into outbox values (1, 'order', 'k', 'made', '\x00ff01')");
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 1);
    let record = &records[0];
    assert_eq!(record.key.as_deref(), Some(b"k".as_slice()));
    assert_eq!(record.value.as_deref(), Some([0, 255, 1].as_slice()));
    assert_eq!(record.header_text("eventType"), Some("\"made\""));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
