//! Incremental snapshots: which rows of a chunk the changes beside it replace, and what becomes of a table whose key is replaced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::json;
use walferry_testkit::servers::{Network, Postgres, PostgresOptions, Record, Sql, Walferry, wait_for};

use crate::signals::{
    SIGNALS, ask_for, begin, config, drop_slot, execute, rebuilt, rows_by_key, start, start_as, start_read_only, value,
    wait_for_log, wait_until_delivered,
};
use crate::signals_edges::wait_until_a_window_is_held;
use crate::world;

const COMPLETE: &str = "the incremental snapshot is complete";

/// While the test holds the lock 7, no window closes from this one on.
fn hold_from(window: u32) -> String {
    format!(
        "{SIGNALS};
         create sequence closes;
         create function hold() returns trigger language plpgsql as $$ begin
             if nextval('closes') >= {window} then perform pg_advisory_xact_lock(7); end if;
             return new;
         end $$;
         create trigger hold before insert on signals for each row when (new.type = 'snapshot-window-close') execute function hold();
         select pg_advisory_lock(7)"
    )
}

/// What a consumer has of each row, by the column `n`, which only the test knows to be unique: the column `v`.
fn last_by_n(records: &[Record]) -> BTreeMap<i64, String> {
    let mut rows = BTreeMap::new();
    for record in records.iter().filter(|record| record.value.is_some()) {
        let value = value(record);
        if value["op"] == "d" {
            rows.remove(&value["before"]["n"].as_i64().expect("a number"));
            continue;
        }
        let after = &value["after"];
        let (n, v) = (after["n"].as_i64(), after["v"].as_str());
        rows.insert(n.expect("a number"), v.expect("a text").to_owned());
    }
    rows
}

fn table_by_n(sql: &Sql, table: &str) -> BTreeMap<i64, String> {
    let rows = sql.rows(&format!("select n, v from {table}")).into_iter();
    let row = |row: Vec<Option<String>>| {
        let [n, v] = [&row[0], &row[1]].map(|text| text.clone().expect("no nulls"));
        (n.parse().expect("a number"), v)
    };
    rows.map(row).collect()
}

/// Ten orders of two customers, whose events have the customer as their key.
#[test]
fn orders_that_share_the_key_of_their_events_all_arrive() {
    let name = "incremental_orders";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{};
         create table items (n int primary key, customer int not null, v text, note text);
         alter table items alter column note set storage external;
         insert into items select i, i % 2, 'v' || i, repeat('note' || i, 1000) from generate_series(1, 10) i",
        hold_from(1)
    ));
    let properties = [("message.key.columns", "public.items:customer")];
    let mut walferry = start(world, name, &database, &properties);
    sql.run(&execute("public.items"));
    wait_until_a_window_is_held(sql);
    // None of these brings the note.
    sql.run("update items set v = 'u' || n where n in (2, 3); delete from items where n = 4; update items set customer = 5 where n = 6");
    sql.run("select pg_advisory_unlock(7)");
    wait_for_log(&mut walferry, COMPLETE, 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let records = world.kafka.read(&[format!("{name}.public.items")]);
    assert_eq!(last_by_n(&records), table_by_n(sql, "items"), "{}", walferry.output());
    let mut notes = BTreeMap::new();
    for record in records.iter().filter(|record| record.value.is_some()) {
        let after = &value(record)["after"];
        let note = after["note"].as_str().unwrap_or("__debezium_unavailable_value");
        if note != "__debezium_unavailable_value" {
            notes.insert(after["n"].as_i64(), note.to_owned());
        }
    }
    for n in table_by_n(sql, "items").into_keys() {
        assert_eq!(
            notes.get(&Some(n)),
            Some(&format!("note{n}").repeat(1000)),
            "the note of {n}"
        );
    }
    drop_slot(sql, name);
}

