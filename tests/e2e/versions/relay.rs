//! Relay mode on this version.

use crate::{
    relay::{POLLER, Relayed, assert_runs},
    world,
};

#[test]
fn relay_mode_marks_deletes_and_retries_also_in_partitions() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "versions_relay", POLLER);
    relayed
        .database()
        .sql()
        .run("insert into events (aggregatetype, aggregateid, payload) values ('no topic', 'x', '1')");
    let changes = [
        ("relay.max.attempts", "2"),
        ("relay.backoff.ms", "20"),
        ("relay.batch.size", "20"),
    ];
    let mut both = [relayed.start(&changes), relayed.start(&changes)];
    for first in [1, 51] {
        for key in ["a", "b", "c"] {
            relayed.insert(key, first, first + 49);
        }
        both[0].kill();
        both[0].start_again();
    }
    relayed.wait_until_none("status = 'PENDING'");
    assert_eq!(
        relayed.count("status = 'FAILED' and attempts = 2 and last_error is not null"),
        1
    );
    for walferry in &mut both {
        walferry.wait_until_ready();
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
    let numbers = relayed.numbers();
    for key in ["a", "b", "c"] {
        assert_runs(&numbers[key], 100);
    }

    let table = "create table events (id bigint not null, aggregatetype text not null default 'order', aggregateid text not null,
        type text not null default 'Created', payload text not null, primary key (id, aggregateid)) partition by list (aggregateid);
        create table part_one partition of events for values in ('a'); create table part_two partition of events for values in ('b')";
    let relayed = Relayed::with_table(&world, "versions_relay_parts", table);
    let mut walferry = relayed.start(&[("relay.done", "delete")]);
    relayed.database().sql().run(
        "insert into events (id, aggregateid, payload) select n, key, n from generate_series(1, 100) n, unnest(array['a', 'b']) key",
    );
    relayed.wait_until_none("true");
    let numbers = relayed.numbers();
    assert_runs(&numbers["a"], 100);
    assert_runs(&numbers["b"], 100);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
