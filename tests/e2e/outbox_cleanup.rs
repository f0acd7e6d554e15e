//! Delivered rows leave the outbox, and no others.

use walferry_testkit::servers::{Kafka, Postgres, PostgresOptions, Sql, Walferry, wait_for};

use crate::outbox::{Outbox, assert_runs, insert_sql};
use crate::world;

/// An outbox whose rows tell when they were written.
fn dated_rows(postgres: &Postgres, kafka: &Kafka, name: &str) -> Outbox {
    let outbox = Outbox::on(postgres, kafka, name);
    outbox
        .database
        .sql()
        .run("alter table outbox add created_at timestamptz not null default now()");
    outbox
}

/// The same, partitioned by ranges of this time. `partitions` is SQL that creates them.
fn partitioned(postgres: &Postgres, kafka: &Kafka, name: &str, partitions: &str) -> Outbox {
    let outbox = Outbox::on(postgres, kafka, name);
    outbox.database.sql().run(&format!(
        "drop table outbox;
         create table outbox (id bigint, aggregatetype text not null, aggregateid text not null, type text not null, payload text,
           created_at timestamptz not null default now(), primary key (id, created_at)) partition by range (created_at);
         {partitions}"
    ));
    outbox
}

#[track_caller]
fn start(outbox: &Outbox) -> Walferry {
    let walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
        ("transforms.outbox.walferry.retention.batch.rows", "30"),
        ("publish.via.partition.root", "true"),
    ]));
    wait_for_floors(outbox, &walferry, "rows that are written from now on are removed", 1);
    walferry
}

/// Partitions are dropped as a whole.
#[track_caller]
fn start_dropping(outbox: &Outbox) -> Walferry {
    let walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
        ("transforms.outbox.walferry.partitions.drop", "true"),
        ("publish.via.partition.root", "true"),
    ]));
    wait_for_floors(outbox, &walferry, "rows that are written from now on are removed", 1);
    walferry
}

/// Waits until the log has said so a number of times, and until rows that are written now are young enough to be removed later.
#[track_caller]
fn wait_for_floors(outbox: &Outbox, walferry: &Walferry, message: &str, times: usize) {
    wait_for(message, || {
        let output = walferry.output();
        (output.matches(message).count() >= times).then_some(())
    });
    outbox.database.sql().run("select pg_sleep(1.1)");
}

fn rows(sql: &Sql) -> i64 {
    let count = sql
        .value("select count(*) from outbox where created_at is not null")
        .expect("a number");
    count.parse().expect("a number")
}

/// A figure of the outbox in the metrics, if it is there.
fn figure(walferry: &Walferry, connector: &str, name: &str) -> Option<f64> {
    let metrics = walferry.get("/metrics")?.body;
    let line = format!("walferry_outbox_{name}{{connector=\"{connector}\",table=\"public.outbox\"}} ");
    metrics.lines().find_map(|text| text.strip_prefix(&line)?.parse().ok())
}

#[track_caller]
fn wait_until_empty(outbox: &Outbox, walferry: &mut Walferry) {
    wait_for("the delivered rows to be removed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (rows(outbox.database.sql()) == 0).then_some(())
    });
}

/// Waits until the connector has looked for rows to remove a few times more.
#[track_caller]
fn wait_for_looks(sql: &Sql) {
    let mut last = None;
    for _ in 0..4 {
        last = Some(wait_for("a look for delivered rows", || {
            let look = "select query_start::text from pg_stat_activity
                        where application_name like '%Walferry Cleanup' and datname = current_database()";
            sql.value(look).filter(|at| Some(at) != last.as_ref())
        }));
    }
}

