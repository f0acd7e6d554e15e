//! What the owner of a relayed outbox, and whoever may connect to its database, can do to relay mode.

use std::process::{Command, Output};

use serde_json::json;
use walferry_testkit::servers::{Checked, Registry, Walferry, folder, wait_for, walferry_program};

use crate::{
    attacks::TRIES,
    hostile_names::assert_is_printable,
    relay::{POLLER, Relayed, assert_runs},
    world,
};

fn retry(walferry: &Walferry, more: &[&str]) -> Output {
    let config = walferry.config_file().display().to_string();
    Command::new("timeout")
        .arg("60")
        .arg(walferry_program())
        .args(["outbox", "retry", "--config", &config])
        .args(more)
        .output()
        .expect("it can be run")
}

fn wait_for_line(walferry: &mut Walferry, part: &str) {
    wait_for(part, || {
        assert!(walferry.runs(), "{}", walferry.output());
        walferry.output().contains(part).then_some(())
    });
}

/// The owner's code runs as the connector's role when rows are marked, and when their key is made a text.
#[test]
fn triggers_and_casts_of_a_relayed_outbox_get_no_further_than_the_connectors_role() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_hostile_triggers", "published_at timestamptz, kind int");
    let sql = relayed.database().sql();
    let file = folder("relay_hostile_triggers_owned").join("owned");
    let tries: String = TRIES
        .iter()
        .map(|(what, statement)| {
            let statement = statement
                .replace("FILE", &file.display().to_string())
                .replace("attack_cdc", "relay_cdc")
                .replace('\'', "''");
            format!(
                "begin execute '{statement}'; insert into public.outcomes values ('{what}', 'DONE');
                 exception when others then insert into public.outcomes values ('{what}', sqlstate); end;\n"
            )
        })
        .collect();
    sql.run(&format!(
        "create role relay_owner; create role relay_cdc login;
         create table secrets (secret text); insert into secrets values ('hunter2');
         create table outcomes (what text, outcome text); grant insert on outcomes to relay_cdc;
         create type kinds as enum ('one', 'two'); alter type kinds owner to relay_owner;
         create function tries() returns void language plpgsql as $$ begin {tries} end $$;
         create function tried() returns trigger language plpgsql as $$ begin
           perform set_config('search_path', 'public', false); perform public.tries(); return new; end $$;
         create function of_kind(kinds) returns text language plpgsql as $$ begin
           insert into public.outcomes values ('cast', current_user); return 'k'; end $$;
         create cast (kinds as text) with function of_kind(kinds);
         alter table events alter kind type kinds using 'one';
         create trigger tried before update on events for each row execute function tried();
         alter function tried() owner to relay_owner; alter function of_kind(kinds) owner to relay_owner;
         alter table events owner to relay_owner; grant select, update on events to relay_cdc;
         insert into events (aggregateid, payload, kind) select 'a', n, 'one' from generate_series(1, 3) n"
    ));
    let changes = [
        ("database.user", "relay_cdc"),
        ("transforms.outbox.walferry.key.columns", "kind,aggregateid"),
    ];
    let mut walferry = relayed.start(&changes);
    relayed.wait_until_none("published_at is null");
    let tried = sql.value("select count(distinct what) from outcomes where what <> 'cast'");
    assert_eq!(tried.as_deref(), Some("16"));
    let done = sql.value("select string_agg(distinct what, ', ') from outcomes where outcome = 'DONE'");
    assert_eq!(done, None);
    let casts = sql.value("select string_agg(distinct outcome, ', ') from outcomes where what = 'cast'");
    assert!(casts.is_none_or(|role| role == "relay_cdc"));
    assert!(!file.exists());
    sql.run("insert into events (aggregateid, payload, kind) values ('a', 4, 'two')");
    relayed.wait_until_none("published_at is null");
    assert_eq!(relayed.records().len(), 4);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn putting_failed_rows_back_ends_although_they_fail_again_at_once() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_again", POLLER);
    let sql = relayed.database().sql();
    let mut walferry = relayed.start(&[]);
    walferry.terminate();
    sql.run(
        "insert into events (aggregateid, payload, status) select 'a', n, 'FAILED' from generate_series(1, 2500) n;
         create function again() returns trigger language plpgsql as $$ begin new.status := 'FAILED'; return new; end $$;
         create trigger again before update on events for each row execute function again()",
    );
    let retried = retry(&walferry, &[]);
    assert!(retried.status.success(), "{retried:?}");
    let said = String::from_utf8_lossy(&retried.stdout);
    assert!(said.contains("2500 rows are tried again"), "{said}");
    sql.run("drop trigger again on events");
    assert!(
        retry(&walferry, &["--key", "x'); drop table events; --"])
            .status
            .success()
    );
    assert!(retry(&walferry, &["--key", "a"]).status.success());
    relayed.wait_until_none("status <> 'PENDING'");
}

