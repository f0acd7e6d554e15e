//! A schema that others may create in comes first in the role's `search_path`, and has an object of its own for each that Postgres has: operators,
//! functions, casts and types. Nothing that Walferry composes finds one.

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{
    Checked, Database, Postgres, PostgresOptions, Walferry, WalferryOptions, folder, wait_for, walferry_program,
};

use crate::{signals::begin, world};

/// Each object does what Postgres' own does, and says so. Its own statements have a path of their own.
const SHADOWS: &str = r#"
create schema evil;
create function evil.say(what text) returns boolean language plpgsql set search_path = pg_catalog as $$
  begin raise warning 'EVIL % as %', what, session_user; return true; end $$;
do $shadows$
declare
  found record; done int := 0; body text;
  pseudo constant oid[] := array(select oid from pg_catalog.pg_type where typtype = 'p');
begin
  for found in
    select p.oid, p.proname, p.proretset, p.prorettype::regtype::text as result,
      (select string_agg(format('%s', a::regtype), ', ' order by n) from unnest(p.proargtypes) with ordinality t(a, n)) as arguments,
      (select string_agg('$' || n, ', ' order by n) from unnest(p.proargtypes) with ordinality t(a, n)) as given
    from pg_catalog.pg_proc p
    where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and not p.proretset and p.provariadic = 0
      and not p.prorettype = any (pseudo) and not p.proargtypes::oid[] && pseudo
      and p.proname !~ '(in|out|recv|send|sel|support|transform|inv|accum|combine|final|serialize|deserialize)$'
  loop
    body := format('begin perform evil.say(%L); return pg_catalog.%I(%s); end', found.proname || '()', found.proname, coalesce(found.given, ''));
    begin
      execute format('create function evil.%I(%s) returns %s language plpgsql set search_path = pg_catalog as %L',
        found.proname, coalesce(found.arguments, ''), found.result, body);
      done := done + 1;
    exception when others then null;
    end;
  end loop;
  if done < 1000 then raise exception 'only % functions', done; end if;
  done := 0;
  for found in
    select o.oprname, o.oprleft, o.oprright, o.oprleft::regtype::text as l, o.oprright::regtype::text as r, o.oprresult::regtype::text as result
    from pg_catalog.pg_operator o
    where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprleft <> 0 and o.oprright <> 0
      and not o.oprresult = any (pseudo) and not o.oprleft = any (pseudo) and not o.oprright = any (pseudo)
  loop
    done := done + 1;
    body := format('begin perform evil.say(%L); return $1 operator(pg_catalog.%s) $2; end', found.l || ' ' || found.oprname || ' ' || found.r, found.oprname);
    begin
      execute format('create function evil.op_%s(%s, %s) returns %s language plpgsql set search_path = pg_catalog as %L',
        done, found.l, found.r, found.result, body);
      execute format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.op_%s)', found.oprname, found.l, found.r, done);
    exception when others then null;
    end;
  end loop;
  -- What takes any text, for a left side that is something else: found before Postgres' own, which takes anything.
  for found in select t.oid::regtype::text as l from pg_catalog.pg_type t where t.typname in ('oid', 'xid', 'name', 'int4', 'int8', 'bool', 'text') loop
    done := done + 1;
    execute format('create function evil.op_%s(%s, text) returns text language plpgsql set search_path = pg_catalog as %L', done, found.l,
      format('begin perform evil.say(%L); return $1::text || $2; end', found.l || ' || text'));
    begin
      execute format('create operator evil.|| (leftarg = %s, rightarg = text, function = evil.op_%s)', found.l, done);
    exception when others then null;
    end;
    execute format('create function evil.pg_column_size(%s) returns int language plpgsql set search_path = pg_catalog as %L', found.l,
      'begin perform evil.say(''pg_column_size''); return pg_catalog.pg_column_size($1); end');
  end loop;
  execute $x$create function evil.count_step(int8) returns int8 language plpgsql as 'begin perform evil.say(''count(*)''); return $1 operator(pg_catalog.+) 1; end'$x$;
  execute $x$create aggregate evil.count(*) (sfunc = evil.count_step, stype = int8, initcond = '0')$x$;
  for found in select unnest(array['text', 'int8', 'int4', 'int2', 'oid', 'xid', 'name', 'bool', 'tid', 'timestamptz', 'uuid', 'regclass', 'float8', 'jsonb', 'date', 'bytea']) as name loop
    execute format('create domain evil.%1$I as pg_catalog.%1$I check (evil.say(%2$L))', found.name, 'the type ' || found.name);
  end loop;
