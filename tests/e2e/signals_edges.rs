//! Incremental snapshots where something is in the way: Kafka, the publication, the signal table, the keys, the login of the signal topic.

use crate::signals::{
    SIGNALS, ask_for, begin, config, drop_slot, execute, rebuilt, rows_by_key, start, value, wait_for_log,
    wait_until_delivered,
};
use crate::world;
use serde_json::{Value, json};
use walferry_testkit::servers::{Checked, Kafka, Record, Sql, Surroundings, Walferry, WalferryOptions, wait_for};

/// While Kafka is away, an incremental snapshot waits, and so do the changes. Then both go on, and nothing is missing.
#[test]
fn an_incremental_snapshot_outlasts_a_kafka_that_is_away() {
    let mut world = world::alone();
    let name = "signals_no_kafka";
    let database = world.postgres.database(name);
    let sql = database.sql();
    // While the test holds the lock, the fifth window does not close.
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 600) i;
         create function hold() returns trigger language plpgsql as $$ begin
             if (select count(*) from signals where type = 'snapshot-window-close') >= 4 then perform pg_advisory_xact_lock(7); end if;
             return new;
         end $$;
         create trigger hold before insert on signals for each row when (new.type = 'snapshot-window-close') execute function hold();
         select pg_advisory_lock(7)"
    ));
    let properties = [("incremental.snapshot.chunk.size", "50")];
    let mut walferry = start(&world, name, &database, &properties);
    let topic = format!("{name}.public.items");
    sql.run(&execute("public.items"));
    wait_until_a_window_is_held(sql);
    world.kafka.stop(true);
    sql.run(
        "update items set v = 'u' || v where id % 5 = 0; delete from items where id % 7 = 0; insert into items values (9999, 'new')",
    );
    sql.run("select pg_advisory_unlock(7)");
    wait_for("the changes to wait", || {
        let lag = walferry.get("/slots")?.json()["connectors"][0]["slots"][0]["lag_bytes"].as_u64()?;
        (lag > 0).then_some(())
    });
    assert!(
        !walferry.output().contains("the incremental snapshot is complete"),
        "nobody takes its rows"
    );
    world.kafka.start_again();
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[topic]));
    assert_eq!(rows, rows_by_key(sql, "select '{\"id\":' || id || '}', v from items"));
    drop_slot(sql, name);
}

/// If the publication leaves out what is written to the signal table, no signal and no window would ever arrive. That is said, with the
/// statement that helps. A condition that raises an error cancels its table only.
#[test]
fn a_publication_without_signals_is_told_and_the_snapshot_goes_on_after_the_mend() {
    let name = "signals_unpublished";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items values (1, 'a'), (2, 'b');
         create table items_2 (id int primary key, v text); insert into items_2 values (1, 'a');
         create function refuse(int) returns bool language plpgsql as $$ begin raise exception 'no row for you'; end $$;
         create publication {name} for table items, items_2, signals where (type <> 'snapshot-window-open') with (publish = 'update, delete')"
    ));
    let properties = [("publication.name", name), ("publication.autocreate.mode", "disabled")];
    let mut walferry = start(&world, name, &database, &properties);
    wait_for_log(&mut walferry, "signals and incremental snapshots will not work", 1);
    let output = walferry.output();
    assert!(
        output.contains("does not publish inserts") && output.contains("WF0321"),
        "{output}"
    );
    let checked = Checked::of(
        &WalferryOptions {
            name: name.to_owned(),
            config: config(name, &database, &properties),
            worker: Vec::new(),
            bootstrap: world.kafka.bootstrap(),
            env: Vec::new(),
        },
        &[],
    );
    assert!(
        checked.stdout.contains("SET (publish = 'insert, update, delete')"),
        "{}",
        checked.stdout
    );
    ask_for(&walferry, name, "public.items");
    wait_for_log(&mut walferry, "the incremental snapshot waits", 1);
    sql.run(&format!(
        "alter publication {name} set (publish = 'insert, update, delete')"
    ));
    // Now the row filter is in the way. Another signal table has none.
    wait_for_log(&mut walferry, "that match ((type)", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    sql.run(&format!(
        "create table signals_2 (like signals including all); alter publication {name} add table signals_2"
    ));
    let table = ("signal.data.collection".to_owned(), "public.signals_2".into());
    walferry.options().config.extend([table]);
    walferry.start_again();
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);

    sql.run(
        "insert into signals_2 values ('c', 'execute-snapshot', '{\"data-collections\": [\"public.items\", \"public.items_2\"],
           \"additional-conditions\": [{\"data-collection\": \"public.items\", \"filter\": \"refuse(id)\"}]}')",
    );
    wait_for_log(
        &mut walferry,
        "the incremental snapshot of public.items failed, because the table cannot be read: ",
        1,
    );
    wait_for_log(
        &mut walferry,
        "the incremental snapshot has ended without public.items, which could not be read",
        1,
    );
    assert!(walferry.output().contains("no row for you"), "{}", walferry.output());
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(world.kafka.read(&[format!("{name}.public.items")]).len(), 2);
    assert_eq!(world.kafka.read(&[format!("{name}.public.items_2")]).len(), 1);
    drop_slot(sql, name);
}