/// Tables whose rows nothing tells apart, or something that the events do not have: duplicates, nulls, indexes that do not hold for each row.
/// In each window, rows are changed that the chunk has, and rows that it does not have.
const KINDS: &str = "
    create table items_shared (n int primary key, c int, v text);
    create table items_nullable (n int, c int, v text);
    create unique index on items_nullable (c);
    create table items_partial (n int, c int, v text);
    create unique index on items_partial (c) where n = 7;
    create table items_invalid (n int, c int not null default 0, v text);
    create table items_deferred (n int not null, c int, v text, unique (n) deferrable initially deferred);
    create table items_expression (n int, c int, v text);
    create unique index on items_expression ((n + 0));
    create table items_keyless (n int, c int, v text);
    create table items_surrogate (n int primary key, c int, v text);
    create table items_bare (n int, c int, v text);
    create table items_numeric (n int, c numeric, v text);
    create table items_two (n int not null, c int, v text);
    create unique index a_key on items_two (c) where n = 3;
    create unique index b_key on items_two (n);
    create table items_parent (n int primary key, c int, v text);
    create table a_child () inherits (items_parent);";

const TABLES: [&str; 12] = [
    "items_shared",
    "items_nullable",
    "items_partial",
    "items_invalid",
    "items_deferred",
    "items_expression",
    "items_keyless",
    "items_surrogate",
    "items_bare",
    "items_numeric",
    "items_two",
    "items_parent",
];

/// Changes of the table that is read, in the transaction of each row that opens or closes a window.
const CHANGES: &str = "
    create sequence windows;
    create table now_read (name text);
    create function change() returns trigger language plpgsql as $$
    declare k int := nextval('windows'); name text := (select now_read.name from now_read); statement text;
    begin
        if k > 24 then return new; end if;
        foreach statement in array array[
            'update only %I set v = v || ''+'' where n % 5 = $1 % 5',
            'update only %I set c = c + 1 where n % 7 = $1 % 7',
            'update only %I set c = null where n % 11 = $1 % 11',
            'delete from only %I where n = 13 - $1 / 4',
            'insert into %I (n, c, v) values (1000 + $1, $1 % 4, ''new'')'] loop
            begin
                execute format(replace(statement, '% ', '%% '), name) using k;
            exception when unique_violation or not_null_violation then null;
            end;
        end loop;
        return new;
    end $$;
    create trigger on_close before insert on signals for each row when (new.type = 'snapshot-window-close') execute function change();
    create trigger on_open after insert on signals for each row when (new.type = 'snapshot-window-open') execute function change();";

fn tables_of_all_kinds(chunk_size: &str) {
    tables_of_all_kinds_by(&format!("incremental_kinds_{chunk_size}"), chunk_size, None);
}

fn tables_of_all_kinds_by(name: &str, chunk_size: &str, network: Option<&Network>) {
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!("{SIGNALS}; {KINDS}"));
    for table in TABLES {
        let c = match table {
            "items_nullable" => "case when i % 3 > 0 then i end",
            "items_invalid" => "i / 4",
            "items_numeric" => "case i % 3 when 0 then 1.0 when 1 then 1.00 else 2.000 + i / 9 end",
            _ => "case when i % 9 > 0 then i / 4 end",
        };
        sql.run(&format!(
            "insert into {table} select i, {c}, 'v' || i from generate_series(1, 12) i"
        ));
        if !matches!(table, "items_shared" | "items_surrogate" | "items_parent") {
            sql.run(&format!("alter table {table} replica identity full"));
        }
    }
    sql.run("insert into a_child select i, i / 4, 'v' || i from generate_series(101, 110) i");
    sql.try_run("create unique index concurrently on items_invalid (c)")
        .expect_err("it has duplicates");
    assert_eq!(
        sql.value("select count(*) from pg_index where not indisvalid")
            .as_deref(),
        Some("1")
    );
    sql.run(CHANGES);
    let properties = [
        ("incremental.snapshot.chunk.size", chunk_size),
        ("message.key.columns", "public.items_(shared|keyless):c"),
    ];
    let mut config = config(name, &database, &properties);
    if let Some(network) = network {
        config.insert("database.port".to_owned(), network.port().to_string().into());
    }
    let mut walferry = start_as(world, name, config);
    for (read, table) in TABLES.into_iter().enumerate() {
        let surrogate = match table {
            "items_surrogate" | "items_bare" | "items_numeric" => ", \"surrogate-key\": \"c\"",
            _ => "",
        };
        sql.run(&format!(
            "delete from now_read; insert into now_read values ('{table}'); select setval('windows', 1, false);
             insert into signals values ('s-' || clock_timestamp(), 'execute-snapshot',
                 '{{\"data-collections\": [\"public.{table}\"]{surrogate}}}')"
        ));
        wait_for_log(&mut walferry, COMPLETE, read + 1);
    }
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    for table in TABLES {
        let records = world.kafka.read(&[format!("{name}.public.{table}")]);
        // Rows of the child come by the snapshot of its parent only.
        let expected = table_by_n(sql, &format!("{table} where n < 101 or n >= 1000"));
        let mut rows = last_by_n(&records);
        let of_child: Vec<i64> = (101..=110).filter(|n| rows.remove(n).is_some()).collect();
        assert_eq!(rows, expected, "{table}:\n{}", walferry.output());
        assert_eq!(of_child.len(), if table == "items_parent" { 10 } else { 0 });
    }
    drop_slot(sql, name);
}