end
$shadows$;
grant usage on schema evil to public;
"#;

const TABLES: &str = "
    create table public.orders (id int primary key, note text, body text, at timestamptz default now());
    alter table public.orders alter body set storage external;
    insert into public.orders select n, 'n' || n, repeat('x', 3000) from generate_series(1, 30) n;
    create type public.mood as enum ('low', 'high');
    create domain public.amount as numeric check (value > 0);
    create table public.mixed (kind public.mood, code varchar(10), n public.amount, v text, primary key (kind, code, n));
    insert into public.mixed select case when n % 2 = 0 then 'low'::public.mood else 'high' end, 'c' || n, n, 'v' from generate_series(1, 9) n;
    create table public.signals (id varchar(64) primary key, type varchar(32) not null, data varchar(2048));
    create table public.outbox (id bigint, aggregatetype text not null, aggregateid text not null, type text not null, payload text,
      created_at timestamptz not null default now(), primary key (id, created_at)) partition by range (created_at);
    create table public.outbox_all partition of public.outbox default;
    create index on public.outbox (created_at);
    create table public.relayed (id bigint generated always as identity primary key, aggregatetype text not null default 'order', aggregateid text not null,
      type text not null default 'Created', payload text, status text not null default 'PENDING', attempts int not null default 0,
      available_at timestamptz not null default now(), last_error text, created_at timestamptz not null default now());
    create table public.emptied (id uuid primary key default gen_random_uuid(), aggregatetype text not null default 'order', aggregateid text not null,
      type text not null default 'Created', payload text, created_at timestamptz not null default now());
    create role app login; alter table public.relayed owner to app; alter table public.emptied owner to app; alter table public.outbox owner to app; alter table public.outbox_all owner to app;
    create role cdc login replication in role app;
    grant select on all tables in schema public to cdc; grant insert, delete on public.signals to cdc;
    grant create on schema public to app; grant usage on schema public to cdc, app;
    grant create on database hostile_path to cdc; alter table public.orders owner to app; alter table public.mixed owner to app;
    alter table public.signals owner to app;
    create role admin superuser login;
    alter database hostile_path set search_path = evil, pg_catalog, public;
    alter role postgres in database hostile_path set search_path = public";

/// As a pooler, it names a process of its own at the login, and keeps the session of the server when a client leaves.
struct Pooler {
    port: u16,
    /// The `search_path` of each session that a client has left, which the next one would get.
    left: Arc<Mutex<Vec<String>>>,
    sessions: Arc<AtomicUsize>,
}

impl Pooler {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let pooler = Self {
            port: listener.local_addr().expect("it listens").port(),
            left: Arc::default(),
            sessions: Arc::default(),
        };
        let (left, sessions) = (pooler.left.clone(), pooler.sessions.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (left, sessions) = (left.clone(), sessions.clone());
                sessions.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    let path = Self::serve(client, server);
                    left.lock().expect("no other panicked").extend(path);
                    sessions.fetch_sub(1, SeqCst);
                });
            }
        });
        pooler
    }

    fn paths_left(&self) -> Vec<String> {
        wait_for("the sessions to be left", || {
            (self.sessions.load(SeqCst) == 0).then_some(())
        });
        self.left.lock().expect("no other panicked").clone()
    }

    /// One client. Returns the path that it leaves, if it was one for SQL.
    fn serve(mut client: TcpStream, server: u16) -> Option<String> {
        let mut server = TcpStream::connect(("127.0.0.1", server)).ok()?;
        let startup = message(&mut client, false)?;
        server.write_all(&startup).ok()?;
        let is_replication = startup.windows(11).any(|text| text == b"replication");
        let (mut answers, mut to) = (server.try_clone().ok()?, client.try_clone().ok()?);
        let is_left = Arc::new(AtomicBool::new(false));
        let leaves = is_left.clone();
        let back = thread::spawn(move || {
            let (mut path, mut is_shown) = (None, false);
            while let Some(mut answer) = message(&mut answers, true) {
                if answer[0] == b'K' {
                    answer[5] ^= 0x40;
                }
                if leaves.load(SeqCst) {
                    // Answers to what the client still asked for come first.
                    is_shown |= answer[0] == b'T' && answer.windows(11).any(|text| text == b"search_path");
                    if answer[0] == b'D' && is_shown {
                        path = Some(String::from_utf8_lossy(&answer[11..]).into_owned());
                        break;
                    }
                } else if to.write_all(&answer).is_err() && is_replication {
                    break;
                }
            }
            path
        });
        while let Some(request) = message(&mut client, true) {
            if request[0] == b'X' {
                break;
            }
            server.write_all(&request).ok()?;
        }
        if is_replication {
            let _ = server.shutdown(Shutdown::Both);
            let _ = back.join();
            return None;
        }
        is_left.store(true, SeqCst);
        let text = b"ROLLBACK; SHOW search_path\0";
        let mut show = vec![b'Q'];
        show.extend(u32::try_from(text.len() + 4).expect("it is short").to_be_bytes());
        show.extend(text);
        server.write_all(&show).ok()?;
        back.join().ok()?
    }
}