#[test]
fn delivered_rows_are_removed_and_rows_that_kafka_lacks_stay() {
    let world = world::shared();
    // One of its own, to be stopped.
    let kafka = Kafka::start();
    let outbox = dated_rows(&world.postgres, &kafka, "cleanup");
    let sql = outbox.database.sql();
    // Rows without a time stay, and do not stand in the way of those that are counted.
    sql.run(
        "alter table outbox alter created_at drop not null;
         insert into outbox select -n, 'untimed', 'untimed', 'Created', 0, null from generate_series(1, 1100) n",
    );
    let mut walferry = start(&outbox);
    outbox.insert("k", 1, 100);
    wait_until_empty(&outbox, &mut walferry);

    // A transaction that has begun before the others, with rows of its own and of a savepoint.
    let slow = world.postgres.in_database(outbox.database.name());
    slow.run(&format!(
        "begin; {}; savepoint s; {}",
        insert_sql("slow", 1, 1),
        insert_sql("slow", 2, 2)
    ));
    outbox.insert("k", 101, 150);
    kafka.wait_for_records(&outbox.topic("order"), 150);
    outbox.wait_until_confirmed();
    wait_for_looks(sql);
    let is_old = "select now() - max(created_at) > interval '1 second' from outbox where aggregateid = 'k'";
    wait_for("the rows to be old", || {
        sql.value(is_old)
            .filter(|is_old| is_old != "f")
            .or_else(|| (rows(sql) == 0).then(String::new))
    });

    let paused = kafka.pause();
    slow.run("commit");
    let before = rows(sql);
    outbox.insert("k", 151, 200);
    wait_for("the rows to be old", || {
        sql.value(is_old).filter(|is_old| is_old == "t")
    });
    wait_for_looks(sql);
    assert!(before >= 2, "{before}");
    let missing = "select count(*) from outbox where aggregateid = 'slow' or payload::int > 150";
    assert_eq!(
        sql.value(missing).as_deref(),
        Some("52"),
        "rows that Kafka lacks were removed"
    );

    let figure = |name| figure(&walferry, "cleanup", name);
    wait_for("the rows that wait to be counted", || {
        figure("unconfirmed_rows").filter(|rows| (50.0..=102.0).contains(rows))
    });
    wait_for("the oldest of them to be more than a second old", || {
        figure("unconfirmed_seconds").filter(|seconds| *seconds > 1.0)
    });
    assert!(figure("bytes").is_some_and(|bytes| bytes > 8_192.0));

    drop(paused);
    wait_for("no row to wait", || {
        (figure("unconfirmed_rows") == Some(0.0) && figure("unconfirmed_seconds") == Some(0.0)).then_some(())
    });
    wait_until_empty(&outbox, &mut walferry);
    // All events are there, and none for the rows that were removed.
    let records = kafka.wait_for_records(&outbox.topic("order"), 202);
    assert_eq!(records.len(), 202);
    let (slow, other): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|record| record.key_text() == Some("slow"));
    assert_runs(&slow, &["slow"], 2);
    assert_runs(&other, &["k"], 200);
    let all = [outbox.topic("order")];
    outbox.wait_until_confirmed();
    assert_eq!(kafka.read(&all).len(), 202);
    wait_for("the removed rows to be counted", || {
        let metrics = walferry.get("/metrics")?.body;
        let counted = "walferry_outbox_rows_removed_total{connector=\"cleanup\"} 202";
        metrics.contains(counted).then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// What a batch costs must not grow with the rows that are due.
#[test]
fn rows_of_a_long_backlog_are_neither_sorted_nor_compared_with_each_other() {
    let world = world::shared();
    // The server writes its plans into a log that SQL can read.
    let settings = [
        "shared_preload_libraries = 'auto_explain'",
        "auto_explain.log_min_duration = 0",
        "logging_collector = on",
        "log_filename = 'plans.log'",
    ];
    let postgres = Postgres::start_with(&PostgresOptions {
        settings: settings.map(str::to_owned).into(),
        ..PostgresOptions::default()
    });
    let outbox = dated_rows(&postgres, &world.kafka, "cleanup_backlog");
    let sql = outbox.database.sql();
    sql.run("create index on outbox (created_at)");
    let mut walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
        ("transforms.outbox.walferry.retention.batch.rows", "5000"),
    ]));
    wait_for_floors(&outbox, &walferry, "rows that are written from now on are removed", 1);
    sql.run(&format!(
        "begin; {}; update outbox set created_at = clock_timestamp(); commit; analyze outbox",
        insert_sql("k", 1, 30_000)
    ));
    wait_until_empty(&outbox, &mut walferry);
    let log = sql.value("select pg_read_file('log/plans.log')").expect("it is there");
    let plans: Vec<_> = log.split("LOG:  duration: ").collect();
    let of_batches = || plans.iter().filter(|plan| plan.contains("batch AS MATERIALIZED"));
    assert!(of_batches().any(|plan| plan.contains("Delete on outbox")), "{plans:?}");
    for plan in of_batches() {
        // The rows of a batch may be sorted, but not those of the table.
        assert!(!plan.contains("Sort Key: outbox"), "{plan}");
        assert!(!plan.contains("Nested Loop"), "{plan}");
    }
}

