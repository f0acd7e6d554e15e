//! Relay mode at its edges: tables, roles, rows and servers that are not as usual.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    thread,
};

use serde_json::Value;
use walferry_testkit::servers::{Checked, Network, PgBouncer, Walferry, WalferryOptions, Weather, wait_for};

use crate::relay::{POLLER, Relayed, assert_runs};
use crate::world;

/// Settings of the EventRouter.
fn router<'a>(options: &[(&'a str, &'a str)]) -> Vec<(String, String)> {
    let named = options
        .iter()
        .map(|(name, value)| (format!("transforms.outbox.{name}"), (*value).to_owned()));
    named.collect()
}

fn with(relayed: &Relayed<'_>, changes: &[(String, String)]) -> WalferryOptions {
    let changes: Vec<(&str, &str)> = changes.iter().map(|(name, value)| (&**name, &**value)).collect();
    relayed.options(&changes)
}

/// The tables of pollers that people write: each is relayed as it is, in the order of its rows.
#[test]
fn tables_that_people_write_for_pollers_are_relayed_as_they_are() {
    const LAST: i64 = 40;
    let world = world::shared();
    struct Case {
        name: &'static str,
        table: &'static str,
        insert: &'static str,
        options: &'static [(&'static str, &'static str)],
        unsent: &'static str,
    }
    let cases = [
        Case {
            name: "relay_people_status",
            table: "create table events (id uuid primary key, aggregate_type text not null, aggregate_id text not null, event_type text not null,
                payload jsonb not null, headers jsonb, status text not null default 'PENDING' check (status in ('PENDING', 'SENT', 'FAILED')),
                attempts int not null default 0, available_at timestamptz not null default now(), dedup_key text unique,
                partition_key text not null, seq bigserial, created_at timestamptz not null default now())",
            insert: "insert into events (id, aggregate_type, aggregate_id, event_type, payload, dedup_key, partition_key)
                select md5('KEY' || n)::uuid, 'order', 'of KEY', 'Created', to_jsonb(n), 'KEY' || n, 'KEY' from generate_series(1, 40) n",
            options: &[
                ("table.field.event.key", "partition_key"),
                ("table.field.event.type", "event_type"),
                ("route.by.field", "aggregate_type"),
                ("table.fields.additional.placement", "event_type:header:eventType"),
            ],
            unsent: "status <> 'SENT'",
        },
        Case {
            name: "relay_people_error",
            table: "create table events (id uuid primary key, aggregate_type varchar(255) not null, aggregate_id varchar(255) not null,
                event_type varchar(255) not null, payload text not null, created_at timestamptz not null default clock_timestamp(),
                published_at timestamptz, attempts int not null default 0, last_error text)",
            insert: "insert into events (id, aggregate_type, aggregate_id, event_type, payload, created_at)
                select md5('KEY' || n)::uuid, 'order', 'KEY', 'Created', n, now() + n * interval '1 microsecond' from generate_series(1, 40) n",
            options: &[
                ("table.field.event.key", "aggregate_id"),
                ("route.by.field", "aggregate_type"),
                ("table.fields.additional.placement", "event_type:header:eventType"),
            ],
            unsent: "published_at is null",
        },
        Case {
            name: "relay_people_serial",
            table: "create table events (id bigserial primary key, topic text not null, key text not null, payload text not null,
                published_at timestamptz); create index on events (id) where published_at is null",
            insert: "insert into events (topic, key, payload) select 'order', 'KEY', n from generate_series(1, 40) n",
            options: &[
                ("table.field.event.key", "key"),
                ("route.by.field", "topic"),
                ("table.fields.additional.placement", "topic:header:of"),
            ],
            unsent: "published_at is null",
        },
        Case {
            name: "relay_people_processed",
            table: "create table events (id uuid primary key, occurred_at timestamp not null, type text not null, aggregatetype text not null,
                aggregateid text not null, payload text not null, processed_at timestamp)",
            insert: "insert into events select md5('KEY' || n)::uuid, timestamp '2026-01-01' + n * interval '1 ms', 'Created', 'order', 'KEY', n
                from generate_series(1, 40) n",
            options: &[],
            unsent: "processed_at is null",
        },
    ];
    for case in cases {
        let relayed = Relayed::with_table(&world, case.name, case.table);
        let options = with(&relayed, &router(case.options));
        let checked = Checked::of(&options, &[]);
        assert_eq!(
            checked.code,
            Some(0),
            "{}: {}{}",
            case.name,
            checked.stdout,
            checked.stderr
        );
        for key in ["a", "b", "c"] {
            relayed.database().sql().run(&case.insert.replace("KEY", key));
        }
        let mut walferry = Walferry::start(options);
        walferry.wait_until_ready();
        relayed.wait_until_none(case.unsent);
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        let all: Vec<i64> = (1..=LAST).collect();
        for (key, numbers) in relayed.numbers() {
            assert_eq!(numbers, all, "{}: {key}", case.name);
        }
    }
}

