//! The servers themselves: what the other tests rely on.

use crate::world;

#[test]
fn postgres_decodes_logically_and_keeps_slots_over_a_crash() {
    let mut world = world::alone();
    let database = world.postgres.database("servers");
    let (sql, slot) = (database.sql(), database.name());
    sql.run(&format!(
        "select pg_create_logical_replication_slot('{slot}', 'pgoutput')"
    ));
    world.postgres.stop(true);
    world.postgres.start_again();
    let plugin = sql.value(&format!(
        "select plugin from pg_replication_slots where slot_name = '{slot}'"
    ));
    assert_eq!(plugin.as_deref(), Some("pgoutput"));
}

#[test]
fn kafka_keeps_topics_over_a_kill() {
    let mut world = world::alone();
    world.kafka.create_topic("servers", 3);
    world.kafka.stop(true);
    world.kafka.start_again();
    assert!(world.kafka.topics().contains(&"servers".into()));
    assert_eq!(world.kafka.read(&["servers".into()]), []);
}