/// What the connector has learned of a server, such as when it was started, does not keep it from another one.
#[test]
fn delivered_rows_are_removed_after_postgres_was_started_again() {
    let world = world::shared();
    let mut postgres = Postgres::start();
    let outbox = dated_rows(&postgres, &world.kafka, "cleanup_after_start");
    let mut walferry = start(&outbox);
    outbox.insert("k", 1, 10);
    wait_until_empty(&outbox, &mut walferry);
    for (first, hard) in [(11, false), (21, true)] {
        postgres.stop(hard);
        postgres.start_again();
        outbox.insert("k", first, first + 9);
        wait_until_empty(&outbox, &mut walferry);
    }
    assert_runs(&world.kafka.read(&[outbox.topic("order")]), &["k"], 30);
}

/// A transaction that stays open holds up the removal, so each row is still there when the stream breaks off.
#[test]
fn delivered_rows_from_before_a_lost_connection_and_a_restart_are_removed() {
    let world = world::shared();
    let outbox = dated_rows(&world.postgres, &world.kafka, "cleanup_again");
    let (sql, slot) = (outbox.database.sql(), outbox.slot());
    outbox.insert("early", 1, 1);
    let mut walferry = start(&outbox);
    let hold = world.postgres.in_database(outbox.database.name());
    hold.run("begin; select pg_current_xact_id()");
    outbox.insert("k", 1, 10);
    outbox.wait_for_event(&world.kafka, 10);
    sql.run(&format!(
        "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{slot}'"
    ));
    outbox.insert("k", 11, 20);
    outbox.wait_for_event(&world.kafka, 20);
    outbox.wait_until_confirmed();
    walferry.kill();
    outbox.insert("k", 21, 30);
    walferry.start_again();
    outbox.wait_for_event(&world.kafka, 30);
    assert_eq!(rows(sql), 31, "a row was removed that the other transaction holds");
    hold.run("commit");
    wait_for("the rows from before to be removed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (rows(sql) <= 1).then_some(())
    });
    let left = "select string_agg(distinct aggregateid, ',') || count(*) from outbox";
    assert_eq!(sql.value(left).as_deref(), Some("early1"));

    // With another configuration, rows may have been left out until now.
    hold.run("begin; select pg_current_xact_id()");
    outbox.insert("k", 31, 40);
    outbox.wait_for_event(&world.kafka, 40);
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let floors = "rows that are written from now on are removed";
    let before = walferry.output().matches(floors).count();
    let config = &mut walferry.options().config;
    config.insert(
        "transforms.outbox.route.tombstone.on.empty.payload".into(),
        "true".into(),
    );
    walferry.start_again();
    wait_for_floors(&outbox, &walferry, floors, before + 1);
    hold.run("commit");
    outbox.insert("k", 41, 50);
    wait_for("the new rows to be removed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (rows(sql) <= 11).then_some(())
    });
    wait_for_looks(sql);
    assert_eq!(sql.value(left).as_deref(), Some("early,k11"));
    let numbers = "select count(*) from outbox where payload::int between 31 and 40";
    assert_eq!(sql.value(numbers).as_deref(), Some("10"));
}

#[test]
fn delivered_rows_of_a_partitioned_outbox_are_removed_and_early_and_young_ones_stay() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "cleanup_parts");
    let sql = outbox.database.sql();
    sql.run(
        "drop table outbox;
         create table outbox (id bigint, aggregatetype text not null, aggregateid text not null, type text not null, payload text,
           created_at timestamptz not null default now(), primary key (id, aggregatetype)) partition by list (aggregatetype);
         create table outbox_order partition of outbox for values in ('order');
         create table second partition of outbox for values in ('second');
         create table later (like outbox including all)",
    );
    // Whether the connector has ever sent it cannot be known.
    sql.run("insert into outbox values (0, 'order', 'early', 'Created', '0')");
    let mut walferry = start(&outbox);
    wait_for("the partitions to be counted", || {
        figure(&walferry, "cleanup_parts", "partitions").filter(|partitions| *partitions == 2.0)
    });
    outbox.insert("k", 1, 50);
    // Its row was never sent.
    sql.run("insert into later values (3, 'later', 'attached', 'Created', '1')");
    sql.run("alter table outbox attach partition later for values in ('later')");
    wait_for_floors(&outbox, &walferry, "the table has new partitions", 1);
    // An update gives a row a new transaction id. That is no event.
    sql.run(
        "update outbox set payload = 'unsent' where id in (0, 3);
         insert into outbox values (1, 'order', 'old', 'Created', '1', '2019-01-01');
         insert into outbox values (2, 'order', 'young', 'Created', '1', now() + interval '1 hour');
         insert into outbox values (4, 'later', 'sent', 'Created', '1')",
    );
    world.kafka.wait_for_records(&outbox.topic("order"), 52);
    world.kafka.wait_for_records(&outbox.topic("later"), 1);
    wait_for("the delivered rows to be removed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (rows(sql) <= 4).then_some(())
    });
    wait_for_looks(sql);
    let left = sql.value("select string_agg(aggregateid, ',' order by id) from outbox");
    assert_eq!(left.as_deref(), Some("early,old,young,attached"));
}