/// Rows of several partitions have the same ctid.
#[test]
fn each_row_of_a_partitioned_table_is_marked_in_its_own_partition() {
    let world = world::shared();
    // Marking moves a row of the first one to another partition.
    let tables = [
        (
            "relay_parts_status",
            "status",
            "for values in ('PENDING')",
            "for values in ('SENT', 'FAILED')",
        ),
        (
            "relay_parts_key",
            "aggregateid",
            "for values in ('a', 'x')",
            "for values in ('b', 'c')",
        ),
    ];
    for (name, by, first, second) in tables {
        let table = format!(
            "create table events (id bigint not null, aggregatetype text not null default 'order', aggregateid text not null,
               type text not null default 'Created', payload text not null, status text not null default 'PENDING',
               attempts int not null default 0, available_at timestamptz not null default now(), last_error text, primary key (id, {by}))
             partition by list ({by});
             create table part_one partition of events {first}; create table part_two partition of events {second}"
        );
        let relayed = Relayed::with_table(&world, name, &table);
        let insert = |key: &str, first: i64, last: i64| {
            relayed.database().sql().run(&format!(
                "insert into events (id, aggregateid, payload) select n, '{key}', n from generate_series({first}, {last}) n"
            ));
        };
        let checked = Checked::of(&relayed.options(&[]), &[]);
        assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
        for key in ["a", "b", "c"] {
            insert(key, 1, 100);
            relayed.database().sql().run(&format!(
                "update events set id = id + 1000 * ascii('{key}') where aggregateid = '{key}'"
            ));
        }
        relayed
            .database()
            .sql()
            .run("insert into events (id, aggregatetype, aggregateid, payload) values (0, 'no topic', 'x', '1')");
        let mut walferry = relayed.start(&[
            ("relay.max.attempts", "2"),
            ("relay.backoff.ms", "20"),
            ("relay.batch.size", "70"),
        ]);
        relayed.wait_until_none("status = 'PENDING'");
        assert_eq!(
            relayed.count("status = 'FAILED' and attempts = 2 and aggregateid = 'x'"),
            1
        );
        assert_eq!(
            relayed.count("attempts > 0"),
            1,
            "attempts of a row in another partition"
        );
        assert_eq!(walferry.terminate(), Some(0));
        // Only the first refusal of the row that fails has others of its look sent again.
        let numbers = relayed.numbers();
        numbers.values().for_each(|numbers| assert_runs(numbers, 100));
        let total: usize = numbers.values().map(Vec::len).sum();
        assert!(total <= 300 + 70, "{name}: {total} records");
        let delete = relayed.options(&[("relay.done", "delete")]);
        insert("b", 200_101, 200_150);
        let mut walferry = Walferry::start(delete);
        relayed.wait_until_none("status = 'PENDING'");
        assert_eq!(relayed.count("status = 'SENT'"), 300, "only what was sent is deleted");
        assert_eq!(walferry.terminate(), Some(0));
    }
}

