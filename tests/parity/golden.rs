//! Keeps what Debezium sent, with what Postgres gave it, so that quick tests can play it again.

use crate::run::{self, Engines, Observer, Settling, now_ms};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use walferry_testkit::servers::{Database, Postgres};
use walferry_tests::case::Case;
use walferry_tests::plain::PlainRecord;

/// Runs the case through Debezium alone and writes its folder under `tests/golden`.
pub(crate) fn record(case: &Case, postgres: &Postgres, engines: &mut Engines) -> Result<(), String> {
    let mut tape = Tape {
        config: case.config.clone(),
        options: options(case),
        ..Tape::default()
    };
    let run = run::run(case, postgres, engines, Settling::Quiet, &mut tape)?;
    let records = run.masked().remove(0);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(&case.name);
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let lines = |lines: Vec<Value>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    // The port changes from run to run and says nothing.
    let connector = case.connector(ENGINE, 5432, &tape.database);
    let about = json!({ "title": case.title, "server_version": tape.server_version, "run_ms": tape.run_ms, "config": connector });
    let files = [
        ("case.json", format!("{about:#}\n")),
        ("rows.jsonl", lines(tape.rows)),
        ("catalog.jsonl", lines(tape.catalog)),
        ("wal.jsonl", lines(tape.wal)),
        (
            "records.jsonl",
            lines(records.iter().map(PlainRecord::to_json).collect()),
        ),
    ];
    for (name, content) in files {
        fs::write(folder.join(name), content).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

const ENGINE: &str = "debezium";

/// The slot that keeps the WAL for the recording; nobody reads it before the end.
fn slot(database: &Database) -> String {
    format!("{}_tape", database.name())
}

/// What pgoutput is asked for, as arguments of SQL.
fn options(case: &Case) -> String {
    let connector = case.connector(ENGINE, 5432, &case.name);
    let text = |name: &str| connector.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut options = format!(
        "'proto_version', '1', 'publication_names', '{}', 'messages', 'true'",
        text("publication.name")
    );
    for (name, value) in text("slot.stream.params")
        .split(';')
        .filter_map(|pair| pair.split_once('='))
    {
        options += &format!(", '{name}', '{value}'");
    }
    options
}

#[derive(Default)]
struct Tape {
    /// The case's own properties.
    config: BTreeMap<String, String>,
    /// As in [`options`].
    options: String,
    database: String,
    server_version: String,
    /// Begin and end; what happened between them is masked where it says when.
    run_ms: (i64, i64),
    rows: Vec<Value>,
    catalog: Vec<Value>,
    wal: Vec<Value>,
}

impl Observer for Tape {
    fn set_up(&mut self, database: &Database) {
        let sql = database.sql();
        self.database = database.name().into();
        self.run_ms.0 = now_ms();
        self.server_version = sql.value("show server_version_num").unwrap_or_default();
        // Whoever decodes the WAL gives values their text; Walferry's connections have these settings.
        sql.run(
            "set DateStyle = 'ISO'; set IntervalStyle = 'postgres'; set extra_float_digits = 3;
             set bytea_output = 'hex'; set TimeZone = 'UTC'",
        );
        for table in sql.rows(TABLES) {
            let [Some(schema), Some(name), Some(quoted)] = &table[..] else {
                unreachable!("the query has three columns, none of them null")
            };
            let chosen = format!("snapshot.select.statement.overrides.{schema}.{name}");
            let rows = match self.config.get(&chosen) {
                Some(select) => sql.rows(select),
                None => sql.rows(&format!("select * from {quoted}")),
            };
            self.rows.extend(
                rows.into_iter()
                    .map(|row| json!({ "schema": schema, "table": name, "row": row })),
            );
        }
        self.learn(database);
    }

    fn streaming(&mut self, database: &Database) {
        // Only now: pgoutput sees the catalog as of a change, and Debezium has just made the publication.
        database.sql().run(&format!(
            "select pg_create_logical_replication_slot('{}', 'pgoutput')",
            slot(database)
        ));
    }

    fn changed(&mut self, database: &Database) {
        self.learn(database);
    }

    fn finished(&mut self, database: &Database) {
        self.run_ms.1 = now_ms();
        let frames = database.sql().rows(&format!(
            "select (lsn - '0/0')::text, encode(data, 'hex') from pg_logical_slot_peek_binary_changes('{}', null, null, {})",
            slot(database),
            self.options,
        ));
        let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<u64>().ok());
        self.wal = frames
            .iter()
            .map(|frame| json!({ "lsn": number(&frame[0]), "message": frame[1] }))
            .collect();
    }
}

impl Tape {
    /// Notes the catalog: it is good for every relation message up to the present end of the WAL.
    fn learn(&mut self, database: &Database) {
        let facts = database
            .sql()
            .value(&CATALOG.replace("@user_tables@", TABLES_OIDS))
            .expect("the query has one row");
        self.catalog
            .push(serde_json::from_str(&facts).expect("Postgres writes JSON"));
    }
}

/// Tables of users, by schema and name; the two together as SQL names it.
const TABLES: &str = "\
select n.nspname, c.relname, format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname !~ '^(pg_|information_schema$)' order by 1, 2";

const TABLES_OIDS: &str = "\
select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname !~ '^(pg_|information_schema$)'";

/// One JSON object: `wal_end`, `tables` and `types`, with the names of `walferry_event::catalog`.
const CATALOG: &str = "\
with recursive user_tables as (@user_tables@),
reached(oid) as (
  select a.atttypid from pg_attribute a join user_tables u on u.oid = a.attrelid where a.attnum > 0 and not a.attisdropped
  union
  select made_of from reached r join pg_type t on t.oid = r.oid left join pg_range g on g.rngtypid = t.oid,
    lateral (values (t.typelem), (t.typbasetype), (g.rngsubtype)) as parts(made_of)
  where made_of <> 0
)
select json_build_object(
  'wal_end', pg_current_wal_insert_lsn() - '0/0',
  'tables', (
    select coalesce(json_agg(json_build_object(
      'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'comment', obj_description(c.oid, 'pg_class'),
      'columns', (
        select json_agg(json_build_object(
          'name', a.attname, 'number', a.attnum, 'type_oid', a.atttypid::int8, 'type_modifier', a.atttypmod,
          'not_null', a.attnotnull, 'default', pg_get_expr(d.adbin, d.adrelid), 'generated', a.attgenerated <> '',
          'identity', a.attidentity <> '', 'comment', col_description(c.oid, a.attnum)) order by a.attnum)
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
      'indexes', (
        select coalesce(json_agg(json_build_object('primary', i.indisprimary, 'columns', (
          select json_agg(a.attname order by k.place)
          from unnest(i.indkey) with ordinality as k(number, place)
          join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
          where k.place <= i.indnkeyatts or not i.indisprimary)) order by not i.indisclustered, ic.relname), '[]')
        from pg_index i join pg_class ic on ic.oid = i.indexrelid
        where i.indrelid = c.oid and i.indisunique and i.indexprs is null)
    ) order by n.nspname, c.relname), '[]')
    from user_tables u join pg_class c on c.oid = u.oid join pg_namespace n on n.oid = c.relnamespace),
  'types', (
    select coalesce(json_agg(json_build_object(
      'oid', t.oid::int8, 'schema', n.nspname, 'name', t.typname, 'kind', t.typtype,
      'on_path', n.nspname = any (current_schemas(true)),
      'element', case when t.typcategory = 'A' then t.typelem::int8 end, 'delimiter', e.typdelim,
      'base', nullif(t.typbasetype, 0)::int8, 'modifier', t.typtypmod, 'not_null', t.typnotnull,
      'subtype', g.rngsubtype::int8,
      'labels', (select json_agg(enumlabel order by enumsortorder) from pg_enum where enumtypid = t.oid)
    ) order by t.oid), '[]')
    from (select distinct oid from reached) r join pg_type t on t.oid = r.oid
    join pg_namespace n on n.oid = t.typnamespace
    left join pg_type e on e.oid = t.typelem left join pg_range g on g.rngtypid = t.oid)
)";