/// Another transaction has locked one partition, so Walferry cannot look at it.
#[test]
fn a_partition_that_cannot_be_looked_at_holds_up_no_other() {
    let world = world::shared();
    let outbox = partitioned(
        &world.postgres,
        &world.kafka,
        "cleanup_locked",
        "create table present partition of outbox for values from (current_date - 1) to (current_date + 2);
         create table future (like outbox including all)",
    );
    let sql = outbox.database.sql();
    let mut walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "2000"),
        ("publish.via.partition.root", "true"),
    ]));
    wait_for_floors(&outbox, &walferry, "rows that are written from now on are removed", 1);
    sql.run("select pg_sleep(1)");
    // Rows from after the lock would wait for it.
    outbox.insert("k", 1, 50);
    let [first, second] = [0, 1].map(|_| world.postgres.in_database(outbox.database.name()));
    first.run(
        "begin; alter table outbox attach partition future for values from (current_date + 2) to (current_date + 3)",
    );
    std::thread::scope(|scope| {
        // From the moment at which Walferry can see the partition, it is locked.
        scope.spawn(|| second.run("begin; lock table future in access exclusive mode"));
        wait_for("the second transaction to wait", || {
            let waits = "select count(*) from pg_locks where relation = 'future'::regclass and not granted";
            sql.value(waits).filter(|count| count == "1")
        });
        first.run("commit");
    });
    let count_told = |walferry: &Walferry| {
        let is_told = |line: &&str| line.contains("WF0787") && line.contains("future") && line.contains("lock timeout");
        walferry.output().lines().filter(is_told).count()
    };
    wait_for("the log to name the locked partition", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (count_told(&walferry) > 0).then_some(())
    });
    wait_for("the delivered rows to be removed", || {
        sql.value("select count(*) from present").filter(|rows| rows == "0")
    });
    assert_eq!(count_told(&walferry), 1, "{}", walferry.output());
    // The figures go on, without the locked partition.
    wait_for("a count around the present", || {
        let query = "select query from pg_stat_activity
                     where application_name like '%Walferry Outbox Watch' and datname = current_database() and state = 'idle'";
        sql.value(query).filter(|query| query.contains("\"created_at\" >= "))
    });
    wait_for("the figures", || {
        let counted = figure(&walferry, "cleanup_locked", "unconfirmed_rows") == Some(0.0);
        (counted && figure(&walferry, "cleanup_locked", "bytes").is_some()).then_some(())
    });
    world.kafka.wait_for_records(&outbox.topic("order"), 50);
    second.run("commit");
}

/// One partition has a row from before the first look, one is empty, and one has rows that Kafka lacks.
#[test]
fn partitions_whose_rows_are_all_delivered_are_dropped_and_others_stay() {
    // A Kafka of its own, to be stopped, and a Postgres of its own: while Kafka is stopped, what other tests write puts the slot far behind, and
    // then nothing is removed.
    let (postgres, kafka) = (Postgres::start(), Kafka::start());
    let outbox = partitioned(
        &postgres,
        &kafka,
        "cleanup_drop",
        "create table early partition of outbox for values from ('2020-01-01') to ('2020-01-02');
         create table other partition of outbox default;
         insert into outbox values (1, 'order', 'early', 'Created', '0', '2020-01-01 12:00')",
    );
    let sql = outbox.database.sql();
    let mut walferry = start_dropping(&outbox);
    sql.run(
        "create table begun as select now() as at;
         do $$ declare t timestamptz := (select at from begun); begin
           execute format('create table empty partition of outbox for values from (%L) to (%L)', t, t + interval '10 s');
           execute format('create table full_one partition of outbox for values from (%L) to (%L)', t + interval '10 s', t + interval '70 s');
           execute format('create table present partition of outbox for values from (%L) to (%L)', t + interval '70 s', t + interval '1 day');
         end $$",
    );
    wait_for_floors(&outbox, &walferry, "the table has new partitions", 1);
    let paused = kafka.pause();
    sql.run(
        "insert into outbox select n, 'order', 'k', 'Created', n, (select at from begun) + interval '69 s' from generate_series(1, 5) n",
    );
    let is_there = |table: &str| {
        sql.value(&format!("select to_regclass('{table}') is not null"))
            .as_deref()
            == Some("t")
    };
    wait_for("the empty partition to be dropped", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (!is_there("empty")).then_some(())
    });
    wait_for("the other one to be tried", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let output = walferry.output();
        let mut lines = output.lines();
        lines
            .any(|line| line.contains("stays for now") && line.contains("full_one"))
            .then_some(())
    });
    assert_eq!(sql.value("select count(*) from full_one").as_deref(), Some("5"));

    drop(paused);
    wait_for("the delivered partition to be dropped", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (!is_there("full_one")).then_some(())
    });
    wait_for("the dropped partitions to be counted", || {
        let metrics = walferry.get("/metrics")?.body;
        let counted = "walferry_outbox_partitions_dropped_total{connector=\"cleanup_drop\"} 2";
        metrics.contains(counted).then_some(())
    });
    assert!(is_there("present") && is_there("other"));
    assert_eq!(sql.value("select count(*) from early").as_deref(), Some("1"));
    outbox.wait_until_confirmed();
    assert_eq!(kafka.read(&[outbox.topic("order")]).len(), 5, "a drop is no event");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// A long query reads one of them.