#[test]
fn tables_of_all_kinds_arrive_whole_in_chunks_of_one_row() {
    tables_of_all_kinds("1");
}

#[test]
fn tables_of_all_kinds_arrive_whole_in_chunks_of_two_rows() {
    tables_of_all_kinds("2");
}

#[test]
fn tables_of_all_kinds_arrive_whole_in_chunks_of_three_rows() {
    tables_of_all_kinds("3");
}

#[test]
fn tables_of_all_kinds_arrive_whole_in_one_chunk() {
    tables_of_all_kinds("1000");
}

/// How often a server was made to look like Postgres 12.
static MADE_OLD: AtomicUsize = AtomicUsize::new(0);

/// Makes a server say that `server_version_num` is 120000, where it is asked for that as a number.
fn make_old(answer: &mut [u8]) {
    const LENGTH: usize = 4;
    for at in 0..answer.len().saturating_sub(2 * LENGTH - 1) {
        let (length, number) = answer[at..at + 2 * LENGTH].split_at_mut(LENGTH);
        let version = u32::from_be_bytes(number.try_into().expect("it has this length"));
        if length == [0, 0, 0, 4] && (130_000..200_000).contains(&version) && version % 10_000 < 100 {
            number.copy_from_slice(&120_000u32.to_be_bytes());
            MADE_OLD.fetch_add(1, Relaxed);
        }
    }
}

/// Before Postgres 13, a query cannot end with all rows that have the last one's key.
#[test]
fn tables_of_all_kinds_arrive_whole_from_a_server_without_ties() {
    let world = world::shared();
    let network = Network::to(world.postgres.port());
    network.alter_answers(make_old);
    tables_of_all_kinds_by("incremental_kinds_old", "2", Some(&network));
    assert!(
        MADE_OLD.load(Relaxed) > 0,
        "the server said its version in another form"
    );
}

/// A table without a key that a chunk has been read of, and whose rows with a null are too many for one chunk.
#[test]
fn a_group_that_is_too_large_for_a_chunk_is_not_lost() {
    let name = "incremental_large_group";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (n int, c int unique, v text);
         insert into items select i, case when i < 100 then i end, 'v' || repeat('x', 2000) from generate_series(1, 6000) i"
    ));
    let properties = [
        ("walferry.in.flight.max.bytes", "4194304"),
        ("incremental.snapshot.chunk.size", "50"),
    ];
    let mut walferry = start(world, name, &database, &properties);
    sql.run(&execute("public.items"));
    wait_for_log(&mut walferry, COMPLETE, 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let records = world.kafka.read(&[format!("{name}.public.items")]);
    assert_eq!(last_by_n(&records).len(), 6000, "{}", walferry.output());
    drop_slot(sql, name);
}