/// A table is added to a running connector by its configuration and one signal. The signal table is in a schema of its own, and the keys
/// are texts that Postgres takes as equal although their letters differ in case.
#[test]
fn a_table_is_added_by_its_configuration_and_one_signal() {
    let name = "signals_added";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(
        "create schema \"Ops\";
         create table \"Ops\".\"Signals\" (id varchar(64) primary key, type varchar(32) not null, data varchar(2048));
         create collation folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         create table items (id int primary key, v text);
         create table \"Added\" (\"Key\" text collate folded primary key, v text);
         insert into \"Added\" select case i % 3 when 0 then 'key' when 1 then 'KEY' else 'Key' end || lpad(i::text, 4, '0'), 'v' || i
             from generate_series(1, 400) i;
         analyze \"Added\"",
    );
    let properties = [
        ("signal.data.collection", "Ops.Signals"),
        ("table.include.list", "public.items"),
        ("incremental.snapshot.chunk.size", "100"),
        ("walferry.snapshot.max.rows.per.second", "50"),
    ];
    let mut config = config(name, &database, &properties);
    let options = WalferryOptions {
        name: name.to_owned(),
        config: config.clone(),
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    };
    let surroundings = Surroundings {
        is_worker: true,
        ..Surroundings::default()
    };
    let mut walferry = Walferry::start_in(options, surroundings);
    let path = format!("/connectors/{name}/config");
    let put = |walferry: &Walferry, config: &serde_json::Map<String, Value>| {
        wait_for("the configuration to be taken", || {
            let answer = walferry.send("PUT", &path, &Value::Object(config.clone()))?;
            assert!(answer.status < 400 || answer.status == 409, "{}", answer.body);
            (answer.status < 400).then_some(())
        });
    };
    put(&walferry, &config);
    // The publication is there before the slot, which has what is written after it was made.
    wait_for("the slot to be streamed", || (database.streams() > 0).then_some(()));
    sql_until_arrives(
        &world.kafka,
        sql,
        name,
        "insert into items values (1, 'before')",
        "items",
    );
    config.insert("table.include.list".to_owned(), "public.items,public.Added".into());
    put(&walferry, &config);
    sql_until_arrives(
        &world.kafka,
        sql,
        name,
        "insert into \"Added\" values ('live', 'live')",
        "Added",
    );
    ask_for(&walferry, name, "public.Added");
    // An update changes nothing but the case of a key, and each row is deleted or updated under the key that it has.
    sql.run(
        "update \"Added\" set \"Key\" = upper(\"Key\"), v = 'upper' where \"Key\" in ('key0390', 'KEY0391', 'key0003');
         delete from \"Added\" where \"Key\" = 'KEY0399'; update \"Added\" set v = 'u' || v where \"Key\" > 'KEY0395'",
    );
    let progress = wait_for("the estimate", || {
        let metrics = walferry.get("/metrics")?.body;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("walferry_incremental_snapshot_table_rows_left{"))?;
        Some(line.to_owned())
    });
    assert!(progress.contains("table=\"public.Added\""), "{progress}");
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.Added")]));
    let expected = "select json_build_object('Key', \"Key\")::text, v from \"Added\"";
    let mut expected = rows_by_key(sql, expected);
    // json_build_object writes a space behind the name.
    expected = expected
        .into_iter()
        .map(|(key, v)| (key.replace(" : ", ":"), v))
        .collect();
    assert_eq!(rows, expected);
    drop_slot(sql, name);
}

/// Waits until the row that closes a window waits for the lock of the test.
pub(crate) fn wait_until_a_window_is_held(sql: &Sql) {
    wait_for("a chunk to be read", || {
        let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 7
            and database = (select oid from pg_database where datname = current_database())";
        (sql.value(waiting).as_deref() == Some("1")).then_some(())
    });
}