#[test]
fn a_partition_that_is_in_use_holds_up_the_drop_of_no_other() {
    let world = world::shared();
    let outbox = partitioned(
        &world.postgres,
        &world.kafka,
        "cleanup_in_use",
        "create table first partition of outbox for values from ('2020-01-01') to ('2020-01-02');
         create table second partition of outbox for values from ('2020-01-02') to ('2020-01-03');
         create table third partition of outbox for values from ('2020-01-03') to ('2020-01-04')",
    );
    let sql = outbox.database.sql();
    let reader = world.postgres.in_database(outbox.database.name());
    reader.run("begin; lock table only first in access share mode");
    let mut walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
        ("transforms.outbox.walferry.partitions.drop", "true"),
        ("publish.via.partition.root", "true"),
    ]));
    let partitions = || {
        let names = "select string_agg(inhrelid::regclass::text, ',' order by inhrelid) from pg_inherits
                     where inhparent = 'outbox'::regclass";
        sql.value(names)
    };
    wait_for("the other partitions to be dropped", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        partitions().filter(|names| names == "first")
    });
    reader.run("commit");
    wait_for("the partition to be dropped that was in use", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        partitions().is_none().then_some(())
    });
}

/// A transaction stays open meanwhile, so all rounds have the same mark.
#[test]
fn delivered_rows_of_a_partition_that_cannot_be_dropped_are_removed() {
    let world = world::shared();
    let outbox = partitioned(
        &world.postgres,
        &world.kafka,
        "cleanup_instead",
        "create table far partition of outbox for values from ('2100-01-01') to ('2100-01-02')",
    );
    let sql = outbox.database.sql();
    let mut walferry = start_dropping(&outbox);
    sql.run(
        "do $$ begin
           execute format('create table short partition of outbox for values from (%L) to (%L)', now() - interval '1 day', now() + interval '20 s');
         end $$",
    );
    wait_for_floors(&outbox, &walferry, "the table has new partitions", 1);
    outbox.insert("k", 1, 10);
    // Its time is before the partition's floor, so it stays, and the partition with it.
    sql.run("insert into outbox values (11, 'order', 'stays', 'Created', '11', now() - interval '1 hour')");
    world.kafka.wait_for_records(&outbox.topic("order"), 11);
    let open = world.postgres.in_database(outbox.database.name());
    open.run("begin; select pg_current_xact_id()");
    wait_for("the rows to be removed that may go", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (rows(sql) <= 1).then_some(())
    });
    let left = sql.value("select string_agg(aggregateid, ',') from short");
    assert_eq!(left.as_deref(), Some("stays"), "{}", walferry.output());
    open.run("commit");
}

/// Rows of the present partition go with it, so no rows are to be searched.
#[test]
fn a_row_in_the_default_partition_does_not_cause_reads_of_dropped_partitions() {
    let world = world::shared();
    let outbox = partitioned(
        &world.postgres,
        &world.kafka,
        "cleanup_default",
        "create table present partition of outbox for values from (current_date - 1) to (current_date + 2);
         create table other partition of outbox default;
         insert into outbox values (1, 'order', 'early', 'Created', '0', '2020-01-01')",
    );
    let sql = outbox.database.sql();
    let mut walferry = start_dropping(&outbox);
    let mut without_search = 0;
    wait_for("several looks in a row without a search for rows", || {
        wait_for_looks(sql);
        let query = "select query from pg_stat_activity
                     where application_name like '%Walferry Cleanup' and datname = current_database()";
        let last = sql.value(query).expect("it is connected");
        // A server that was slow once in telling whether the default partition has rows is asked again half a minute later.
        without_search = if last.contains("batch AS MATERIALIZED") {
            0
        } else {
            without_search + 1
        };
        (without_search == 4).then_some(())
    });
    assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
}