/// The next message, which begins with its type unless it is the first one.
fn message(stream: &mut TcpStream, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().ok()?) as usize;
    let start = head.len();
    head.resize(start + length - 4, 0);
    stream.read_exact(&mut head[start..]).ok()?;
    Some(head)
}

#[test]
fn check_warns_of_a_superuser_and_of_a_path_in_which_others_may_create() {
    let name = "path_warned";
    let (_, database) = begin(name);
    let sql = database.sql();
    sql.run(
        "create table t (id int primary key); create role path_maker; create role path_cdc login replication; grant select on t to path_cdc;
         grant create on database path_warned to path_cdc; alter table t owner to path_cdc; grant create on schema public to path_maker",
    );
    let check = |role: &str| {
        let properties = [("table.include.list", "public.t"), ("database.user", role)];
        Checked::of(&options(name, config(&database, name, &properties)), &[]).stdout
    };
    let (superuser, path) = (
        "is a superuser",
        "the search_path of role \"path_cdc\" has schema \"public\", in which role \"path_maker\" may create",
    );
    let said = check("postgres");
    assert!(said.contains(superuser), "{said}");
    let said = check("path_cdc");
    assert!(said.contains(path) && !said.contains(superuser), "{said}");
    let revoke = "REVOKE CREATE ON SCHEMA \"public\" FROM \"path_maker\"";
    assert!(said.contains(revoke), "{said}");
    sql.run(revoke);
    let said = check("path_cdc");
    assert!(!said.contains("the search_path of role"), "{said}");
    sql.run("grant create on schema public to public");
    let said = check("path_cdc");
    assert!(
        said.contains("in which every role may create") && said.contains("FROM PUBLIC"),
        "{said}"
    );
}

struct Server {
    postgres: Postgres,
    log: PathBuf,
}

/// A server whose log the test reads. What was said before is left out.
fn server() -> Server {
    let folder = folder("hostile_path");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("it is ours");
    let postgres = Postgres::start_with(&PostgresOptions {
        settings: vec![
            "logging_collector = on".into(),
            format!("log_directory = '{}'", folder.display()),
            "log_filename = 'server.log'".into(),
            "log_file_mode = 0644".into(),
        ],
        ..PostgresOptions::default()
    });
    Server {
        log: folder.join("server.log"),
        postgres,
    }
}

impl Server {
    /// What was called of the hostile schema.
    #[track_caller]
    fn called(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).expect("the server writes a log");
        log.lines()
            .filter(|line| line.contains("EVIL"))
            .map(str::to_owned)
            .collect()
    }
}

fn config(database: &Database, name: &str, properties: &[(&str, &str)]) -> Map<String, Value> {
    let config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1", "database.port": database.port().to_string(), "database.user": "cdc",
        "database.dbname": database.name(), "topic.prefix": name, "plugin.name": "pgoutput", "slot.name": name, "publication.name": name,
        "publication.autocreate.mode": "filtered", "publish.via.partition.root": "true",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
    });
    let Value::Object(mut config) = config else {
        unreachable!("the literal is an object")
    };
    config.extend(
        properties
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(*value))),
    );
    config
}

fn options(name: &str, config: Map<String, Value>) -> WalferryOptions {
    WalferryOptions {
        name: name.into(),
        config,
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world::shared().kafka.bootstrap(),
        env: Vec::new(),
    }
}