/// After some chunks, the key is another one: of other columns, of other types, with other values, or none. What was read by the old one says
/// nothing of what is left.
fn key_is_replaced(name: &str, ddl: &str, restarts: bool) {
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{};
         create table items (n int not null, id int primary key, code int not null, v text);
         insert into items select i, i * 7, 3001 - i, 'v' || i from generate_series(1, 3000) i;
         alter table items replica identity full",
        hold_from(3)
    ));
    let properties = [("incremental.snapshot.chunk.size", "500")];
    let mut walferry = start(world, name, &database, &properties);
    sql.run(&execute("public.items"));
    wait_until_a_window_is_held(sql);
    if restarts {
        wait_for("two chunks to be stored", || {
            let offset = walferry.stored_offset()?;
            offset["value"].get("incremental_snapshot_primary_key").cloned()
        });
        walferry.kill();
    }
    sql.run(ddl);
    sql.run("select pg_advisory_unlock(7)");
    if restarts {
        walferry.start_again();
    }
    wait_for_log(&mut walferry, COMPLETE, 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let mut rows = BTreeMap::new();
    for record in world.kafka.read(&[format!("{name}.public.items")]) {
        let after = value(&record)["after"].clone();
        rows.insert(after["n"].as_i64().expect("a number"), after["v"].clone());
    }
    assert_eq!(rows.len(), 3000, "{}", walferry.output());
    drop_slot(sql, name);
}

#[test]
fn rows_arrive_whose_key_is_replaced_by_another_column() {
    key_is_replaced(
        "incremental_key_column",
        "alter table items drop constraint items_pkey, add primary key (code)",
        false,
    );
}

#[test]
fn rows_arrive_whose_key_is_replaced_by_two_columns_while_the_process_is_down() {
    key_is_replaced(
        "incremental_key_columns",
        "alter table items drop constraint items_pkey, add primary key (code, id)",
        true,
    );
}

#[test]
fn rows_arrive_whose_key_gets_another_type() {
    key_is_replaced(
        "incremental_key_type",
        "alter table items alter column id type text",
        false,
    );
}

#[test]
fn rows_arrive_whose_key_gets_another_type_while_the_process_is_down() {
    key_is_replaced(
        "incremental_key_type_down",
        "alter table items alter column id type text",
        true,
    );
}

#[test]
fn rows_arrive_whose_key_gets_other_values_of_its_type() {
    key_is_replaced(
        "incremental_key_values",
        "alter table items alter column id type int using 100000 - id",
        false,
    );
}

#[test]
fn rows_arrive_whose_key_column_is_another_one_of_the_same_name() {
    key_is_replaced(
        "incremental_key_name",
        "alter table items drop constraint items_pkey;
         alter table items rename column id to old;
         alter table items rename column code to id;
         alter table items add primary key (id)",
        true,
    );
}

#[test]
fn rows_arrive_whose_key_is_dropped() {
    key_is_replaced(
        "incremental_key_gone",
        "alter table items drop constraint items_pkey",
        false,
    );
}

#[test]
fn rows_arrive_whose_key_is_dropped_while_the_process_is_down() {
    key_is_replaced(
        "incremental_key_gone_down",
        "alter table items drop constraint items_pkey",
        true,
    );
}

/// A rewritten table is empty for whoever has an older snapshot. The chunk has its snapshot before the rewrite is committed, and reads the rows
/// after it.
#[test]
fn a_table_that_is_rewritten_while_a_chunk_is_read_is_not_empty() {
    let name = "incremental_rewritten";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (n int primary key, v text, w int);
         insert into items select i, 'v' || i, i from generate_series(1, 100) i"
    ));
    let mut walferry = start(world, name, &database, &[("incremental.snapshot.chunk.size", "30")]);
    let other = world.postgres.in_database(database.name());
    for (round, ddl) in [
        "alter table items alter column w type bigint",
        "alter table items rename column w to x",
    ]
    .into_iter()
    .enumerate()
    {
        let round = round + 1;
        other.run(&format!("begin; {ddl}"));
        sql.run(&execute("public.items"));
        wait_for("the chunk to wait for the table", || {
            let waiting = "select count(*) from pg_locks where relation = 'items'::regclass and not granted";
            (sql.value(waiting).as_deref() == Some("1")).then_some(())
        });
        other.run("commit");
        wait_for_log(&mut walferry, COMPLETE, round);
        wait_until_delivered(sql, name);
        let records = world.kafka.read(&[format!("{name}.public.items")]);
        let reads = records.iter().filter(|record| value(record)["op"] == "r").count();
        assert_eq!(reads, 100 * round, "{}", walferry.output());
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    drop_slot(sql, name);
}