#[test]
fn delivered_rows_stay_until_they_have_a_status_that_may_go() {
    let world = world::shared();
    let outbox = dated_rows(&world.postgres, &world.kafka, "cleanup_status");
    let sql = outbox.database.sql();
    sql.run("alter table outbox add state text");
    let mut walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
        ("transforms.outbox.walferry.retention.status", "state: done, it's over"),
    ]));
    wait_for_floors(&outbox, &walferry, "rows that are written from now on are removed", 1);
    outbox.insert("k", 1, 40);
    sql.run(
        "update outbox set state = case when payload::int <= 10 then 'done' when payload::int <= 20 then 'it''s over'
           when payload::int <= 30 then 'failed' end",
    );
    world.kafka.wait_for_records(&outbox.topic("order"), 40);
    wait_for("the rows that are over to be removed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (rows(sql) <= 20).then_some(())
    });
    wait_for_looks(sql);
    assert_eq!(
        sql.value("select min(payload::int) || ',' || count(*) from outbox")
            .as_deref(),
        Some("21,20")
    );
}

/// The server gives no error for such rows.
#[test]
fn rows_that_a_trigger_keeps_hold_up_no_others_and_the_log_says_so() {
    let world = world::shared();
    let outbox = dated_rows(&world.postgres, &world.kafka, "cleanup_kept");
    let sql = outbox.database.sql();
    sql.run(
        "create function keep() returns trigger language plpgsql as $$ begin
           if old.aggregateid = 'kept' then return null; end if;
           return old; end $$;
         create trigger keep before delete on outbox for each row execute function keep()",
    );
    let mut walferry = start(&outbox);
    // More than a batch, at one time, which others have, too.
    sql.run(&format!(
        "begin; {}; {}; commit",
        insert_sql("kept", 1, 40),
        insert_sql("k", 41, 90)
    ));
    wait_for("the other rows to be removed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        sql.value("select count(*) from outbox where aggregateid <> 'kept'")
            .filter(|rows| rows == "0")
    });
    world.kafka.wait_for_records(&outbox.topic("order"), 90);
    assert_eq!(rows(sql), 40);
    let output = walferry.output();
    let is_told = |line: &str| line.contains("WF0787") && line.contains("delivered rows stay");
    assert_eq!(output.lines().filter(|line| is_told(line)).count(), 1, "{output}");
}

/// The other table has rows that were never sent.
#[test]
fn rows_that_were_never_sent_stay_when_two_tables_swap_names() {
    let world = world::shared();
    let outbox = dated_rows(&world.postgres, &world.kafka, "cleanup_swap");
    let sql = outbox.database.sql();
    let mut walferry = start(&outbox);
    let floor = "rows that are written from now on are removed";
    outbox.insert("k", 1, 10);
    wait_until_empty(&outbox, &mut walferry);

    // Under its first name, the table is not captured.
    sql.run("create table outbox_new (like outbox including all)");
    sql.run("insert into outbox_new values (1, 'order', 'unsent', 'Created', '1')");
    let publication = outbox.slot();
    sql.run(&format!(
        "begin; alter table outbox rename to outbox_old; alter table outbox_new rename to outbox;
         alter publication {publication} add table outbox; commit"
    ));
    wait_for_floors(&outbox, &walferry, floor, 2);
    // It looks as if it had been written now.
    sql.run("update outbox set payload = 'again'");
    outbox.insert("k", 11, 20);
    world.kafka.wait_for_records(&outbox.topic("order"), 20);
    wait_for("the delivered rows to be removed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (rows(sql) <= 1).then_some(())
    });
    wait_for_looks(sql);
    let left = sql.value("select string_agg(aggregateid, ',' order by id) from outbox");
    assert_eq!(left.as_deref(), Some("unsent"));
    assert_eq!(
        world.kafka.read(&[outbox.topic("order")]).len(),
        20,
        "the other one was never sent"
    );
}