/// Runs a statement, and waits for its record.
fn sql_until_arrives(kafka: &Kafka, sql: &Sql, name: &str, statement: &str, table: &str) {
    // The stream has each row that is written after the publication has the table.
    wait_for("the table to be published", || {
        let query = format!("select count(*) from pg_publication_tables where tablename = '{table}'");
        (sql.value(&query).as_deref() == Some("1")).then_some(())
    });
    sql.run(statement);
    kafka.wait_for_records(&format!("{name}.public.{table}"), 1);
}

/// A table that is emptied while the window of a chunk is open: no row that is gone comes after the truncation.
#[test]
fn a_table_is_truncated_in_an_open_window() {
    let name = "signals_truncated";
    let (world, database) = begin(name);
    let sql = database.sql();
    // While the test holds the lock, no window closes.
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 100) i;
         create function hold() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(7); return new; end $$;
         create trigger hold before insert on signals for each row when (new.type = 'snapshot-window-close') execute function hold();
         select pg_advisory_lock(7)"
    ));
    let properties = [
        ("incremental.snapshot.chunk.size", "40"),
        ("skipped.operations", "none"),
    ];
    let mut walferry = start(&world, name, &database, &properties);
    sql.run(&execute("public.items"));
    wait_until_a_window_is_held(sql);
    sql.run("truncate items; insert into items values (5, 'new'), (70, 'new'), (101, 'new')");
    sql.run("select pg_advisory_unlock(7)");
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let records = world.kafka.read(&[format!("{name}.public.items")]);
    let truncated = records
        .iter()
        .position(|record| record.value.is_some() && value(record)["op"] == "t");
    let after = truncated.expect("the truncation is sent") + 1;
    let rows = rebuilt(&records[after..]);
    assert_eq!(rows, rows_by_key(sql, "select '{\"id\":' || id || '}', v from items"));
    drop_slot(sql, name);
}

/// The stream never brings the row that closes the second window, because a trigger drops it. That is told, and the snapshot goes on.
#[test]
fn a_closing_row_that_never_comes_is_told_and_its_chunk_is_read_again() {
    let name = "signals_close_lost";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 30) i;
         create sequence closes;
         create function lose() returns trigger language plpgsql as $$ begin
             if nextval('closes') = 2 then return null; end if;
             return new;
         end $$;
         create trigger lose before insert on signals for each row when (new.type = 'snapshot-window-close') execute function lose()"
    ));
    let properties = [("incremental.snapshot.chunk.size", "10")];
    let mut walferry = start(&world, name, &database, &properties);
    sql.run(&execute("public.items"));
    wait_for_log(
        &mut walferry,
        "does not bring the row of the signal table public.signals that closes",
        1,
    );
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let output = walferry.output();
    assert!(
        output.contains("WF0416") && output.contains("no trigger or rule"),
        "{output}"
    );
    let records = world.kafka.read(&[format!("{name}.public.items")]);
    assert_eq!(records.len(), 30, "no row was sent before the chunk was read again");
    assert_eq!(
        rebuilt(&records),
        rows_by_key(sql, "select '{\"id\":' || id || '}', v from items")
    );
    drop_slot(sql, name);
}