/// With `synchronous_commit=off`, a commit is visible before it is written, and the stream brings it only then. A window that ended at what
/// is written would send the newest version of the row before the older ones.
#[test]
fn a_window_that_is_read_only_waits_for_commits_that_are_not_written() {
    let name = "incremental_unwritten";
    let world = world::shared();
    let postgres = Postgres::start_with(&PostgresOptions::default());
    let database = postgres.database(name);
    let sql = database.sql();
    sql.run("create table items (id int primary key, v text); insert into items values (1, 'v0')");
    let properties = [("signal.enabled.channels", "jmx")];
    let mut walferry = start_read_only(world, name, &database, &properties);
    sql.run("insert into items values (2, 'first')");
    let topic = format!("{name}.public.items");
    world.kafka.wait_for_records(&topic, 1);
    let writer = sql.value("select pid from pg_stat_activity where backend_type = 'walwriter'");
    let writer = postgres.hang(writer.and_then(|pid| pid.parse().ok()).expect("it has a WAL writer"));
    sql.run("set synchronous_commit = off");
    sql.run("update items set v = 'v1' where id = 1");
    sql.run("update items set v = 'v2' where id = 1");
    let unwritten = "select pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()";
    assert_eq!(sql.value(unwritten).as_deref(), Some("t"));
    ask_for(&walferry, name, "public.items");
    wait_for("the chunk to be read", || {
        let read = "select count(*) from pg_stat_activity where application_name ilike '%walferry%' and state = 'idle'
            and (query = 'COMMIT' or query like '%pg_last_wal_receive_lsn%')";
        (sql.value(read).as_deref() != Some("0")).then_some(())
    });
    // The pipeline does what it can with the chunk: a signal that comes later is followed.
    for round in 1..=3 {
        let log = json!({"id": "log", "type": "log", "data": {"message": format!("round {round} is over")}});
        walferry.send("POST", &format!("/connectors/{name}/signals"), &log);
        wait_for_log(&mut walferry, &format!("round {round} is over"), 1);
    }
    drop(writer);
    sql.run("set synchronous_commit = on");
    sql.run("insert into items values (3, 'last')");
    wait_for_log(&mut walferry, COMPLETE, 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let records = world.kafka.read(&[topic]);
    let versions: Vec<String> = records
        .iter()
        .map(value)
        .filter(|value| value["after"]["id"] == 1)
        .map(|value| value["after"]["v"].as_str().expect("a text").to_owned())
        .collect();
    assert!(versions.is_sorted(), "{versions:?}");
    assert_eq!(versions.last().map(String::as_str), Some("v2"));
    assert_eq!(
        rebuilt(&records),
        rows_by_key(sql, "select '{\"id\":' || id || '}', v from items")
    );
}

/// A table that something happens to while the window of its first chunk is open.
struct Scene {
    name: &'static str,
    table: &'static str,
    properties: &'static [(&'static str, &'static str)],
    /// The rest of the signal's data.
    signal: &'static str,
    /// What happens. The SQL that stands after `AND THEN` is run after the window has closed.
    meanwhile: &'static str,
    /// Whether the process is killed at that time.
    is_killed: bool,
}

impl Scene {
    /// In the end, a consumer has each row of the table as it is, and no other.
    fn play(&self) {
        let name = self.name;
        let (world, database) = begin(name);
        let sql = database.sql();
        sql.run(&format!("{}; {}", hold_from(1), self.table));
        let chunk = ("incremental.snapshot.chunk.size", "4");
        let properties: Vec<_> = [chunk].into_iter().chain(self.properties.iter().copied()).collect();
        let mut walferry = start(world, name, &database, &properties);
        sql.run(&format!(
            "insert into signals values ('s', 'execute-snapshot', '{{\"data-collections\": [\"public.items\"]{}}}')",
            self.signal
        ));
        wait_until_a_window_is_held(sql);
        let (within, after) = self.meanwhile.split_once("AND THEN").unwrap_or((self.meanwhile, ""));
        sql.run(within);
        if self.is_killed {
            walferry.kill();
        }
        sql.run("select pg_advisory_unlock(7)");
        sql.run(after);
        if self.is_killed {
            walferry.start_again();
        }
        wait_for_log(&mut walferry, COMPLETE, 1);
        wait_until_delivered(sql, name);
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        let records = world.kafka.read(&[format!("{name}.public.items")]);
        assert_eq!(last_by_n(&records), table_by_n(sql, "items"), "{}", walferry.output());
        drop_slot(sql, name);
    }
}

const TWELVE: &str = "select i, i, 'v' || i from generate_series(1, 12) i";

/// In one transaction, rows take the keys of each other.
#[test]
fn rows_that_swap_their_keys_in_a_window_keep_their_values() {
    Scene {
        name: "incremental_swapped",
        table: &format!(
            "create table items (n int, id int primary key deferrable, v text); alter table items replica identity full;
             insert into items {TWELVE}"
        )
        .leak()[..],
        properties: &[],
        signal: "",
        meanwhile: "update items set id = 13 - id, v = v || '+' where n in (1, 12, 4, 9) AND THEN update items set id = 13 - id, v = v || '-'",
        is_killed: false,
    }
    .play();
}

/// The replica identity is another index than the key by which the table is read.
#[test]
fn rows_whose_changes_bring_another_index_than_the_key_are_replaced() {
    Scene {
        name: "incremental_identity",
        table: &format!(
            "create table items (n int not null unique, id int primary key, v text);
             alter table items replica identity using index items_n_key;
             insert into items {TWELVE}"
        )
        .leak()[..],
        properties: &[],
        signal: "",
        meanwhile: "update items set id = id + 100 where n = 2; update items set v = 'u' where n in (2, 3); delete from items where n = 4;
                    update items set id = -5 where n = 5",
        is_killed: false,
    }
    .play();
}

#[test]
fn groups_are_whole_though_the_process_is_killed_in_a_window() {
    Scene {
        name: "incremental_groups_killed",
        table: &format!(
            "create table items (n int, c int, v text); alter table items replica identity full;
             insert into items select i, i / 5, v from ({TWELVE}) t (i, j, v)"
        )
        .leak()[..],
        properties: &[("message.key.columns", "public.items:c")],
        signal: "",
        meanwhile: "update items set v = v || '+' where n in (6, 7); update items set c = 0 where n = 11; delete from items where n = 8 AND THEN
                    update items set v = v || '-', c = 1 - c where n in (1, 6)",
        is_killed: true,
    }
    .play();
}

#[test]
fn what_an_incremental_snapshot_has_done_is_shown_after_a_restart_too() {
    let name = "incremental_counted";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{};
         create table items_a (n int primary key, v text);
         create table items_b (n int primary key, v text);
         insert into items_a select i, 'v' from generate_series(1, 5) i;
         insert into items_b select i, 'v' from generate_series(1, 50) i",
        hold_from(4)
    ));
    let properties = [("incremental.snapshot.chunk.size", "10")];
    let mut walferry = start(world, name, &database, &properties);
    sql.run(&execute("public.items_a\", \"public.items_b"));
    let progress_of = |walferry: &Walferry| {
        let progress = walferry.get("/ui/data")?.json()["connectors"][0]["incremental"].take();
        let number = |of: &str| progress[of].as_u64();
        Some((number("rows")?, number("tables")?, number("tables_left")?))
    };
    // Twenty rows are sent, and ten lie in the window that is held.
    wait_until_a_window_is_held(sql);
    wait_for("the third chunk of the second table", || {
        (progress_of(&walferry) == Some((30, 2, 1))).then_some(())
    });
    walferry.kill();
    walferry.start_again();
    wait_for("the same progress", || {
        let seen = progress_of(&walferry);
        assert!(
            seen.is_none_or(|(rows, tables, _)| rows >= 20 && tables == 2),
            "{seen:?}"
        );
        (seen == Some((30, 2, 1))).then_some(())
    });
    let metrics = walferry.get("/metrics").expect("an answer").body;
    let rows = r#"walferry_incremental_snapshot_table_rows{connector="incremental_counted",table="public.items_b"} 30"#;
    let tables = r#"walferry_incremental_snapshot_tables_left{connector="incremental_counted"} 1"#;
    assert!(metrics.contains(rows) && metrics.contains(tables), "{metrics}");
    let status = walferry.command_at(["status", "--admin", &walferry.admin()]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        text.contains("rows of public.items_b read, 1 of 2 tables done"),
        "{text}"
    );
    sql.run("select pg_advisory_unlock(7)");
    wait_for_log(
        &mut walferry,
        "the incremental snapshot of public.items_b is complete: 50 rows",
        1,
    );
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    drop_slot(sql, name);
}