/// One table may not be written to, another refuses deletes, and a third has a time that does not fit.
#[test]
fn the_documented_privileges_suffice_and_no_table_holds_up_another() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "cleanup_rights");
    let (sql, publication) = (outbox.database.sql(), outbox.slot());
    let columns = "id bigint, aggregatetype text not null, aggregateid text not null, type text not null, payload text";
    let role = "cleanup_rights_role";
    sql.run(&format!(
        "drop table outbox;
         create table outbox ({columns}, created_at timestamptz not null default now(), primary key (id, created_at))
           partition by range (created_at);
         do $$ begin
           for day in -10..10 loop
             execute format('create table %I partition of outbox for values from (%L) to (%L)',
               'day_' || (day + 10), current_date + day, current_date + day + 1);
           end loop;
         end $$;
         create table a_outbox ({columns}, created_at timestamptz not null default now(), primary key (id));
         create table b_outbox (like a_outbox including all);
         create table c_outbox ({columns}, created_at bigint, primary key (id));
         insert into c_outbox values (-1, 'order', 'nanos', 'Created', '1', 1800000000000000000), (-2, 'order', 'end', 'Created', '1', 9223372036854775807);
         create publication {publication} for table outbox, a_outbox, b_outbox, c_outbox with (publish_via_partition_root = true);
         create role {role} login replication;
         grant usage on schema public to {role};
         grant select, delete on outbox, b_outbox, c_outbox to {role};
         grant select on a_outbox to {role}"
    ));
    sql.run(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'this row stays'; end $$;
         create trigger refuse before delete on b_outbox for each row execute function refuse();
         create table locked (partitions bigint);
         create function note() returns trigger language plpgsql security definer as $$ begin
           insert into locked select count(*) from pg_locks l join pg_class c on c.oid = l.relation
             where l.pid = pg_backend_pid() and l.mode = 'RowExclusiveLock' and c.relname like 'day_%' and c.relkind = 'r';
           return null; end $$;
         create trigger note after delete on outbox for each statement execute function note()",
    );
    let mut walferry = outbox.start_with(outbox.config_with([
        ("database.user", role),
        (
            "table.include.list",
            "public.outbox,public.a_outbox,public.b_outbox,public.c_outbox",
        ),
        ("publication.autocreate.mode", "disabled"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
        ("transforms.outbox.walferry.retention.batch.rows", "30"),
        ("publish.via.partition.root", "true"),
    ]));
    let floor = "rows that are written from now on are removed";
    wait_for_floors(&outbox, &walferry, floor, 3);
    sql.run(&insert_sql("k", 1, 5).replace("insert into outbox", "insert into a_outbox"));
    sql.run(&insert_sql("k", 6, 10).replace("insert into outbox", "insert into b_outbox"));
    for first in [11, 51] {
        outbox.insert("k", first, first + 39);
        wait_until_empty(&outbox, &mut walferry);
    }
    world.kafka.wait_for_records(&outbox.topic("order"), 90);
    wait_for("the tables that fail to be named", || {
        let output = walferry.output();
        let said = |table: &str, error: &str| {
            let mut lines = output.lines();
            lines.any(|line| line.contains("WF0787") && line.contains(table) && line.contains(error))
        };
        (said("public.a_outbox", "permission denied") && said("public.b_outbox", "this row stays")).then_some(())
    });
    for (table, count) in [("a_outbox", "5"), ("b_outbox", "5"), ("c_outbox", "2")] {
        let left = sql.value(&format!("select count(*) from {table}"));
        assert_eq!(left.as_deref(), Some(count), "{table}");
    }
    // The rows are of today, or of two days.
    let locked = sql
        .value("select max(partitions) from locked")
        .expect("rows were removed");
    let locked: u32 = locked.parse().expect("a number");
    assert!((1..=2).contains(&locked), "{locked} partitions were locked");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn rows_are_removed_too_where_the_role_may_not_ask_for_the_servers_identity() {
    let world = world::shared();
    let outbox = dated_rows(&world.postgres, &world.kafka, "cleanup_identity");
    let (sql, publication) = (outbox.database.sql(), outbox.slot());
    let role = "cleanup_identity_role";
    // The privileges on functions belong to the database.
    sql.run(&format!(
        "create publication {publication} for table outbox;
         create role {role} login replication;
         grant usage on schema public to {role};
         grant select, delete on outbox to {role};
         revoke execute on function pg_control_system() from public"
    ));
    let mut walferry = outbox.start_with(outbox.config_with([
        ("database.user", role),
        ("publication.autocreate.mode", "disabled"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
    ]));
    wait_for_floors(&outbox, &walferry, "rows that are written from now on are removed", 1);
    let output = walferry.output();
    assert!(output.contains("GRANT EXECUTE ON FUNCTION"), "{output}");
    outbox.insert("k", 1, 10);
    wait_until_empty(&outbox, &mut walferry);
    world.kafka.wait_for_records(&outbox.topic("order"), 10);
}

#[test]
fn partitions_of_an_outbox_are_created_before_rows_need_them() {
    let world = world::shared();
    let outbox = partitioned(&world.postgres, &world.kafka, "cleanup_ahead", "");
    let sql = outbox.database.sql();
    // A long transaction that uses the table does not stand in the way.
    let long = world.postgres.in_database(outbox.database.name());
    long.run("begin; lock table outbox in row exclusive mode");
    let mut walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.partitions", "hour"),
        ("transforms.outbox.walferry.partitions.ahead", "2"),
        ("publish.via.partition.root", "true"),
    ]));
    wait_for("this hour and two more to have partitions", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let count = sql.value("select count(*) from pg_inherits where inhparent = 'outbox'::regclass")?;
        (count.parse::<u32>().expect("a number") >= 3).then_some(())
    });
    long.run("commit");
    // Without a partition, the insert fails.
    outbox.insert("k", 1, 5);
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    let name = "select to_char(now() at time zone 'UTC', '\"outbox_\"YYYYMMDD_HH24')";
    let is_there = format!("select to_regclass(({name})) is not null");
    assert_eq!(sql.value(&is_there).as_deref(), Some("t"));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// The partitions belong to the owner of the table, who is not the connector's role.