/// Names, words and keys that are SQL themselves.
#[test]
fn names_words_and_keys_with_quotes_are_only_names_words_and_keys() {
    let world = world::shared();
    let table = r#"create schema "s""x; --";
        create table "s""x; --"."out'box"";drop table kept;--" ("i""d" bigint generated always as identity primary key,
          "ty'pe" text not null default 'order', "ke""y'" text, "pay load" text not null, "sta""tus'" text not null default 'wa''it"ing\',
          "tri""es" int not null default 0, "not before'" timestamptz, "last'er""ror" varchar(40));
        create table kept (n int); alter database relay_hostile set standard_conforming_strings = off; create table events (aggregateid text)"#;
    let relayed = Relayed::with_table(&world, "relay_hostile", table);
    let mut changes = router(&[
        ("table.field.event.id", "i\"d"),
        ("table.field.event.key", "ke\"y'"),
        ("table.field.event.payload", "pay load"),
        ("route.by.field", "ty'pe"),
        ("table.fields.additional.placement", "ty'pe:header:of"),
    ]);
    for (name, value) in [
        ("table.include.list", r#"s"x; --\.out'box";drop table kept;--"#),
        ("relay.columns.status", "sta\"tus'"),
        ("relay.columns.attempts", "tri\"es"),
        ("relay.columns.available.at", "not before'"),
        ("relay.columns.last.error", "last'er\"ror"),
        ("relay.status.pending", "wa'it\"ing\\"),
        ("relay.status.sent", "se'nt\\"),
        ("relay.status.failed", "fai\"led';--"),
        ("relay.max.attempts", "2"),
        ("relay.backoff.ms", "20"),
    ] {
        changes.push((name.into(), value.into()));
    }
    let name = r#""s""x; --"."out'box"";drop table kept;--""#;
    let keys = [
        r"a'); drop table kept; --",
        r"b\'",
        "$$",
        "line\nbreak",
        r#"{"a","b"}"#,
        "%s",
        "ü€",
    ];
    let sql = relayed.database().sql();
    let quoted = |text: &str| format!("$q${text}$q$");
    for key in keys {
        sql.run(&format!(
            r#"insert into {name} ("ke""y'", "pay load") select {}, n from generate_series(1, 5) n"#,
            quoted(key)
        ));
    }
    // These fail, and are put back by their key.
    sql.run(&format!(
        r#"insert into {name} ("ty'pe", "ke""y'", "pay load") values ('no '' topic', $q$it's "bad" \$q$, '1')"#
    ));
    let options = with(&relayed, &changes);
    let checked = Checked::of(&options, &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let hints = checked
        .stdout
        .lines()
        .filter_map(|line| line.split_once("create one: "));
    let hints: Vec<&str> = hints.map(|(_, statement)| statement).collect();
    assert!(!hints.is_empty(), "{}", checked.stdout);
    let mut walferry = Walferry::start(options);
    walferry.wait_until_ready();
    let count = |condition: &str| sql.value(&format!("select count(*) from {name} where {condition}"));
    wait_for("all rows to be sent or to fail", || {
        (count(r#""sta""tus'" = E'wa''it"ing\\'"#).as_deref() == Some("0")).then_some(())
    });
    assert_eq!(count(r#""sta""tus'" = E'fai"led'';--'"#).as_deref(), Some("1"));
    assert_eq!(count(r#""sta""tus'" = E'se''nt\\'"#).as_deref(), Some("35"));
    let config = walferry.config_file().display().to_string();
    let retried = walferry.command_with(&["outbox", "retry", "--config", &config, "--key", "it's \"bad\" \\"]);
    let said = String::from_utf8_lossy(&retried.stdout).into_owned() + &String::from_utf8_lossy(&retried.stderr);
    assert!(said.contains("1 row is tried again"), "{said}");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let by_key = relayed.numbers();
    for key in keys {
        assert_runs(by_key.get(key).unwrap_or_else(|| panic!("nothing of {key}")), 5);
    }
    assert_eq!(sql.value("select count(*) from kept").as_deref(), Some("0"));
    // psql would read a hint with what was escaped; the server runs it as it is.
    for hint in hints {
        sql.run(&format!("set standard_conforming_strings = on; {hint}"));
    }
}

/// Keys of other types than numbers, computed by the server, of several columns, or none.
#[test]
fn tables_with_keys_of_any_kind_are_relayed() {
    let world = world::shared();
    let cases = [
        (
            "relay_key_text",
            "id text primary key",
            "insert into events (id, aggregateid, payload) select lpad(n::text, 9, '0'), 'KEY', n from generate_series(FIRST, LAST) n",
        ),
        (
            "relay_key_uuid",
            "id uuid primary key, created_at timestamptz",
            "insert into events (id, aggregateid, payload, created_at) select md5('KEY' || n)::uuid, 'KEY', n, timestamptz '2026-01-01' + n * interval '1 s' from generate_series(FIRST, LAST) n",
        ),
        (
            "relay_key_identity",
            "id bigint generated by default as identity primary key",
            "insert into events (aggregateid, payload) select 'KEY', n from generate_series(FIRST, LAST) n",
        ),
        (
            "relay_key_several",
            "shard text not null, id int not null, primary key (shard, id)",
            "insert into events (shard, id, aggregateid, payload) select 's', n + 1000 * ascii('KEY'), 'KEY', n from generate_series(FIRST, LAST) n",
        ),
        (
            "relay_key_computed",
            "n int not null, id text generated always as (lpad(n::text, 9, '0')) stored primary key",
            "insert into events (n, aggregateid, payload) select n + 1000 * ascii('KEY'), 'KEY', n from generate_series(FIRST, LAST) n",
        ),
    ];
    for (name, id, insert) in cases {
        let table = format!(
            "create table events ({id}, aggregatetype text not null default 'order', aggregateid text not null,
               type text not null default 'Created', payload text not null, published_at timestamptz)"
        );
        let relayed = Relayed::with_table(&world, name, &table);
        // A computed key is not in the record, so the record's own id is another column.
        let mut walferry = relayed.start(&[("relay.batch.size", "7")]);
        for (round, key) in ["a", "b"].into_iter().enumerate() {
            let (first, last) = (1 + 100 * round, 100 + 100 * round);
            let insert = insert
                .replace("FIRST", &first.to_string())
                .replace("LAST", &last.to_string());
            relayed.database().sql().run(&insert.replace("KEY", key));
        }
        relayed.wait_until_none("published_at is null");
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        let numbers = relayed.numbers();
        assert_eq!(numbers["a"], (1..=100).collect::<Vec<_>>(), "{name}");
        assert_eq!(numbers["b"], (101..=200).collect::<Vec<_>>(), "{name}");
    }
}

/// The message key and the payload are computed by the server from another column.
#[test]
fn columns_that_the_server_computes_may_be_the_message_key() {
    let world = world::shared();
    let table = "create table events (id bigserial primary key, aggregatetype text not null default 'order', type text not null default 'T',
        body jsonb not null, aggregateid text generated always as (body ->> 'of') stored,
        payload text generated always as (body ->> 'number') stored, published_at timestamptz)";
    let relayed = Relayed::with_table(&world, "relay_computed", table);
    let checked = Checked::of(&relayed.options(&[]), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let _walferry = relayed.start(&[]);
    relayed.database().sql().run(
        "insert into events (body) select jsonb_build_object('of', 'a', 'number', n) from generate_series(1, 5) n",
    );
    relayed.wait_until_none("published_at is null");
    assert_eq!(
        relayed.numbers(),
        BTreeMap::from([("a".to_owned(), vec![1, 2, 3, 4, 5])])
    );
}

/// What `check` allows works, and what it refuses does not.
#[test]
fn a_role_needs_no_more_than_check_asks_for() {
    let world = world::shared();
    let marks = "select, update (status, attempts, available_at, last_error)";
    let cases = [
        ("relay_role_columns", marks, "mark", None),
        (
            "relay_role_delete",
            "select, update (status, attempts, available_at, last_error), delete",
            "delete",
            None,
        ),
        (
            "relay_role_no_mark",
            "select, update (attempts)",
            "mark",
            Some("UPDATE"),
        ),
        ("relay_role_no_delete", "select, update", "delete", Some("DELETE")),
        ("relay_role_no_lock", "select, delete", "delete", Some("UPDATE")),
        ("relay_role_no_select", "update, delete", "mark", Some("SELECT")),
    ];
    for (name, privileges, done, lacks) in cases {
        let table = format!(
            "create table events (id bigint generated always as identity primary key, aggregatetype text not null default 'order',
             aggregateid text not null, type text not null default 'Created', payload text not null, status varchar(20) not null default 'PENDING',
             attempts int not null default 0, available_at timestamptz not null default now(), last_error text);
             create role {name} login; grant {privileges} on events to {name}"
        );
        let relayed = Relayed::with_table(&world, name, &table);
        relayed.insert("a", 1, 20);
        relayed
            .database()
            .sql()
            .run("insert into events (aggregatetype, aggregateid, payload) values ('no topic', 'b', '1')");
        let changes = [
            ("database.user", name),
            ("relay.done", done),
            ("relay.max.attempts", "1"),
        ];
        let checked = Checked::of(&relayed.options(&changes), &[]);
        if let Some(lacks) = lacks {
            assert_eq!(checked.code, Some(2), "{name}: {}{}", checked.stdout, checked.stderr);
            let said = format!("lacks the privilege {lacks}");
            assert!(checked.stdout.contains(&said), "{name}: {}", checked.stdout);
            let grant = checked.stdout.lines().find_map(|line| line.split_once("GRANT "));
            let (_, grant) = grant.unwrap_or_else(|| panic!("no statement: {}", checked.stdout));
            relayed.database().sql().run(&format!("GRANT {grant}"));
            let checked = Checked::of(&relayed.options(&changes), &[]);
            assert_eq!(checked.code, Some(0), "{name}: {}{}", checked.stdout, checked.stderr);
        } else {
            assert_eq!(checked.code, Some(0), "{name}: {}{}", checked.stdout, checked.stderr);
        }
        let mut walferry = relayed.start(&changes);
        relayed.wait_until_none("status = 'PENDING'");
        assert_eq!(relayed.count("status = 'FAILED' and attempts = 1"), 1, "{name}");
        assert_runs(&relayed.numbers()["a"], 20);
        assert_eq!(walferry.terminate(), Some(0));
        drop(walferry);
        relayed
            .database()
            .sql()
            .run(&format!("drop owned by {name}; drop role {name}"));
    }
}

/// Rows that a policy hides from the role are not sent, which is told; the others are.
#[test]
fn row_level_security_hides_rows_and_check_says_so() {
    let world = world::shared();
    let relayed = Relayed::new(
        &world,
        "relay_rls",
        &format!("tenant text not null default 'mine', {POLLER}"),
    );
    relayed.database().sql().run(
        "create role relay_rls login; grant select, update on events to relay_rls; alter table events enable row level security;
         create policy mine on events to relay_rls using (tenant = 'mine')",
    );
    relayed.insert("a", 1, 20);
    relayed
        .database()
        .sql()
        .run("update events set tenant = 'other' where id % 2 = 0");
    let changes = [("database.user", "relay_rls")];
    let checked = Checked::of(&relayed.options(&changes), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    assert!(
        checked
            .stdout
            .contains("row-level security of table \"public\".\"events\" may hide rows from the role relay_rls"),
        "{}",
        checked.stdout
    );
    let mut walferry = relayed.start(&changes);
    relayed.wait_until_none("status = 'PENDING' and tenant = 'mine'");
    assert_eq!(relayed.numbers()["a"], (1..=20).step_by(2).collect::<Vec<_>>());
    assert_eq!(relayed.count("status = 'PENDING'"), 10);
    assert_eq!(walferry.terminate(), Some(0));
    drop(walferry);
    // Postgres refuses an UPDATE after which the role would not see the row.
    relayed
        .database()
        .sql()
        .run("drop policy mine on events; create policy waiting on events to relay_rls using (status = 'PENDING')");
    relayed.insert("b", 1, 2);
    let mut walferry = Walferry::start(relayed.options(&changes));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let hint = "let a policy show the role rows that were sent, too";
    assert!(walferry.output().contains(hint), "{}", walferry.output());
    drop(walferry);
    relayed
        .database()
        .sql()
        .run("drop owned by relay_rls; drop role relay_rls");
}

/// A trigger of the table is written for the path of those who update it.
#[test]
fn triggers_of_the_table_find_their_tables_and_change_nothing_of_ours() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_triggers", POLLER);
    // Deferred ones run when the transaction is committed. Operators and functions in `public` would take the place of ours.
    relayed.database().sql().run(
        "create table audit (id bigint, who text); create table later (id bigint);
         create function note() returns trigger language plpgsql as $$ begin insert into audit values (new.id, current_user); return new; end $$;
         create trigger note before update on events for each row execute function note();
         create function note_later() returns trigger language plpgsql as $$ begin insert into later values (new.id); return null; end $$;
         create constraint trigger note_later after update on events deferrable initially deferred for each row execute function note_later();
         create function public.always(tid, tid) returns boolean language sql as 'select true';
         create operator public.= (leftarg = tid, rightarg = tid, function = public.always);
         create role relay_triggers login; alter role relay_triggers set search_path = public, pg_catalog;
         grant select, update on events to relay_triggers; grant insert on audit, later to relay_triggers",
    );
    relayed.insert("a", 1, 20);
    let mut walferry = relayed.start(&[("database.user", "relay_triggers")]);
    relayed.wait_until_none("status = 'PENDING'");
    let sql = relayed.database().sql();
    let noted = "select count(*) || ' ' || count(distinct id) || ' ' || min(who) from audit";
    assert_eq!(sql.value(noted).as_deref(), Some("20 20 relay_triggers"));
    assert_eq!(sql.value("select count(*) from later").as_deref(), Some("20"));
    assert_eq!(relayed.numbers()["a"], (1..=20).collect::<Vec<_>>());
    assert_eq!(walferry.terminate(), Some(0));
    drop(walferry);
    sql.run("drop owned by relay_triggers; drop role relay_triggers");
}

/// A trigger that undoes the marks would otherwise have the same rows sent again as fast as that goes.
#[test]
fn marks_that_a_trigger_undoes_are_told_and_not_repeated_at_full_speed() {
    let world = world::shared();
    for (name, body) in [
        ("relay_undone_skip", "return null"),
        ("relay_undone_back", "new.status := 'PENDING'; return new"),
    ] {
        let relayed = Relayed::new(&world, name, POLLER);
        relayed.database().sql().run(&format!(
            "create function undo() returns trigger language plpgsql as $$ begin {body}; end $$;
             create trigger undo before update on events for each row execute function undo()"
        ));
        relayed.insert("a", 1, 5);
        let mut walferry = relayed.start(&[]);
        wait_for("it to be told", || {
            walferry
                .output()
                .contains("of 5 rows, only 0 could be marked")
                .then_some(())
        });
        relayed.database().sql().run("drop trigger undo on events");
        relayed.wait_until_none("status = 'PENDING'");
        let sent = relayed.numbers()["a"].len();
        assert!(sent <= 50, "{name}: {sent} records of 5 rows");
        assert_eq!(walferry.terminate(), Some(0));
    }
}

/// A row that cannot be converted goes there after its last attempt, a record that is too large or whose topic has an impossible name at once. Later
/// rows follow.
#[test]
fn rows_that_cannot_be_sent_go_to_the_dead_letter_topic() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_dead", POLLER);
    let topic = relayed.outbox.topic("order");
    world.kafka.configure_topic(&topic, &[("max.message.bytes", "5000")]);
    let sql = relayed.database().sql();
    relayed.insert("a", 1, 5);
    sql.run("insert into events (aggregateid, payload) values ('a', 'ill')");
    relayed.insert("a", 6, 10);
    relayed.insert("b", 1, 5);
    sql.run("insert into events (aggregateid, payload) values (repeat('c', 20000), '1')");
    sql.run("insert into events (aggregatetype, aggregateid, payload) values ('no topic', 'b', '2')");
    relayed.insert("b", 6, 10);
    let _walferry = relayed.start(&[
        ("relay.max.attempts", "2"),
        ("relay.backoff.ms", "20"),
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", "relay_dead.dead"),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
        ("transforms", "outbox,number"),
        (
            "transforms.number.type",
            "org.apache.kafka.connect.transforms.Cast$Value",
        ),
        ("transforms.number.spec", "int32"),
    ]);
    relayed.wait_until_none("status <> 'SENT'");
    let numbers = relayed.numbers();
    assert_runs(&numbers["a"], 10);
    assert_runs(&numbers["b"], 10);
    assert_eq!(numbers.len(), 2);
    assert_eq!(relayed.count("attempts > 0"), 1, "one attempt before the last one");
    // A look that Kafka has not acknowledged in time repeats them.
    wait_for("each of the three", || {
        let dead = world.kafka.read(&["relay_dead.dead".to_owned()]);
        let keys: BTreeSet<Option<Vec<u8>>> = dead.into_iter().map(|record| record.key).collect();
        (keys.len() == 3).then_some(())
    });
}

/// A look reads no more than memory is meant for, however many rows wait.
#[test]
fn many_large_rows_do_not_take_more_memory_than_a_few() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_large", "published_at timestamptz");
    let mut walferry = relayed.start(&[("producer.override.max.request.size", "20000000")]);
    // 200 MB, which a debug build would hold several times.
    let insert_large = |key: &str| {
        relayed.database().sql().run(&format!(
            "insert into events (aggregateid, payload) select '{key}', lpad(n::text, 5000000, '0') from generate_series(1, 40) n"
        ));
    };
    let assert_little = |walferry: &Walferry| {
        let (_, highest) = walferry.resident_kib().expect("it runs");
        assert!(
            highest < 300 * 1024,
            "{highest} KiB were resident at most, for rows of 5 MB"
        );
    };
    // After small rows, many are expected to fit.
    relayed.insert("a", 1, 1000);
    relayed.wait_until_none("published_at is null");
    insert_large("b");
    relayed.wait_until_none("published_at is null");
    assert_little(&walferry);
    assert_runs(&relayed.numbers()["b"], 40);
    // Also in the first look.
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    insert_large("c");
    walferry.start_again();
    walferry.wait_until_ready();
    relayed.wait_until_none("published_at is null");
    assert_little(&walferry);
    assert_runs(&relayed.numbers()["c"], 40);
}

/// A column that comes while it runs is in the records of all rows that have it.
#[test]
fn a_change_of_the_table_is_noticed_before_any_row_of_it_is_sent() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_altered", "published_at timestamptz");
    let mut options = relayed.options(&[
        ("relay.poll.interval.ms", "20"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("value.converter.schemas.enable", "false"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
    ]);
    options.config.retain(|name, _| !name.starts_with("transforms"));
    let mut walferry = Walferry::start(options);
    walferry.wait_until_ready();
    let after = |payload: &str| -> Value {
        relayed.wait_until_none("published_at is null");
        let records = world.kafka.read(&["relay_altered.public.events".to_owned()]);
        let mut rows = records.iter().map(|record| {
            let value: Value = record
                .value_text()
                .and_then(|text| serde_json::from_str(text).ok())
                .expect("JSON");
            value["after"].clone()
        });
        rows.find(|row| row["payload"] == payload).expect("it is there")
    };
    relayed.insert("a", 1, 5);
    assert_eq!(after("5").get("tenant"), None);
    let sql = relayed.database().sql();
    sql.run("begin; alter table events add tenant text; insert into events (aggregateid, payload, tenant) values ('a', '6', 'x'); commit");
    assert_eq!(after("6")["tenant"], "x", "{}", walferry.output());
    // Also of a type, where the old one would make another value of it.
    sql.run(
        "begin; alter table events alter tenant type bigint using length(tenant);
         insert into events (aggregateid, payload, tenant) values ('a', '7', 12345678901); commit",
    );
    assert_eq!(after("7")["tenant"], 12_345_678_901_i64, "{}", walferry.output());
    sql.run("begin; alter table events rename tenant to shop; insert into events (aggregateid, payload, shop) values ('a', '8', 1); commit");
    assert_eq!(after("8")["shop"], 1, "{}", walferry.output());
    assert!(walferry.runs());
}

/// A pooler hands out another connection for each transaction, and refuses settings at the login.
#[test]
fn behind_pgbouncer_in_transaction_mode_nothing_is_lost_or_left() {
    const LAST: i64 = 300;
    let world = world::shared();
    let relayed = Relayed::new(
        &world,
        "relay_pooled",
        &format!("day date not null default '2026-02-01', {POLLER}"),
    );
    let sql = relayed.database().sql();
    // Settings of the role would change the text of values.
    sql.run(
        "create role relay_pooled login; grant select, update on events to relay_pooled;
         alter role relay_pooled set datestyle = 'German'; alter role relay_pooled set timezone = 'Asia/Tokyo';
         alter role relay_pooled set default_transaction_isolation = 'serializable'; alter role relay_pooled set statement_timeout = '1h'",
    );
    let pooler = PgBouncer::start(&world.postgres, 3);
    let (port, direct) = (pooler.port().to_string(), relayed.database().port().to_string());
    let changes = [
        ("database.port", &*port),
        ("database.user", "relay_pooled"),
        ("relay.batch.size", "40"),
        ("relay.poll.interval.ms", "20"),
        ("relay.notify.channel", "new_rows"),
        ("relay.notify.port", &*direct),
        (
            "transforms.outbox.table.fields.additional.placement",
            "type:header:eventType,day:header:day",
        ),
    ];
    let checked = Checked::of(&relayed.options(&changes), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let mut both = [relayed.start(&changes), relayed.start(&changes)];
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let mut kills = 0;
    for first in (1..=LAST).step_by(100) {
        for key in &keys {
            relayed.insert(key, first, first + 99);
        }
        let before = relayed.count("status = 'SENT'");
        wait_for("some rows to be marked", || {
            (relayed.count("status = 'SENT'") > before + 100).then_some(())
        });
        let victim = &mut both[kills % 2];
        victim.kill();
        victim.start_again();
        kills += 1;
    }
    relayed.wait_until_none("status <> 'SENT'");
    let numbers = relayed.numbers();
    for key in &keys {
        assert_runs(&numbers[key], LAST);
    }
    let total: usize = numbers.values().map(Vec::len).sum();
    assert!(total <= keys.len() * LAST as usize + kills * 40, "{total} records");
    // Days since 1970, read as ISO writes them.
    assert!(
        relayed
            .records()
            .iter()
            .all(|record| record.header_text("day") == Some("20485"))
    );
    for mut walferry in both {
        walferry.wait_until_ready();
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
    let locks = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())";
    assert_eq!(
        sql.value(locks).as_deref(),
        Some("0"),
        "locks that outlast their transaction"
    );
    drop(pooler);
    wait_for("its connections to end", || {
        let left = "select count(*) from pg_stat_activity where usename = 'relay_pooled'";
        (sql.value(left).as_deref() == Some("0")).then_some(())
    });
    sql.run("drop owned by relay_pooled; drop role relay_pooled");
}

#[test]
fn while_kafka_is_away_or_hangs_no_transaction_is_open_and_then_all_rows_arrive() {
    let mut world = world::alone();
    let relayed = Relayed::new(&world, "relay_away", POLLER);
    let mut walferry = relayed.start(&[("relay.poll.interval.ms", "20")]);
    relayed.insert("a", 1, 10);
    relayed.wait_until_none("status <> 'SENT'");
    let topic = relayed.outbox.topic("order");
    let (database, outbox) = (relayed.database().name().to_owned(), relayed.outbox);
    let sql = outbox.database.sql();
    let insert = |first: i64, last: i64| {
        sql.run(&format!(
            "insert into events (aggregateid, payload) select 'a', n from generate_series({first}, {last}) n"
        ));
    };
    let none_is_open = |walferry: &mut Walferry| {
        let open = format!(
            "select count(*) from pg_stat_activity where datname = '{database}' and application_name = 'Walferry Outbox Relay'
               and xact_start is not null"
        );
        wait_for("the transaction of the last look to end", || {
            (sql.value(&open).as_deref() == Some("0")).then_some(())
        });
        for _ in 0..300 {
            assert_eq!(sql.value(&open).as_deref(), Some("0"), "{}", walferry.output());
        }
        assert!(walferry.runs(), "{}", walferry.output());
    };
    world.kafka.stop(true);
    insert(11, 500);
    wait_for("the outage to be noticed", || {
        walferry.output().contains("no Kafka broker of").then_some(())
    });
    none_is_open(&mut walferry);
    world.kafka.start_again();
    let all_sent = || {
        wait_for("all rows to be sent", || {
            (sql.value("select count(*) from events where status <> 'SENT'")
                .as_deref()
                == Some("0"))
            .then_some(())
        });
    };
    all_sent();
    world.kafka.hang();
    insert(501, 1000);
    wait_for("the outage to be noticed", || {
        walferry
            .output()
            .contains("Kafka has not acknowledged rows of the outbox in time")
            .then_some(())
    });
    none_is_open(&mut walferry);
    world.kafka.resume();
    all_sent();
    let failed = sql.value("select count(*) from events where attempts > 0");
    assert_eq!(failed.as_deref(), Some("0"), "an outage is no failure of a row");
    let records = world.kafka.read(&[topic]);
    let numbers: Vec<i64> = records
        .iter()
        .filter_map(|record| record.value_text()?.parse().ok())
        .collect();
    assert_runs(&numbers, 1000);
    assert_eq!(walferry.terminate(), Some(0));
}

#[test]
fn crashes_of_postgres_under_load_lose_nothing_and_repeat_one_look_at_most() {
    const LAST: i64 = 3000;
    const LOOK: usize = 60;
    let mut world = world::alone();
    let relayed = Relayed::new(&world, "relay_crash", POLLER);
    let look = LOOK.to_string();
    let changes = [("relay.batch.size", &*look), ("relay.poll.interval.ms", "20")];
    let mut both = [relayed.start(&changes), relayed.start(&changes)];
    let outbox = relayed.outbox;
    let sql = outbox.database.sql();
    let mut crashes = 0;
    for first in (1..=LAST).step_by(1000) {
        for key in ["a", "b", "c"] {
            sql.run(&format!(
                "insert into events (aggregateid, payload) select '{key}', n from generate_series({first}, {}) n",
                first + 999
            ));
        }
        let count = "select count(*) from events where status = 'SENT'";
        let before: i64 = sql.value(count).and_then(|count| count.parse().ok()).expect("a number");
        wait_for("some rows to be marked", || {
            let now: i64 = sql.value(count)?.parse().ok()?;
            (now > before + 200).then_some(())
        });
        world.postgres.stop(true);
        world.postgres.start_again();
        crashes += 1;
    }
    wait_for("all rows to be sent", || {
        (sql.value("select count(*) from events where status <> 'SENT'")
            .as_deref()
            == Some("0"))
        .then_some(())
    });
    let mut numbers: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for record in world.kafka.read(&[outbox.topic("order")]) {
        let number = record
            .value_text()
            .and_then(|text| text.parse().ok())
            .expect("a number");
        numbers
            .entry(record.key_text().unwrap_or_default().to_owned())
            .or_default()
            .push(number);
    }
    let total: usize = numbers.values().map(Vec::len).sum();
    for numbers in numbers.values() {
        assert_runs(numbers, LAST);
    }
    let most = 3 * LAST as usize + crashes * both.len() * LOOK;
    assert!(total <= most, "{total} records, {most} at most");
    for walferry in &mut both {
        assert!(walferry.runs());
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

/// The SQL of a section of the page, in its order.
#[track_caller]
fn sql_of(heading: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is a folder of the checkout");
    let page = fs::read_to_string(root.join("docs/how-to/relay.md")).expect("the page is there");
    let (_, section) = page
        .split_once(&format!("## {heading}\n"))
        .expect("the page has this section");
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let blocks = section.split("```sql\n").skip(1);
    blocks
        .map(|block| block.split_once("```").expect("it ends").0.to_owned())
        .collect()
}

#[test]
fn a_table_goes_from_relay_mode_to_the_stream_and_back_while_it_is_written_to() {
    let world = world::shared();
    if world.postgres.major_version() < 15 {
        // The publication has a row filter.
        return;
    }
    let table = "create table outbox_events (id bigserial primary key, aggregatetype text not null default 'order', aggregateid text not null,
        type text not null default 'Created', payload text not null, status text not null default 'PENDING', attempts int not null default 0,
        available_at timestamptz not null default now(), last_error text)";
    let relayed = Relayed::with_table(&world, "relay_switch", table);
    let sql = relayed.database().sql();
    let relay = [
        ("table.include.list", "public.outbox_events"),
        ("relay.poll.interval.ms", "20"),
    ];
    let stream = relayed.outbox.config_with([
        ("table.include.list", "public.outbox_events"),
        ("slot.name", "outbox"),
        ("publication.name", "outbox"),
        ("publication.autocreate.mode", "disabled"),
    ]);
    let (to_stream, to_relay) = (
        sql_of("From relay mode to the stream"),
        sql_of("From the stream to relay mode"),
    );
    let sent = || -> i64 { world.kafka.ends(&[relayed.outbox.topic("order")]).values().sum() };
    let more = |what: &str| {
        let before = sent();
        wait_for(what, || (sent() >= before + 60).then_some(()));
    };
    let in_time = |statements: &str| {
        wait_for("a lock", || {
            let made = sql.try_run(statements);
            let is_late = |error: &String| error.contains("lock timeout");
            assert!(made.as_ref().err().is_none_or(is_late), "{made:?}");
            made.ok()
        });
    };
    let (writes, written) = (AtomicBool::new(true), AtomicI64::new(0));
    let mut relays = [relayed.start(&relay), relayed.start(&relay)];
    let stop = StopWriting(&writes);
    thread::scope(|scope| {
        let stop = stop;
        // Two writers: numbers of a key are committed in their order, and transactions overlap.
        for key in ["a", "b"] {
            let sql = world.postgres.in_database(relayed.database().name());
            let (writes, written) = (&writes, &written);
            scope.spawn(move || {
                let mut number = 0;
                while writes.load(SeqCst) {
                    let rows = 1 + number % 3;
                    sql.run(&format!(
                        "begin; select txid_current(); insert into outbox_events (aggregateid, payload) select '{key}', n
                           from generate_series({}, {}) n; commit",
                        number + 1,
                        number + rows
                    ));
                    number += rows;
                    thread::sleep(std::time::Duration::from_millis(3));
                }
                written.fetch_add(number, SeqCst);
            });
        }
        more("relay mode to send");

        sql.run(&to_stream[0]);
        let mut streaming = Walferry::start(relayed.outbox.options(stream));
        relayed.outbox.wait_until_streaming(&mut streaming);
        streaming
            .ask("PUT", "/connectors/relay_switch/pause")
            .expect("it listens");
        wait_for("the connector to be paused", || {
            let status = streaming.get("/connectors/relay_switch/status")?;
            (status.json()["connector"]["state"] == "PAUSED").then_some(())
        });
        sql.run(&to_stream[1]);
        in_time(&to_stream[2]);
        wait_for("relay mode to finish", || {
            (sql.value(&to_stream[3]).as_deref() == Some("0")).then_some(())
        });
        for walferry in &mut relays {
            assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        }
        streaming
            .ask("PUT", "/connectors/relay_switch/resume")
            .expect("it listens");
        more("the stream to send");
        sql.run(&to_stream[4]);
        more("the stream to send");

        sql.run(&to_stream[1]);
        in_time(&to_stream[2]);
        sql.run(&to_relay[0]);
        more("the stream to send");
        in_time(&to_relay[1]);
        let noted = sql.value(&to_relay[2]).expect("a position");
        wait_for("the stream to finish", || {
            (sql.value(&to_relay[3].replace("NOTED", &noted)).as_deref() == Some("t")).then_some(())
        });
        assert_eq!(streaming.terminate(), Some(0), "{}", streaming.output());
        for walferry in &mut relays {
            walferry.start_again();
        }
        sql.wait_for_free_slot("outbox");
        sql.run(&to_relay[4]);
        more("relay mode to send again");
        drop(stop);
    });
    wait_for("all rows to be sent", || {
        (sql.value(&to_stream[3]).as_deref() == Some("0")).then_some(())
    });
    let numbers: BTreeMap<String, Vec<i64>> = relayed.numbers();
    let total: usize = numbers.values().map(Vec::len).sum();
    assert_eq!(
        i64::try_from(total),
        Ok(written.load(SeqCst)),
        "an event was lost or sent twice"
    );
    for (key, numbers) in numbers {
        assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>(), "{key}");
    }
}

/// Ends the threads of a test that fails.
struct StopWriting<'a>(&'a AtomicBool);

impl Drop for StopWriting<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// The state of the connection that looks for rows.
fn look_state(relayed: &Relayed<'_>) -> Option<String> {
    let query = "select state from pg_stat_activity where datname = current_database() and application_name = 'Walferry Outbox Relay'";
    relayed.database().sql().value(query)
}

/// The server ends a transaction in which it hears nothing. The answer to what it has not heard is that end.
#[test]
fn a_look_that_the_server_has_ended_is_followed_by_another() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_unheard", "published_at timestamptz");
    let network = Network::to(world.postgres.port());
    let port = network.port().to_string();
    let holder = world.postgres.in_database(relayed.database().name());
    let mut number = 0;
    let mut walferry = loop {
        // The first look of a session waits for the lock, and is asked whether its transaction is still open when that is not heard any more.
        number += 1;
        let row = format!("insert into events (aggregateid, payload) values ('a', '{number}')");
        holder.run(&format!("begin; lock table events in exclusive mode; {row}"));
        let mut walferry = relayed.start(&[("database.port", &port)]);
        wait_for("a look to wait", || {
            let waits = "select count(*) from pg_locks where relation = 'events'::regclass and not granted";
            (relayed.database().sql().value(waits).as_deref() == Some("1")).then_some(())
        });
        network.set(Weather::FrozenRequests);
        holder.run("commit");
        let state = wait_for("the look to end", || {
            look_state(&relayed).filter(|state| state != "active")
        });
        if state == "idle in transaction" {
            break walferry;
        }
        // It has waited too long for the lock.
        network.set(Weather::Fair);
        walferry.kill();
    };
    wait_for("the server to end the look", || {
        look_state(&relayed)
            .is_none_or(|state| state != "idle in transaction")
            .then_some(())
    });
    network.set(Weather::Fair);
    walferry.wait_until_ready();
    relayed.wait_until_none("published_at is null");
    assert_runs(&relayed.numbers()["a"], number);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// The rows that are on the way to a process that hangs, or to whose machine the way is broken, do not keep its lanes for longer than others do.
#[test]
fn a_look_whose_rows_nobody_reads_gives_its_lanes_back() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_unread", "published_at timestamptz");
    let network = Network::to(world.postgres.port());
    let port = network.port().to_string();
    let mut first = relayed.start(&[("database.port", &port)]);
    // More than the buffers of the connections take.
    network.limit_answers(Some(100_000));
    relayed.database().sql().run(
        "insert into events (aggregateid, payload) select 'a', lpad(n::text, 1000000, '0') from generate_series(1, 40) n",
    );
    wait_for("a look to be stuck", || {
        let stuck =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite'";
        (relayed.database().sql().value(stuck).as_deref() == Some("1")).then_some(())
    });
    let changes = [("producer.override.max.request.size", "20000000")];
    let mut second = relayed.start(&changes);
    relayed.wait_until_none("published_at is null");
    assert_runs(&relayed.numbers()["a"], 40);
    network.limit_answers(None);
    first.wait_until_ready();
    assert_eq!(first.terminate(), Some(0), "{}", first.output());
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
}

/// A migration, or a session that was forgotten, has the table for itself.
#[test]
fn a_locked_table_is_told_with_who_has_it() {
    let world = world::shared();
    let relayed = Relayed::new(&world, "relay_locked_told", "published_at timestamptz");
    let holder = world.postgres.in_database(relayed.database().name());
    holder.run("begin; lock table events; insert into events (aggregateid, payload) values ('a', '1')");
    let process = holder.value("select pg_backend_pid()").expect("it has one");
    let told = format!("\"public\".\"events\" is locked by process {process} of role ");
    let checked = Checked::of(&relayed.options(&[]), &[]);
    let said = checked.stdout + &checked.stderr;
    assert!(
        said.contains(&told) && said.contains(&format!("pg_terminate_backend({process})")),
        "{said}"
    );
    let mut walferry = Walferry::start(relayed.options(&[]));
    wait_for("the log", || {
        assert!(walferry.runs(), "{}", walferry.output());
        // Quotes are escaped in the log's lines.
        walferry.output().replace('\\', "").contains(&told).then_some(())
    });
    holder.run("commit");
    relayed.wait_until_none("published_at is null");
    assert_eq!(relayed.numbers()["a"], [1]);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