#[test]
fn a_table_that_is_made_again_in_a_window_is_read_from_its_beginning() {
    Scene {
        name: "incremental_made_again",
        table: &format!("create table items (n int primary key, c int, v text); insert into items {TWELVE}").leak()[..],
        properties: &[],
        signal: "",
        // The rows come with the stream once the publication has the table.
        meanwhile: "delete from items; drop table items; create table items (c text primary key, n int, v text);
                    alter publication dbz_publication add table items;
                    insert into items select 'k' || i, i, 'w' || i from generate_series(1, 12) i",
        is_killed: false,
    }
    .play();
}

#[test]
fn a_paused_and_stopped_snapshot_of_groups_sends_no_old_row() {
    Scene {
        name: "incremental_groups_stopped",
        table: &format!(
            "create table items (n int, c int, v text); alter table items replica identity full;
             insert into items select i, i / 5, v from ({TWELVE}) t (i, j, v)"
        )
        .leak()[..],
        properties: &[],
        signal: ", \"surrogate-key\": \"c\"",
        meanwhile: "insert into signals values ('p', 'pause-snapshot', ''); update items set v = v || '+' where n in (1, 6);
                    insert into signals values ('r', 'resume-snapshot', ''); update items set v = v || '-', c = c + 1 where n in (6, 9);
                    insert into signals values ('p2', 'pause-snapshot', ''), ('x', 'stop-snapshot', ''), ('r2', 'resume-snapshot', '') AND THEN
                    insert into signals values ('s2', 'execute-snapshot', '{\"data-collections\": [\"public.items\"], \"surrogate-key\": \"c\"}')",
        is_killed: false,
    }
    .play();
}

