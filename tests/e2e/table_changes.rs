//! `walferry.table.changes=stop` on real servers.

use walferry_testkit::servers::Walferry;

use crate::outbox::{Outbox, assert_runs, insert_sql};
use crate::world::{self, World};

/// The connector ends with the exit code of a record, and says what has changed. Nothing after this event was sent.
#[track_caller]
fn assert_stopped(world: &World, outbox: &Outbox, walferry: &mut Walferry, change: &str, last: i64) {
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    let output = walferry.output();
    for part in ["WF0417", change, "then restart the connector"] {
        assert!(output.contains(part), "{part} is missing in:\n{output}");
    }
    assert_runs(&outbox.wait_for_event(&world.kafka, last), &["k"], last);
}

#[test]
fn a_connector_stops_before_a_record_with_other_columns_and_goes_on_after_a_restart() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "table_changes");
    let sql = outbox.database.sql();
    let mut walferry = outbox.start_with(outbox.config_with([("walferry.table.changes", "stop")]));
    outbox.insert("k", 1, 3);

    // After a restart this transaction comes again, with its rows of both kinds.
    sql.run(&format!(
        "begin; {}; alter table outbox add extra text; {}; commit",
        insert_sql("k", 4, 4),
        insert_sql_with("k", 5, 5)
    ));
    assert_stopped(&world, &outbox, &mut walferry, "public.outbox (added: extra)", 4);
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_for_event(&world.kafka, 5);

    // The server tells a new connection of the new columns only.
    sql.run(&format!(
        "alter table outbox alter payload type varchar(100);
         select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{}'",
        outbox.slot()
    ));
    sql.run(&insert_sql_with("k", 6, 6));
    assert_stopped(
        &world,
        &outbox,
        &mut walferry,
        "public.outbox (another type: payload)",
        5,
    );
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    sql.run(&insert_sql_with("k", 7, 9));
    assert_runs(&outbox.wait_for_event(&world.kafka, 9), &["k"], 9);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// The table has more columns by now.
fn insert_sql_with(key: &str, first: i64, last: i64) -> String {
    insert_sql(key, first, last).replacen(
        "insert into outbox",
        "insert into outbox (id, aggregatetype, aggregateid, type, payload)",
        1,
    )
}