#[test]
fn statements_of_walferry_find_nothing_of_a_schema_that_comes_first_in_the_path() {
    let server = server();
    let database = server.postgres.database("hostile_path");
    let sql = database.sql();
    sql.run(SHADOWS);
    sql.run(TABLES);
    // The trap is open: this is what a statement with the role's path would call.
    let own = server.postgres.in_database("hostile_path");
    own.run("set search_path = evil, pg_catalog, public; select 'a'::text = 'b'::text; reset search_path");
    wait_for("the server's log", || (!server.called().is_empty()).then_some(()));
    let before = server.called().len();
    let called_since = || server.called().split_off(before);
    let kafka = &world::shared().kafka;

    // Snapshot, stream, columns that are read again, chunks, metrics of slots.
    let plain = config(
        &database,
        "hostile_plain",
        &[
            ("table.include.list", "public.orders,public.mixed,public.signals"),
            ("signal.data.collection", "public.signals"),
            ("incremental.snapshot.chunk.size", "4"),
            ("post.processors", "again"),
            (
                "post.processors.again.type",
                "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
            ),
            ("replica.identity.autoset.values", "public.mixed:FULL"),
        ],
    );
    let mut walferry = Walferry::start(options("hostile_plain", plain.clone()));
    kafka.wait_for_records("hostile_plain.public.orders", 30);
    kafka.wait_for_records("hostile_plain.public.mixed", 9);
    walferry.wait_until_ready();
    sql.run("update public.orders set note = 'again' where id <= 5");
    let orders = kafka.wait_for_records("hostile_plain.public.orders", 35);
    let body = String::from_utf8_lossy(
        orders
            .last()
            .and_then(|record| record.value.as_deref())
            .unwrap_or_default(),
    )
    .into_owned();
    assert!(
        body.contains("xxxx") && !body.contains("__debezium_unavailable_value"),
        "{body}"
    );
    sql.run(
        "insert into public.signals values ('s1', 'execute-snapshot', '{\"data-collections\": [\"public.orders\", \"public.mixed\"]}')",
    );
    kafka.wait_for_records("hostile_plain.public.orders", 65);
    kafka.wait_for_records("hostile_plain.public.mixed", 18);
    walferry.get("/slots").expect("it answers");
    sql.run("alter table public.orders add more int; insert into public.orders values (100)");
    kafka.wait_for_records("hostile_plain.public.orders", 66);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(called_since(), Vec::<String>::new(), "by a connector");

    // Behind a pooler, the path is set in each transaction: the session is for others next.
    let pooler = Pooler::start(database.port());
    let port = pooler.port.to_string();
    let pooled = config(
        &database,
        "hostile_pooled",
        &[
            ("database.port", &port),
            ("database.sslmode", "disable"),
            ("table.include.list", "public.orders,public.signals"),
            ("signal.data.collection", "public.signals"),
            ("incremental.snapshot.chunk.size", "4"),
        ],
    );
    let mut walferry = Walferry::start(options("hostile_pooled", pooled));
    kafka.wait_for_records("hostile_pooled.public.orders", 31);
    walferry.wait_until_ready();
    sql.run(
        "insert into public.signals values ('s2', 'execute-snapshot', '{\"data-collections\": [\"public.orders\"], \"additional-conditions\":
           [{\"data-collection\": \"public.orders\", \"filter\": \"note is not null\"}]}')",
    );
    kafka.wait_for_records("hostile_pooled.public.orders", 61);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    // The condition is the user's, and runs with the role's path: `is not null` has no operator.
    assert_eq!(called_since(), Vec::<String>::new(), "behind a pooler");
    let paths = pooler.paths_left();
    assert!(
        paths.len() > 2 && paths.iter().all(|path| path == "evil, pg_catalog, public"),
        "{paths:?}"
    );
    sql.drop_slot("hostile_pooled");

    // A snapshot that was interrupted goes on, with rows that are read again.
    let checked = Checked::of(&options("hostile_plain", plain), &["--fix", "--show-records"]);
    assert!(
        checked.stdout.contains("public.orders"),
        "{}{}",
        checked.stdout,
        checked.stderr
    );
    assert_eq!(called_since(), Vec::<String>::new(), "by check");

    // The outbox: rows leave it, partitions are made, figures are read.
    let outbox = config(
        &database,
        "hostile_outbox",
        &[
            ("table.include.list", "public.outbox"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.table.field.event.timestamp", "created_at"),
            ("transforms.outbox.walferry.retention.ms", "500"),
            ("transforms.outbox.walferry.partitions", "day"),
            ("transforms.outbox.walferry.watch", "true"),
        ],
    );
    let mut walferry = Walferry::start(options("hostile_outbox", outbox.clone()));
    walferry.wait_until_ready();
    wait_for("floors", || {
        walferry
            .output()
            .contains("rows that are written from now on are removed")
            .then_some(())
    });
    // The time of a transaction is that of its beginning.
    sql.run("select pg_sleep(1.1)");
    sql.run("insert into public.outbox select n, 'order', 'k', 'Created', '{}' from generate_series(1, 20) n");
    kafka.wait_for_records("outbox.event.order", 20);
    wait_for("the rows to be removed", || {
        assert!(walferry.runs(), "{}", walferry.output());
        (sql.value("select count(*) from public.outbox").as_deref() == Some("0")).then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(called_since(), Vec::<String>::new(), "by the outbox");

    // Commands.
    sql.run("insert into public.outbox select n, 'order', 'k', 'Created', '{}' from generate_series(21, 30) n");
    let place = folder("hostile_path_commands");
    fs::write(
        place.join("c.json"),
        json!({ "name": "hostile_outbox", "config": outbox }).to_string(),
    )
    .expect("it can be written");
    let url = format!("postgres://admin:x@127.0.0.1:{}/hostile_path", database.port());
    let bootstrap = kafka.bootstrap();
    let replay = [
        "outbox",
        "replay",
        "--config",
        "c.json",
        "--bootstrap-servers",
        &bootstrap,
        "--yes",
    ];
    for arguments in [
        [&replay[..], &["--key", "k", "--since", "yesterday"]].concat(),
        [&replay[..], &["--id", "22", "--until", "tomorrow", "--state", "s.json"]].concat(),
        vec!["init", &url, "--out", "."],
        vec!["outbox", "options", "--config", "c.json"],
        vec![
            "inbox",
            "create",
            "--table",
            "public.inbox",
            "--consumer",
            "app",
            "--url",
            &url,
            "--run",
        ],
        vec![
            "outbox",
            "create",
            "--config",
            "admin.json",
            "--table",
            "public.second",
            "--partition",
            "day",
            "--writer",
            "app",
            "--run",
        ],
    ] {
        let mut admin = outbox.clone();
        admin.insert("database.user".into(), "admin".into());
        fs::write(
            place.join("admin.json"),
            json!({ "name": "hostile_outbox", "config": admin }).to_string(),
        )
        .expect("it can be written");
        let mut command = Command::new(walferry_program());
        let ran = command
            .args(&arguments)
            .current_dir(&place)
            .stdin(Stdio::null())
            .output()
            .expect("it can be run");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert_eq!(called_since(), Vec::<String>::new(), "by {arguments:?}");
        assert!(
            ran.status.success() || arguments.contains(&"--since"),
            "{arguments:?}: {said}"
        );
    }
    sql.drop_slot("hostile_plain");
    sql.drop_slot("hostile_outbox");

    // Relay mode: looks, marks, failures, rows that are put back, counts, and what check asks.
    let relay = |table: &str, more: &[(&str, &str)]| {
        let mut relay = config(
            &database,
            "hostile_relay",
            &[
                ("connector.class", "walferry.OutboxRelay"),
                ("table.include.list", table),
                ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
                ("transforms", "outbox"),
                ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
                (
                    "transforms.outbox.route.topic.replacement",
                    "hostile_relay.${routedByValue}",
                ),
                ("relay.poll.interval.ms", "50"),
                ("relay.max.attempts", "2"),
                ("relay.backoff.ms", "20"),
                ("relay.notify.channel", "relayed"),
            ],
        );
        relay
            .retain(|name, _| !name.starts_with("slot.") && !name.starts_with("publication.") && name != "plugin.name");
        relay.extend(
            more.iter()
                .map(|(name, value)| ((*name).to_owned(), Value::from(*value))),
        );
        relay
    };
    let pooler = Pooler::start(database.port());
    let port = pooler.port.to_string();
    let direct = database.port().to_string();
    let pooled = [
        ("database.port", port.as_str()),
        ("database.sslmode", "disable"),
        ("relay.notify.port", direct.as_str()),
    ];
    let mut sent = 0;
    for (way, more) in [("relay mode", &[][..]), ("relay mode behind a pooler", &pooled[..])] {
        sql.run(
            "insert into public.relayed (aggregateid, payload) select 'k' || n % 3, n from generate_series(1, 20) n;
             insert into public.relayed (aggregatetype, aggregateid) values ('no topic', 'ill');
             insert into public.relayed (aggregateid, payload) values ('ill', 'held back'); notify relayed",
        );
        let marking = relay("public.relayed", more);
        let checked = Checked::of(&options("hostile_relay", marking.clone()), &[]);
        assert!(
            checked.stdout.contains("is relayed"),
            "{}{}",
            checked.stdout,
            checked.stderr
        );
        assert_eq!(called_since(), Vec::<String>::new(), "by check of {way}");
        let mut walferry = Walferry::start(options("hostile_relay", marking));
        let is_left = |count: &str| {
            wait_for("the rows to be marked", || {
                let left = sql.value("select count(*) from public.relayed where status <> 'SENT'");
                (left.as_deref() == Some(count)).then_some(())
            });
        };
        is_left("2");
        wait_for("the row to fail", || {
            (sql.value("select count(*) from public.relayed where status = 'FAILED'")
                .as_deref()
                == Some("1"))
            .then_some(())
        });
        sql.run("update public.relayed set aggregatetype = 'order' where status = 'FAILED'");
        let put_back = walferry.command_at([
            "outbox",
            "retry",
            "--config",
            &walferry.config_file().display().to_string(),
            "--key",
            "ill",
        ]);
        assert!(put_back.status.success(), "{put_back:?}");
        is_left("0");
        wait_for("the rows to be counted", || {
            let metrics = walferry.get("/metrics")?.body;
            metrics.contains("walferry_relay_waiting_rows{").then_some(())
        });
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        assert_eq!(called_since(), Vec::<String>::new(), "by {way}");
        sent += 22;

        sql.run(
            "insert into public.emptied (aggregateid, payload) select 'k' || n % 3, n from generate_series(1, 20) n",
        );
        let deleting = [&[("relay.done", "delete")][..], more].concat();
        let mut walferry = Walferry::start(options("hostile_relay", relay("public.emptied", &deleting)));
        wait_for("the rows to be deleted", || {
            assert!(walferry.runs(), "{}", walferry.output());
            (sql.value("select count(*) from public.emptied").as_deref() == Some("0")).then_some(())
        });
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        assert_eq!(called_since(), Vec::<String>::new(), "by {way} that deletes");
        sent += 20;
    }
    // Rows that were sent together with one that is refused are repeated.
    kafka.wait_for_records("hostile_relay.order", sent);

    // Somebody else has all lanes, and then the table.
    let other = server.postgres.in_database("hostile_path");
    let marking = relay("public.relayed", &[]);
    other.run(
        "select pg_advisory_lock(('public.relayed'::regclass::oid::bigint::bit(32) # x'5746524c')::int, 8 * 4096 + lane) from generate_series(0, 7) lane",
    );
    sql.run("insert into public.relayed (aggregateid, payload) values ('k', 'last')");
    let mut walferry = Walferry::start(options("hostile_relay", marking));
    let wait_for_line = |walferry: &mut Walferry, part: &str| {
        wait_for(part, || {
            assert!(walferry.runs(), "{}", walferry.output());
            walferry.output().contains(part).then_some(())
        });
        assert_eq!(called_since(), Vec::<String>::new(), "after {part:?}");
    };
    wait_for_line(&mut walferry, "no rows are sent by this process");
    other.run("select pg_advisory_unlock_all(); begin");
    wait_for("the row to be sent", || {
        let left = sql.value("select count(*) from public.relayed where status <> 'SENT'");
        (left.as_deref() == Some("0")).then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    other.run("lock table public.relayed");
    let mut walferry = Walferry::start(options("hostile_relay", relay("public.relayed", &[])));
    wait_for_line(&mut walferry, "is locked by process");
    other.run("rollback");
    walferry.wait_until_ready();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(called_since(), Vec::<String>::new(), "by relay mode that waits");
    let paths = pooler.paths_left();
    assert!(paths.iter().all(|path| path == "evil, pg_catalog, public"), "{paths:?}");
}