#[test]
fn rows_of_partitions_that_move_in_a_window_arrive() {
    Scene {
        name: "incremental_partitions",
        table: &format!(
            "create table items (n int, c int, v text, primary key (n, c)) partition by list (c);
             create table part_0 partition of items for values in (0); create table part_1 partition of items for values in (1);
             insert into items select i, i % 2, v from ({TWELVE}) t (i, j, v)"
        )
        .leak()[..],
        properties: &[("publish.via.partition.root", "true")],
        signal: "",
        meanwhile: "update items set v = 'u' where n in (1, 2); delete from items where n = 3;
                    alter table items detach partition part_1; alter table items attach partition part_1 for values in (1) AND THEN
                    update items set v = v || '-' where n > 9",
        is_killed: false,
    }
    .play();
}

/// As in Debezium, the columns of `message.key.columns` are the order in which a table without a key is read, and the stream goes on
/// meanwhile. Rows of chunks have a position also where no change marks the window (`read.only`), and before the first commit.
#[test]
fn a_keyless_table_is_read_by_its_message_key_and_rows_of_chunks_have_a_position() {
    let name = "incremental_message_key";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run("create table items (a int, v text); insert into items values (2, 'b'), (1, 'a'), (3, 'c')");
    let properties = [
        ("message.key.columns", "public.items:a"),
        ("incremental.snapshot.chunk.size", "2"),
    ];
    let mut walferry = start_read_only(world, name, &database, &properties);
    ask_for(&walferry, name, "public.items");
    wait_for_log(&mut walferry, COMPLETE, 1);
    let values: Vec<serde_json::Value> = world
        .kafka
        .wait_for_records(&format!("{name}.public.items"), 3)
        .iter()
        .map(value)
        .collect();
    let order: Vec<i64> = values.iter().filter_map(|value| value["after"]["a"].as_i64()).collect();
    assert_eq!(
        order,
        [1, 2, 3],
        "the order of the message key, not that of the table's blocks"
    );
    assert!(!walferry.output().contains("paus"), "{}", walferry.output());
    for value in &values {
        let sequence: Vec<Option<String>> =
            serde_json::from_str(value["source"]["sequence"].as_str().expect("a text")).expect("JSON");
        assert!(sequence[1].is_some(), "{value}");
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    drop_slot(sql, name);
}