#[test]
fn names_of_columns_of_a_relayed_outbox_run_nothing_and_control_nothing() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_names", "note text");
    let sql = relayed.database().sql();
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let names = [
        "s\"; create role owned_status superuser; --",
        "a\u{1b}]0;owned\u{7}'\\",
        "v\r\ncreate role owned_available; --",
        "l\u{202e}'; create role owned_error; --",
        "k$$ \u{85}\\! touch owned",
    ];
    let [status, attempts, available, error, key] = names;
    sql.run(&format!(
        "alter table events add {} text not null default 'PENDING', add {} int not null default 0, add {} timestamptz, add {} text,
         add {} text; insert into events (aggregateid, payload, {}) values ('a', 1, 'b');
         insert into events (aggregatetype, aggregateid, payload, {}) values (E'no\\ntopic \\x1b]0;owned', 'a', 2, 'c')",
        quoted(status), quoted(attempts), quoted(available), quoted(error), quoted(key), quoted(key), quoted(key)
    ));
    let changes = [
        ("relay.columns.status", status),
        ("relay.columns.attempts", attempts),
        ("relay.columns.available.at", available),
        ("relay.columns.last.error", error),
        ("transforms.outbox.table.field.event.key", key),
        ("relay.max.attempts", "2"),
        ("relay.backoff.ms", "20"),
    ];
    let checked = Checked::of(&relayed.options(&changes), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    assert_is_printable("check", &(checked.stdout + &checked.stderr));
    let mut walferry = relayed.start(&changes);
    relayed.wait_until_none(&format!("{} = 'PENDING'", quoted(status)));
    let row = sql.rows(&format!(
        "select {}, {} from events where {} = 'FAILED'",
        quoted(attempts),
        quoted(error),
        quoted(status)
    ));
    assert_eq!(row[0][0].as_deref(), Some("2"));
    let told = row[0][1].as_deref().unwrap_or_default();
    assert!(told.contains("no\\ntopic") && !told.contains("LSN"), "{told}");
    assert_is_printable("last_error", told);
    sql.run("update events set aggregatetype = 'order'");
    let retried = retry(&walferry, &[]);
    assert!(retried.status.success(), "{retried:?}");
    assert_is_printable("retry", &String::from_utf8_lossy(&retried.stdout));
    relayed.wait_until_none(&format!("{} <> 'SENT'", quoted(status)));
    // The good row of a look that Kafka has refused in part is sent again.
    assert!((2..=4).contains(&relayed.records().len()), "{:?}", relayed.records());
    assert_eq!(walferry.terminate(), Some(0));
    assert_is_printable("run", &walferry.output());
    let roles = sql.value("select string_agg(rolname, ', ') from pg_roles where rolname like 'owned%'");
    assert_eq!(roles, None);
}