#[test]
fn partitions_are_created_as_the_owner_and_beside_rows_in_the_default_partition() {
    let world = world::shared();
    let default = "create table other partition of outbox default";
    let outbox = partitioned(&world.postgres, &world.kafka, "cleanup_owner", default);
    let (sql, publication) = (outbox.database.sql(), outbox.slot());
    let (owner, role) = ("\"cleanup owner\"", "cleanup_owner_member");
    sql.run(&format!(
        "create role {owner}; create role {role} login replication; grant {owner} to {role};
         grant create, usage on schema public to {owner};
         alter table outbox owner to {owner}; alter table other owner to {owner};
         insert into outbox select n, 'order', 'waits', 'Created', n, now() + n * interval '1 hour' from generate_series(0, 1) n;
         create publication {publication} for table outbox with (publish_via_partition_root = true)"
    ));
    let mut walferry = outbox.start_with(outbox.config_with([
        ("database.user", role),
        ("publication.autocreate.mode", "disabled"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.partitions", "hour"),
        ("transforms.outbox.walferry.partitions.ahead", "4"),
        ("publish.via.partition.root", "true"),
    ]));
    let created = "from pg_inherits i join pg_class c on c.oid = i.inhrelid where inhparent = 'outbox'::regclass and relname <> 'other'";
    wait_for("partitions of later hours", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let count = sql.value(&format!("select count(*) {created}"))?;
        (count.parse::<u32>().expect("a number") >= 3).then_some(())
    });
    wait_for("the hour that has rows already to be named", || {
        let output = walferry.output();
        let mut lines = output.lines();
        lines
            .any(|line| line.contains("WF0776") && line.contains("has rows of its time"))
            .then_some(())
    });
    let owners = format!("select string_agg(distinct pg_get_userbyid(relowner), ',') {created}");
    assert_eq!(sql.value(&owners).as_deref(), Some("cleanup owner"));
    // The owner can go on with its table.
    sql.run(&format!(
        "set role {owner}; alter table outbox add note text; drop table outbox; reset role"
    ));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// One table has a bound that Walferry cannot compute with, and a name is taken in the other one.
#[test]
fn a_refused_partition_holds_up_neither_later_ones_nor_other_tables() {
    let world = world::shared();
    let outbox = partitioned(
        &world.postgres,
        &world.kafka,
        "cleanup_taken",
        "create table a_outbox (like outbox including all) partition by range (created_at);
         create table far partition of a_outbox for values from ('2000-01-01') to ('294276-12-31');
         do $$ begin
           execute format('create table %I (id bigint)', to_char((now() + interval '1 hour') at time zone 'UTC', '\"outbox_\"YYYYMMDD_HH24'));
         end $$",
    );
    let sql = outbox.database.sql();
    let walferry = outbox.start_with(outbox.config_with([
        ("table.include.list", "public.a_outbox,public.outbox"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.partitions", "hour"),
        ("transforms.outbox.walferry.partitions.ahead", "3"),
        ("publish.via.partition.root", "true"),
    ]));
    wait_for("the refusals to be named", || {
        let output = walferry.output();
        let told = |texts: &[&str]| {
            let is_told = |line: &str| line.contains("WF0776") && texts.iter().all(|text| line.contains(text));
            output.lines().any(is_told)
        };
        let is_told = told(&["public.a_outbox", "out of range"])
            && told(&["public.outbox", "already exists", "attach, rename or drop"]);
        is_told.then_some(())
    });
    // This hour and three more, except for the one whose name is taken.
    let count = sql.value("select count(*) from pg_inherits where inhparent = 'outbox'::regclass");
    assert_eq!(count.as_deref(), Some("3"));
}