/// Transactions that wait behind the row that closes a window wait for a slice of the chunk each, and not for all of it. Their changes take
/// the place of rows that are left. What was read before a stop is still sent.
#[test]
fn rows_of_a_chunk_leave_between_the_transactions_that_wait() {
    let name = "signals_slices";
    let (world, database) = begin(name);
    let sql = database.sql();
    // While the test holds the lock, no window closes.
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 3000) i;
         create function hold() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(7); return new; end $$;
         create trigger hold before insert on signals for each row when (new.type = 'snapshot-window-close') execute function hold();
         select pg_advisory_lock(7)"
    ));
    let properties = [("incremental.snapshot.chunk.size", "2000")];
    let mut walferry = start(&world, name, &database, &properties);
    sql.run(&execute("public.items"));
    wait_until_a_window_is_held(sql);
    walferry.hang();
    sql.run("select pg_advisory_unlock(7)");
    wait_for("the row that closes the window", || {
        let closed = "select count(*) from signals where type = 'snapshot-window-close'";
        (sql.value(closed).as_deref() == Some("1")).then_some(())
    });
    sql.run("update items set v = 'u1' where id = 1");
    sql.run("update items set v = 'u1999' where id = 1999");
    sql.run("insert into signals values ('stop', 'stop-snapshot', '{\"data-collections\": [\"public.items\"]}')");
    sql.run("delete from items where id = 1998");
    sql.run("update items set id = -1997 where id = 1997");
    for id in 2501..=2520 {
        sql.run(&format!("update items set v = 'u' || id where id = {id}"));
    }
    walferry.resume();
    wait_for_log(&mut walferry, "stopped the incremental snapshot of public.items", 1);
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    let records = world.kafka.read(&[format!("{name}.public.items")]);
    let is_read = |record: &&Record| record.value.is_some() && value(record)["op"] == "r";
    let first_change = records
        .iter()
        .position(|record| !is_read(&record))
        .expect("changes are sent");
    let (early, all) = (first_change, records.iter().filter(is_read).count());
    assert!(
        early > 0 && early < all,
        "{early} of {all} rows of the chunk come before the first change that has waited"
    );
    // No row that was read comes behind a change of it: the last record of each row is what the table has.
    let (topic, table) = (
        rebuilt(&records),
        rows_by_key(sql, "select '{\"id\":' || id || '}', v from items"),
    );
    assert!(topic.iter().all(|(key, v)| table.get(key) == Some(v)), "{topic:?}");
    let first_chunk = rows_by_key(
        sql,
        "select '{\"id\":' || id || '}', v from items where id <= 2000 or v like 'u%'",
    );
    let lost: Vec<_> = first_chunk.keys().filter(|key| !topic.contains_key(*key)).collect();
    assert!(lost.is_empty(), "rows of the chunk are missing: {lost:?}");
    drop_slot(sql, name);
}

/// `signal.consumer.*` logs in to the broker of the signal topic. A signal that was read but not stored is read again after a kill.
#[test]
fn signals_come_from_a_broker_that_wants_a_login_and_outlast_a_kill() {
    let name = "signals_login";
    let world = world::alone();
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run("create table items (id int primary key, v text)");
    let (kafka, login) = Kafka::start_with_login("ops", "s3cret");
    let topic = format!("{name}-signal");
    kafka.create_topic(&topic, 1);
    let told = json!({"id": "k", "type": "log", "data": {"message": "by the topic with a login"}});
    kafka.produce(&topic, &[(name, &told.to_string())]);
    let jaas = |password: &str| {
        format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"ops\" password=\"{password}\";"
        )
    };
    let (wrong, right) = (jaas("wr0ng-password"), jaas("s3cret"));
    let with = |jaas: &str| {
        let properties = [
            ("signal.enabled.channels", "kafka"),
            ("signal.kafka.bootstrap.servers", &*login),
            ("signal.consumer.security.protocol", "SASL_PLAINTEXT"),
            ("signal.consumer.sasl.mechanism", "PLAIN"),
            ("signal.consumer.sasl.jaas.config", jaas),
        ];
        let mut config = config(name, &database, &properties);
        config.remove("signal.data.collection");
        config
    };
    let mut walferry = Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config: with(&wrong),
        worker: Vec::new(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    wait_for_log(&mut walferry, "signals cannot be read from Kafka", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    walferry.options().config = with(&right);
    walferry.start_again();
    wait_for_log(&mut walferry, "by the topic with a login", 1);

    // Offsets are stored in the order of the stream: while Kafka does not acknowledge the row, nothing that was read behind it is stored.
    sql.run("insert into items values (1, 'makes the topic')");
    world.kafka.wait_for_records(&format!("{name}.public.items"), 1);
    let paused = world.kafka.pause();
    sql.run("insert into items values (2, 'not acknowledged')");
    wait_for("the row to be under way", || {
        let metrics = walferry.get("/metrics")?.body;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("walferry_in_flight_records{"))?;
        (line.rsplit(' ').next()?.parse::<f64>().ok()? > 0.0).then_some(())
    });
    let told = "before the kill";
    let signal = json!({"id": "b", "type": "log", "data": {"message": told}});
    kafka.produce(&topic, &[(name, &signal.to_string())]);
    wait_for_log(&mut walferry, told, 1);
    let data = "{\"message\": \"by the command\"}";
    let given = walferry.command_at(["signal", name, "log", "--data", data, "--admin", &walferry.admin()]);
    let said = String::from_utf8_lossy(&given.stdout).into_owned();
    assert!(said.contains("it is not in the stored offset yet"), "{said}{given:?}");
    walferry.kill();
    drop(paused);
    walferry.start_again();
    wait_for_log(&mut walferry, told, 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let output = walferry.output();
    assert!(!output.contains("s3cret") && !output.contains("wr0ng"), "{output}");
    drop_slot(sql, name);
}