#[test]
fn what_a_provider_returned_is_not_written_into_the_outbox() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_secret", POLLER);
    relayed.insert("a", 1, 1);
    let mut options = relayed.options(&[
        (
            "transforms.outbox.route.topic.replacement",
            "${env:RELAY_TOPIC} ${routedByValue}",
        ),
        ("relay.max.attempts", "1"),
    ]);
    options.env = vec![("RELAY_TOPIC".into(), "TOPIC-SECRET-4712".into())];
    options.worker.push("config.providers=env".into());
    options
        .worker
        .push("config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider".into());
    let walferry = Walferry::start(options);
    relayed.wait_until_none("status <> 'FAILED'");
    let error = relayed.database().sql().value("select last_error from events");
    let error = error.unwrap_or_default();
    assert!(!error.is_empty() && !error.contains("TOPIC-SECRET"), "{error}");
    assert!(!walferry.output().contains("TOPIC-SECRET"), "{}", walferry.output());
}

/// Advisory locks and notifications are open to every role that may connect.
#[test]
fn a_role_without_rights_can_hold_up_the_relay_only_as_long_as_nobody_looks() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_locks", "published_at timestamptz");
    let sql = relayed.database().sql();
    sql.run("create role relay_locks_nobody login");
    let nobody = world.postgres.in_database(relayed.database().name());
    nobody.run(
        "set session authorization relay_locks_nobody; set application_name = E'x\\x1b]0;owned';
         select pg_advisory_lock(('public.events'::regclass::oid::bigint::bit(32) # x'5746524c')::int, 8 * 4096 + lane) from generate_series(0, 7) lane",
    );
    relayed.insert("a", 1, 3);
    let changes = [("relay.poll.interval.ms", "500"), ("relay.notify.channel", "events")];
    let mut walferry = relayed.start(&changes);
    wait_for_line(&mut walferry, "no rows are sent by this process");
    let pid = nobody.value("select pg_backend_pid()").expect("it has one");
    wait_for_line(&mut walferry, &format!("process {pid} of role "));
    assert_eq!(relayed.count("published_at is null"), 3);
    nobody.run("select pg_notify('events', n || repeat('x', 7000)) from generate_series(1, 2000) n");
    nobody.run("select pg_advisory_unlock_all()");
    relayed.wait_until_none("published_at is null");
    assert_eq!(relayed.numbers()["a"], [1, 2, 3]);
    assert_eq!(walferry.terminate(), Some(0));
    assert_is_printable("run", &walferry.output());
}

/// A trigger, a rule, a policy or a constraint may refuse the mark of one row, or undo it. Kafka has the row. All others have to be marked, or they
/// would be sent again and again.
#[test]
fn a_row_that_cannot_be_marked_keeps_back_its_own_key_and_no_other() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_unmarkable", POLLER);
    let sql = relayed.database().sql();
    sql.run(
        "create function refuse() returns trigger language plpgsql as $$ begin
           if new.aggregateid = 'raise' and new.status = 'SENT' then raise exception 'not % at all', new.aggregateid; end if;
           if new.aggregateid = 'skip' then return null; end if;
           if new.aggregateid = 'back' then new.status := 'PENDING'; end if;
           return new; end $$;
         create trigger refuse before update on events for each row execute function refuse();
         create function late() returns trigger language plpgsql as $$ begin
           if new.aggregateid = 'late' and new.status = 'SENT' then raise exception 'too late'; end if; return null; end $$;
         create constraint trigger late after update on events deferrable initially deferred for each row execute function late();
         insert into events (aggregateid, payload) select key, n from generate_series(1, 100) n,
           unnest(case when n = 50 then array['a', 'raise', 'skip', 'back', 'late', 'b'] else array['a', 'b'] end) key order by n",
    );
    let mut walferry = relayed.start(&[("relay.max.attempts", "3"), ("relay.backoff.ms", "20")]);
    relayed.wait_until_none("status = 'PENDING' and aggregateid in ('a', 'b', 'raise', 'late')");
    let numbers = relayed.numbers();
    for key in ["a", "b"] {
        assert_runs(&numbers[key], 100);
        // The look in which the first mark was refused is repeated.
        assert!(numbers[key].len() <= 200, "{key}: {:?}", numbers[key]);
    }
    assert_eq!(relayed.count("status = 'FAILED'"), 2);
    assert_eq!(numbers["raise"].len(), 4, "the first attempt was not noted");
    for (key, part) in [("raise", "not raise at all"), ("late", "too late")] {
        let error = sql.value(&format!("select last_error from events where aggregateid = '{key}'"));
        let error = error.unwrap_or_default();
        assert!(
            error.starts_with("Kafka has the row") && error.contains(part),
            "{error}"
        );
    }
    // Later rows are marked in one look, and nothing of them is repeated.
    for key in ["a", "b"] {
        relayed.insert(key, 101, 150);
    }
    relayed.wait_until_none("status = 'PENDING' and aggregateid in ('a', 'b')");
    sql.run("drop trigger refuse on events; drop trigger late on events");
    relayed.wait_until_none("status = 'PENDING'");
    assert!(retry(&walferry, &[]).status.success());
    relayed.wait_until_none("status <> 'SENT'");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// Rows that others refer to cannot be deleted. The table has no column in which that could be noted.
#[test]
fn a_row_that_cannot_be_deleted_keeps_back_its_own_key_and_no_other() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_undeletable", "note text");
    let sql = relayed.database().sql();
    relayed.insert("kept", 1, 2);
    for key in ["a", "b"] {
        relayed.insert(key, 1, 100);
    }
    sql.run("create table referring (id bigint references events); insert into referring select min(id) from events");
    let mut walferry = relayed.start(&[("relay.done", "delete"), ("relay.backoff.ms", "20")]);
    relayed.wait_until_none("aggregateid <> 'kept'");
    relayed.insert("a", 101, 110);
    relayed.wait_until_none("aggregateid <> 'kept'");
    wait_for_line(&mut walferry, "was sent and cannot be marked");
    let numbers = relayed.numbers();
    assert_runs(&numbers["a"], 110);
    assert_runs(&numbers["b"], 100);
    assert!(numbers["a"].len() <= 210, "{:?}", numbers["a"]);
    sql.run("delete from referring");
    relayed.wait_until_none("true");
    assert_runs(&relayed.numbers()["kept"], 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// NULL is neither less than a number nor not less than it.
#[test]
fn attempts_and_columns_of_the_order_may_be_null() {
    let world = world::shared();
    let relayed = Relayed::new(
        world,
        "relay_null",
        "at timestamptz, published_at timestamptz, attempts int, available_at timestamptz",
    );
    let sql = relayed.database().sql();
    sql.run(
        "insert into events (aggregatetype, aggregateid, payload, at) values ('no topic', 'a', 1, now());
         insert into events (aggregateid, payload) values ('a', 2), ('b', 1)",
    );
    let changes = [("relay.order.by", "at,id"), ("relay.max.attempts", "1")];
    let mut walferry = relayed.start(&changes);
    relayed.wait_until_none("aggregateid = 'b' and published_at is null");
    relayed.wait_until_none("aggregatetype = 'no topic' and attempts is null");
    // A look after the one in which it failed.
    relayed.insert("b", 2, 2);
    relayed.wait_until_none("aggregateid = 'b' and published_at is null");
    let keys: Vec<String> = relayed.numbers().into_keys().collect();
    assert_eq!(keys, ["b"], "a row without a time comes after all that have one");
    sql.run("update events set aggregatetype = 'order'");
    assert!(retry(&walferry, &[]).status.success());
    relayed.wait_until_none("published_at is null");
    assert_eq!(relayed.numbers()["a"], [1, 2]);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// What waits for a schema is not sent, and neither is what comes after it. All before it is sent, and marked.
#[test]
fn while_the_registry_is_away_no_row_is_sent_twice() {
    let world = world::shared();
    let mut registry = Registry::start();
    let relayed = Relayed::new(
        world,
        "relay_registry",
        "published_at timestamptz, attempts int not null default 0, available_at timestamptz",
    );
    let sql = relayed.database().sql();
    for topic in ["new", "odd"] {
        world.kafka.create_topic(&relayed.outbox.topic(topic), 1);
    }
    let large = |topic: &str, number: i64| {
        sql.run(&format!(
            "insert into events (aggregatetype, aggregateid, payload) values ('{topic}', 'k{number}', repeat('{number}', 30000))"
        ));
    };
    let sent = |topic: &str| world.kafka.read(&[relayed.outbox.topic(topic)]).len();
    let url = registry.confluent();
    let mut walferry = relayed.start(&[
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
        ("value.converter.schema.registry.url", &url),
        ("relay.backoff.ms", "20"),
        ("relay.max.attempts", "2"),
    ]);
    large("order", 1);
    relayed.wait_until_none("published_at is null");
    registry.stop();
    (2..=9).for_each(|number| large("order", number));
    large("new", 1);
    large("order", 10);
    relayed.wait_until_none("aggregatetype = 'order' and published_at is null and aggregateid <> 'k10'");
    // It is tried again meanwhile.
    wait_for("retries", || {
        (walferry.output().matches("waiting for the id").count() >= 2).then_some(())
    });
    assert_eq!(relayed.count("published_at is null"), 2);
    assert_eq!(sent("order"), 9);
    registry.start_again();
    relayed.wait_until_none("published_at is null");
    assert_eq!((sent("order"), sent("new")), (10, 1));
    // A schema that the registry refuses is a failure of its row.
    let odd = format!("{}-value", relayed.outbox.topic("odd"));
    let number = json!({ "schema": "\"int\"" });
    registry.ask("POST", &format!("/subjects/{odd}/versions"), Some(&number));
    registry.ask(
        "PUT",
        &format!("/config/{odd}"),
        Some(&json!({ "compatibility": "BACKWARD" })),
    );
    large("order", 11);
    large("odd", 1);
    large("order", 12);
    relayed.wait_until_none("published_at is null and aggregatetype = 'order'");
    relayed.wait_until_none("published_at is null and attempts < 2");
    assert_eq!((sent("order"), sent("odd")), (12, 0));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// An owner who changes the table again and again hits the moment between the question for its columns and the first look.
#[test]
fn a_column_that_is_dropped_before_the_first_look_does_not_end_the_relay() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_dropped", "note text, published_at timestamptz");
    relayed.insert("a", 1, 3);
    let owner = world.postgres.in_database(relayed.database().name());
    // The columns can be read, but no row can be locked.
    owner.run("begin; lock table events in exclusive mode");
    let mut walferry = Walferry::start(relayed.options(&[]));
    wait_for("a look to wait", || {
        let waiting = "select count(*) from pg_locks where relation = 'events'::regclass and mode = 'RowShareLock' and not granted";
        (owner.value(waiting).as_deref() == Some("1")).then_some(())
    });
    owner.run("alter table events drop column note; commit");
    wait_for("the rows to be sent", || {
        assert!(walferry.runs(), "{}", walferry.output());
        (relayed.count("published_at is null") == 0).then_some(())
    });
    assert_eq!(relayed.numbers()["a"], [1, 2, 3]);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn by_choice_later_rows_of_its_key_pass_a_row_that_has_failed_for_good() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_pass", POLLER);
    relayed.database().sql().run(
        "insert into events (aggregatetype, aggregateid, payload) values ('no topic', 'a', 1), ('order', 'a', 2), ('order', 'a', 3)",
    );
    let changes = [
        ("relay.failed.rows", "pass"),
        ("relay.max.attempts", "2"),
        ("relay.backoff.ms", "20"),
    ];
    let mut walferry = relayed.start(&changes);
    relayed.wait_until_none("status = 'PENDING'");
    assert_eq!(relayed.count("status = 'FAILED' and attempts = 2"), 1);
    assert_eq!(relayed.numbers()["a"], [2, 3]);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
