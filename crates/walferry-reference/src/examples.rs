//! Pages of transforms, predicates and converters, with examples that are run through the real crates when the pages are written.
//!
//! An example is data: `docs/examples/<page>.toml`. `docs/examples/README.md` says what may stand in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use walferry_config::{
    Connector, Findings, Nowhere, Options, Submitted, Worker,
    connector::{ConverterPlugin, Plugins},
    options_markdown,
};
use walferry_converter::{
    Converter, ConverterType, Encoded, RecordPart, WrittenHeaders, classes, converter, registry::PreviewRegistry,
};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeFacts, TypeKind};
use walferry_event::{Context, EventSettings, Messages, TablePlan};
use walferry_pgoutput::{
    Change, Column, LogicalMessage, Lsn, Oid, OldTuple, Operation, Relation, RelationColumn, ReplicaIdentity, TupleBuf,
    Xid,
};
use walferry_record::{Record, SchemaAndValue, outline};
use walferry_transform::{Chain, Hypertables, Outcome, ReadBefore, TableId, all_predicates, all_transforms};

use crate::{Page, root};

const FOLDER: &str = "docs/examples";
const WRITTEN: &str = "<!-- Written by `cargo xtask docs`, which runs the examples; a test fails when it is stale. -->";

/// What every example's connector has, beside its own properties.
const BASE: &str = "\
name=docs
connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
database.hostname=db.example
database.user=walferry
database.dbname=shop
topic.prefix=shop
extended.headers.enabled=false
";
/// 2024-05-06T07:08:09.123Z
const NOW_MS: i64 = 1_714_979_289_123;

/// A file of examples.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The class that the page is about, without the side.
    class: String,
    /// What it does, in two plain sentences.
    about: String,
    /// What differs from Kafka Connect or Debezium.
    differs: Option<String>,
    #[serde(default)]
    example: Vec<Example>,
}

/// One example.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    title: String,
    /// What a reader should look at.
    text: Option<String>,
    /// Properties of the connector, as they stand in a file.
    config: String,
    /// A table of `tables.toml`.
    #[serde(default = "orders")]
    table: String,
    #[serde(default)]
    change: Kind,
    /// Values that differ from the table's own; `\N` is null.
    #[serde(default)]
    row: BTreeMap<String, String>,
    /// Values before an update that differ from those after it.
    #[serde(default)]
    before: BTreeMap<String, String>,
    /// The content of a message.
    content: Option<String>,
    /// Whether the record goes through the transforms behind the one that is shown, too.
    #[serde(default)]
    whole: bool,
}

fn orders() -> String {
    "orders".to_owned()
}

fn public() -> String {
    "public".to_owned()
}

/// What happens to the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Insert,
    Update,
    Delete,
    Message,
}

/// A table of `tables.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// `[name, type, value]`; the first columns, `key` of them, are the primary key.
    columns: Vec<(String, String, String)>,
    key: usize,
    /// Its schema.
    #[serde(default = "public")]
    schema: String,
}

/// What a page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Transform,
    Predicate,
    Converter,
}

struct Class {
    subject: Subject,
    name: &'static str,
    sides: bool,
    /// What the declarations say of it, and its options.
    options: Option<walferry_config::Group>,
}

fn all_classes() -> Vec<Class> {
    let of = |subject| {
        move |known: walferry_transform::Documented| Class {
            subject,
            name: known.class,
            sides: known.sides,
            options: Some(known.options),
        }
    };
    let transforms = all_transforms().map(of(Subject::Transform));
    let predicates = all_predicates().map(of(Subject::Predicate));
    let converters = classes().map(|(name, group)| Class {
        subject: Subject::Converter,
        name,
        sides: false,
        options: group.copied(),
    });
    transforms.chain(predicates).chain(converters).collect()
}

/// A page for each class, and one that lists them.
pub(super) fn pages() -> Result<Vec<Page>, String> {
    let folder = root().join(FOLDER);
    let tables: BTreeMap<String, Table> = read(&folder.join("tables.toml"))?;
    let mut files = Vec::new();
    let entries = fs::read_dir(&folder).map_err(|error| format!("{FOLDER}: {error}"))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{FOLDER}: {error}"))?.path();
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default()
            .to_owned();
        if path.extension().is_some_and(|extension| extension == "toml") && stem != "tables" {
            files.push((stem, read::<File>(&path)?));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    let known = all_classes();
    let mut problems = Vec::new();
    for (stem, file) in &files {
        if !known.iter().any(|class| class.name == file.class) {
            problems.push(format!(
                "{FOLDER}/{stem}.toml is about {}, which does not exist",
                file.class
            ));
        }
    }
    let mut pages = Vec::new();
    let mut listed = Vec::new();
    for class in &known {
        let simple = class.name.rsplit('.').next().unwrap_or(class.name);
        let mut found = files.iter().filter(|(_, file)| file.class == class.name);
        match (found.next(), found.next()) {
            (Some((stem, file)), None) if !file.example.is_empty() => {
                let text =
                    page(class, stem, file, &tables).map_err(|problem| format!("{FOLDER}/{stem}.toml: {problem}"))?;
                pages.push(Page {
                    path: format!("{}/{stem}.md", place(class.subject)).into(),
                    text,
                });
                listed.push((class, stem, file));
            }
            (Some((stem, _)), None) => problems.push(format!("{FOLDER}/{stem}.toml has no example")),
            (None, _) => {
                let taken = files.iter().any(|(stem, _)| stem == simple);
                let free = if taken {
                    " under another name, as that one is taken"
                } else {
                    ""
                };
                problems.push(format!(
                    "{} has no example: write {FOLDER}/{simple}.toml{free}",
                    class.name
                ));
            }
            (Some((first, _)), Some((second, _))) => {
                problems.push(format!("{FOLDER}/{first}.toml and {second}.toml are about one class"));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    pages.push(Page {
        path: "docs/reference/transforms/README.md".into(),
        text: index(&listed),
    });
    Ok(pages)
}

const fn place(subject: Subject) -> &'static str {
    match subject {
        Subject::Transform => "docs/reference/transforms",
        Subject::Predicate => "docs/reference/predicates",
        Subject::Converter => "docs/reference/converters",
    }
}

/// The folders in which nothing but pages of examples stands.
#[cfg(test)]
pub(super) fn folders() -> [&'static str; 3] {
    [Subject::Transform, Subject::Predicate, Subject::Converter].map(place)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn index(listed: &[(&Class, &String, &File)]) -> String {
    let mut text = format!(
        "# Transforms, predicates and converters\n\n{WRITTEN}\n\nEach page has the options of the class, and examples: a record before \
         the class is applied, the configuration, and the record afterwards. `cargo xtask docs` runs the examples with Walferry's own \
         code and writes the resulting records into the pages. [How to see the records of your own \
         connector](../../how-to/see-the-records.md) describes how to do the same with your tables.\n\nIn the examples, the connector has \
         the topic prefix `shop` and `extended.headers.enabled=false`, so records have no headers unless a transform adds some. Records \
         are shown as JSON without schemas; if a transform changes a schema, it is shown, too. `\"source\": {{ … }}` stands for an \
         unchanged source block of a change event. `(null)` is Kafka's null, as in the value of a tombstone; `null` is the four bytes of \
         JSON text.\n"
    );
    for (subject, title) in [
        (Subject::Transform, "Transforms"),
        (Subject::Predicate, "Predicates"),
        (Subject::Converter, "Converters"),
    ] {
        let _ = write!(
            text,
            "\n## {title}\n\n| page | class | what it does |\n| --- | --- | --- |\n"
        );
        let mut rows: Vec<String> = Vec::new();
        for (class, stem, file) in listed.iter().filter(|(class, ..)| class.subject == subject) {
            let folder = match subject {
                Subject::Transform => "",
                Subject::Predicate => "../predicates/",
                Subject::Converter => "../converters/",
            };
            let about = file.about.split(". ").next().unwrap_or_default().trim_end_matches('.');
            rows.push(format!(
                "| [{stem}]({folder}{stem}.md) | `{}` | {about}. |\n",
                class.name
            ));
        }
        rows.sort();
        text.extend(rows);
    }
    text
}

fn page(class: &Class, stem: &str, file: &File, tables: &BTreeMap<String, Table>) -> Result<String, String> {
    let mut text = format!("# {stem}\n\n{WRITTEN}\n\n{}\n\n", file.about.trim());
    match class.sides {
        true => {
            let _ = writeln!(
                text,
                "Class: `{0}$Key` for the key of records, `{0}$Value` for their values.",
                class.name
            );
        }
        false => {
            let _ = writeln!(text, "Class: `{}`", class.name);
        }
    }
    text.push_str("\n## Options\n\n");
    match &class.options {
        Some(group) if !group.declarations.is_empty() => {
            let _ = write!(
                text,
                "{}\n\nAll names have the prefix `{}`.\n\n{}\n",
                // Written for `configuration.md`, which is one folder higher.
                group.text.replace("](../", "](../../"),
                group.prefix,
                options_markdown(group)
            );
        }
        Some(group) => {
            let _ = writeln!(text, "{}", group.text);
        }
        None => text.push_str("It has none.\n"),
    }
    for example in &file.example {
        let outcome = show(class, example, tables).map_err(|problem| format!("{:?}: {problem}", example.title))?;
        let _ = write!(text, "\n## {}\n\n", example.title);
        if let Some(about) = &example.text {
            let _ = write!(text, "{}\n\n", about.trim());
        }
        let _ = write!(
            text,
            "```properties\n{}\n```\n\n{}\n",
            example.config.trim(),
            outcome.trim_end()
        );
    }
    if let Some(differs) = &file.differs {
        let _ = write!(text, "\n## Differences\n\n{}\n", differs.trim());
    }
    text.push_str(match class.subject {
        Subject::Transform => "\n[All transforms](README.md)\n",
        Subject::Predicate | Subject::Converter => {
            "\n[All transforms, predicates and converters](../transforms/README.md)\n"
        }
    });
    Ok(text)
}

/// Runs an example: what comes in and what goes out, for each record of the change.
fn show(class: &Class, example: &Example, tables: &BTreeMap<String, Table>) -> Result<String, String> {
    let connector = connector(example)?;
    let plugins = &connector.plugins;
    let at = place_of(class, plugins).ok_or("its configuration does not use the class")?;
    let mut input = Chains {
        chain: chain(plugins, at)?.0,
        converters: all_json()?,
    };
    let length = match class.subject {
        _ if example.whole => plugins.transforms.len(),
        Subject::Converter => at,
        _ => at + 1,
    };
    let converters = match class.subject {
        Subject::Converter => [
            configured(&plugins.key_converter, ConverterType::Key)?,
            configured(&plugins.value_converter, ConverterType::Value)?,
            configured(&plugins.header_converter, ConverterType::Header)?,
        ],
        _ => all_json()?,
    };
    let (chain, findings) = chain(plugins, length)?;
    let mut output = Chains { chain, converters };
    let mut text = String::new();
    for warning in findings.warnings() {
        let _ = write!(text, "Walferry logs a warning at the start: {warning}\n\n");
    }
    let settings = Arc::new(EventSettings::new(
        &connector,
        "1.0.0",
        "00000000-0000-0000-0000-000000000000",
    ));
    let (mut place, mut listed) = (0, 0);
    each_record(example, tables, &settings, &mut |record| {
        let name = match (example.change, place) {
            (Kind::Insert, _) => "an insert",
            (Kind::Update, _) => "an update",
            (Kind::Delete, 0) => "a delete",
            (Kind::Delete, _) => "its tombstone",
            (Kind::Message, _) => "a logical message",
        };
        place += 1;
        let before = match input.make(record.clone())? {
            Made::Record(before) => before,
            // It does not get as far as the class at hand.
            Made::Dropped(_) => return Ok(()),
            Made::Failed { what, .. } => return Err(format!("the record fails before it reaches the class: {what}")),
        };
        let after = output.make(record)?;
        written(&mut text, name, &before, after, class.subject);
        listed += 1;
        Ok(())
    })?;
    match listed {
        0 => Err("none of its records reaches the class".to_owned()),
        _ => Ok(text),
    }
}

/// The connector of an example, without a warning.
fn connector(example: &Example) -> Result<Connector, String> {
    let (submitted, _) = Submitted::read(&format!("{BASE}{}", example.config)).map_err(|error| error.to_string())?;
    let check = |_: &Plugins| Findings::default();
    let (connector, findings) = Connector::read(&submitted, None, &Worker::default(), &Nowhere, &check);
    if findings.has_problems() || findings.warnings().next().is_some() {
        return Err(texts(&findings));
    }
    connector.ok_or_else(|| texts(&findings))
}

/// How many transforms come before the class that the page is about.
fn place_of(class: &Class, plugins: &Plugins) -> Option<usize> {
    // Before the transform that the page is about, or that has its predicate; before nothing for a converter.
    let is_of = |written: &str| {
        let bare = written.strip_suffix("$Key").or_else(|| written.strip_suffix("$Value"));
        written == class.name || class.sides && bare == Some(class.name)
    };
    match class.subject {
        Subject::Transform => plugins.transforms.iter().rposition(|transform| is_of(&transform.class)),
        Subject::Predicate => plugins.transforms.iter().rposition(|transform| {
            let named = transform.predicate.as_ref();
            plugins
                .predicates
                .iter()
                .any(|predicate| named == Some(&predicate.name) && is_of(&predicate.class))
        }),
        Subject::Converter => Some(plugins.transforms.len()),
    }
}

/// A chain of the first transforms.
fn chain(plugins: &Plugins, length: usize) -> Result<(Chain, Findings), String> {
    let (chain, findings) = Chain::new(&plugins.transforms[..length], &plugins.predicates);
    let mut chain = chain.ok_or_else(|| texts(&findings))?;
    chain.attach(&mut || Arc::new(ReadBefore(hypertables())));
    Ok((chain, findings))
}

fn all_json() -> Result<[Box<dyn Converter>; 3], String> {
    Ok([
        json(ConverterType::Key)?,
        json(ConverterType::Value)?,
        json(ConverterType::Header)?,
    ])
}

/// What TimescaleDB's catalog says in the examples: a chunk of a hypertable, and one of a continuous aggregate's.
fn hypertables() -> Hypertables {
    const INTERNAL: &str = "_timescaledb_internal";
    let internal = |name: &str| TableId::new(INTERNAL, name);
    let public = |name: &str| TableId::new("public", name);
    let materialized = internal("_materialized_hypertable_2");
    Hypertables {
        chunks: [
            (internal("_hyper_1_5_chunk"), public("conditions")),
            (internal("_hyper_2_6_chunk"), materialized.clone()),
        ]
        .into(),
        aggregates: [(materialized, public("conditions_by_day"))].into(),
    }
}

fn texts(findings: &Findings) -> String {
    let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
    all.join("; ")
}

fn json(role: ConverterType) -> Result<Box<dyn Converter>, String> {
    let mut options = Options::default();
    options.set("schemas.enable", "false");
    let (converter, findings) = converter("JsonConverter", role, &options);
    converter.ok_or_else(|| texts(&findings))
}

fn configured(plugin: &ConverterPlugin, role: ConverterType) -> Result<Box<dyn Converter>, String> {
    let (converter, findings) = converter(&plugin.class, role, &plugin.options);
    let mut converter = converter.ok_or_else(|| texts(&findings))?;
    converter.attach(&mut |_| Arc::new(PreviewRegistry));
    Ok(converter)
}

/// A chain and its converters.
struct Chains {
    chain: Chain,
    converters: [Box<dyn Converter>; 3],
}

/// What became of a record.
enum Made {
    Record(Plain),
    Dropped(String),
    Failed { what: String, hint: Option<String> },
}

/// A record as a page shows it.
#[derive(PartialEq)]
struct Plain {
    topic: String,
    partition: Option<i32>,
    timestamp_ms: Option<i64>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    key_schema: String,
    value_schema: String,
}

impl Chains {
    fn make(&mut self, record: Record<'_>) -> Result<Made, String> {
        let record = match self.chain.apply(record) {
            Ok(Outcome::Record(record)) => record,
            Ok(Outcome::Dropped(reason)) => return Ok(Made::Dropped(reason.to_string())),
            Ok(Outcome::SetAside(record)) => {
                return Ok(Made::Failed {
                    what: record.why,
                    hint: record.hint,
                });
            }
            Ok(Outcome::Waits(waiting)) => return Err(format!("the record waits for {}", waiting.wait.need())),
            Err(error) => {
                let hint = error.hint();
                return Ok(Made::Failed {
                    what: format!("{error}: {}", error.error),
                    hint,
                });
            }
        };
        let [key, value, header] = &mut self.converters;
        let mut headers = Vec::new();
        // Converters of values may read the headers where they lie in the buffer.
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for named in &record.headers {
            let start = bytes.len();
            bytes.extend_from_slice(named.name.as_bytes());
            let name = start..bytes.len();
            let start = bytes.len();
            let encoded = header.encode(&record.topic, RecordPart::Header(&named.name), &named.value, &mut bytes);
            let value = match encoded.map_err(|error| error.to_string())? {
                Encoded::Null => None,
                Encoded::Bytes | Encoded::BytesWithHeaders => Some(start..bytes.len()),
            };
            headers.push((named.name.to_string(), value.clone().map(|place| bytes[place].to_vec())));
            places.push((name, value));
        }
        let mut part = |converter: &mut dyn Converter, part, typed: &SchemaAndValue<'_>| {
            let start = bytes.len();
            let encoded =
                converter.encode_with_headers(&record.topic, part, typed, WrittenHeaders::new(&places), &mut bytes);
            match encoded.map_err(|error| error.to_string())? {
                Encoded::Null => Ok::<_, String>(None),
                Encoded::Bytes => Ok(Some(bytes[start..].to_vec())),
                Encoded::BytesWithHeaders => {
                    let added = converter.added_headers().iter();
                    headers.extend(added.map(|(name, value)| (name.to_owned(), Some(value.to_vec()))));
                    Ok(Some(bytes[start..].to_vec()))
                }
            }
        };
        let (key, value) = (
            part(&mut **key, RecordPart::Key, &record.key)?,
            part(&mut **value, RecordPart::Value, &record.value)?,
        );
        Ok(Made::Record(Plain {
            key,
            value,
            topic: record.topic.to_string(),
            partition: record.partition,
            timestamp_ms: record.timestamp_ms,
            headers,
            key_schema: outline(record.key.schema.as_deref()),
            value_schema: outline(record.value.schema.as_deref()),
        }))
    }
}

/// Makes the records of a change and hands each on.
fn each_record(
    example: &Example,
    tables: &BTreeMap<String, Table>,
    settings: &Arc<EventSettings>,
    take: &mut dyn FnMut(Record<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let context = Context {
        lsn: Some(Lsn(0x16B_3748)),
        last_commit_lsn: None,
        xid: Some(Xid(750)),
        source_time_ns: (NOW_MS - 100) * 1_000_000,
        processed_time_ns: NOW_MS * 1_000_000,
        xmin: None,
        origin: None,
        snapshot: None,
    };
    if example.change == Kind::Message {
        let content = example.content.as_deref().ok_or("a message needs its `content`")?;
        let message = LogicalMessage {
            transactional: true,
            lsn: Lsn(0x16B_3748),
            prefix: "app",
            content: content.as_bytes(),
        };
        let messages = Messages::new(settings);
        let record = messages
            .record(&message, &context, None)
            .ok_or("its prefix is left out")?;
        return take(record);
    }
    let table = tables
        .get(&example.table)
        .ok_or_else(|| format!("tables.toml has no table {:?}", example.table))?;
    let (relation, catalog) = described(&example.table, table)?;
    let plan = TablePlan::new(settings, &relation, Some(&catalog)).map_err(|error| error.to_string())?;
    let known = |name: &String| table.columns.iter().any(|(column, ..)| column == name);
    if let Some(name) = example
        .row
        .keys()
        .chain(example.before.keys())
        .find(|name| !known(name))
    {
        return Err(format!("table {:?} has no column {name:?}", example.table));
    }
    let row = |differing: &[&BTreeMap<String, String>]| {
        let columns = table.columns.iter().map(|(name, _, value)| {
            let differing = differing.iter().find_map(|values| values.get(name));
            match differing.unwrap_or(value).as_str() {
                "\\N" => Column::Null,
                text => Column::Text(text.as_bytes()),
            }
        });
        TupleBuf::new(columns).map_err(|error| error.to_string())
    };
    let (new, old) = (row(&[&example.row])?, row(&[&example.before, &example.row])?);
    let operation = match example.change {
        Kind::Insert | Kind::Message => Operation::Insert { new: new.as_tuple() },
        Kind::Update => Operation::Update {
            old: (!example.before.is_empty()).then(|| OldTuple::Full(old.as_tuple())),
            new: new.as_tuple(),
        },
        Kind::Delete => Operation::Delete {
            old: OldTuple::Full(old.as_tuple()),
        },
    };
    let change = Change {
        relation: relation.oid,
        operation,
    };
    let outcome = plan
        .records(&change, &context, None)
        .map_err(|error| error.to_string())?;
    outcome.records.into_iter().try_for_each(take)
}

/// A table as the stream and the catalog describe it.
fn described(name: &str, table: &Table) -> Result<(Relation, Catalog), String> {
    let mut types = Vec::new();
    let mut columns = Vec::new();
    for (place, (column, written, _)) in table.columns.iter().enumerate() {
        let (type_oid, type_modifier) = type_of(written, &mut types)?;
        columns.push(ColumnFacts {
            type_modifier,
            not_null: place < table.key,
            ..ColumnFacts::plain(
                column.as_str(),
                i16::try_from(place + 1).map_err(|error| error.to_string())?,
                type_oid,
            )
        });
    }
    let relation = Relation {
        oid: Oid(50_000),
        namespace: table.schema.clone(),
        name: name.to_owned(),
        replica_identity: ReplicaIdentity::Full,
        columns: columns
            .iter()
            .map(|column| RelationColumn {
                name: column.name.clone(),
                part_of_key: true,
                type_oid: column.type_oid,
                type_modifier: column.type_modifier,
            })
            .collect(),
    };
    let facts = TableFacts {
        oid: relation.oid,
        schema: relation.namespace.clone(),
        name: relation.name.clone(),
        primary_key: columns
            .iter()
            .take(table.key)
            .map(|column| column.name.clone())
            .collect(),
        columns,
        unique_indexes: Vec::new(),
        comment: None,
        partition: false,
    };
    let catalog = Catalog {
        table: Some(facts),
        types,
    };
    Ok((relation, catalog))
}

/// Types that the examples use, with their fixed ids; others are those of extensions.
const TYPES: &[(&str, u32)] = &[
    ("boolean", 16),
    ("bytea", 17),
    ("bigint", 20),
    ("int", 23),
    ("text", 25),
    ("json", 114),
    ("double precision", 701),
    ("point", 600),
    ("text[]", 1009),
    ("date", 1082),
    ("time", 1083),
    ("timestamp", 1114),
    ("timestamptz", 1184),
    ("numeric", 1700),
    ("uuid", 2950),
    ("jsonb", 3802),
];

fn type_of(written: &str, types: &mut Vec<TypeFacts>) -> Result<(Oid, i32), String> {
    let (name, modifier) = match written.split_once('(') {
        Some((name, arguments)) => (name, modifier(name, arguments)?),
        None => (written, -1),
    };
    let fixed = TYPES.iter().find(|(known, _)| *known == name).map(|(_, oid)| Oid(*oid));
    if let Some(oid) = fixed {
        let element = name
            .strip_suffix("[]")
            .and_then(|element| TYPES.iter().find(|(known, _)| *known == element));
        if let Some((_, element)) = element {
            types.push(TypeFacts {
                oid,
                schema: "pg_catalog".to_owned(),
                name: name.to_owned(),
                on_path: true,
                kind: TypeKind::Array {
                    element: Oid(*element),
                    delimiter: ',',
                },
            });
        }
        return Ok((oid, modifier));
    }
    let oid = Oid(60_000 + u32::try_from(types.len()).unwrap_or_default());
    types.push(TypeFacts {
        oid,
        schema: "public".to_owned(),
        name: name.to_owned(),
        on_path: true,
        kind: TypeKind::Base,
    });
    Ok((oid, modifier))
}

/// `atttypmod` of `numeric(p,s)`, or of a type with one number.
fn modifier(name: &str, arguments: &str) -> Result<i32, String> {
    let numbers: Result<Vec<i32>, _> = arguments
        .trim_end_matches(')')
        .split(',')
        .map(|n| n.trim().parse())
        .collect();
    match (name, numbers.as_deref()) {
        ("numeric", Ok([precision, scale])) => Ok((precision << 16 | scale) + 4),
        (_, Ok([number])) => Ok(*number),
        _ => Err(format!("the type {name}({arguments} is not supported")),
    }
}

/// Writes a record before and after.
fn written(text: &mut String, name: &str, before: &Plain, after: Made, subject: Subject) {
    let after = match after {
        Made::Record(after) => after,
        Made::Dropped(reason) => {
            let _ = write!(text, "In: {name}\n\n{}", Block::alone(before).text());
            let _ = write!(
                text,
                "Out: nothing. The record is dropped and counted (`{reason}`).\n\n"
            );
            return;
        }
        Made::Failed { what, hint } => {
            let _ = write!(text, "In: {name}\n\n{}", Block::alone(before).text());
            let _ = write!(text, "Out: an error of the record.\n\n```text\ncause: {what}\n");
            if let Some(hint) = hint {
                let _ = writeln!(text, "hint:  {hint}");
            }
            text.push_str("```\n\n");
            return;
        }
    };
    if *before == after {
        let _ = write!(text, "In: {name}\n\n{}", Block::alone(before).text());
        text.push_str("Out: the same record.\n\n");
        return;
    }
    let source = |record: &Plain| {
        let json: serde_json::Value = serde_json::from_slice(record.value.as_deref()?).ok()?;
        json.get("source").cloned()
    };
    let is_changed = source(&after).is_some_and(|after| source(before) != Some(after));
    // What a converter has written shows its schema itself.
    let schemas = subject != Subject::Converter;
    let mut into = Block {
        schemas: schemas.then_some(&after),
        short_source: !is_changed,
        ..Block::alone(before)
    };
    // The schema of a change event is known, and no matter where the event is not one any more.
    into.is_event = before.value_schema.contains(".Envelope v") && !after.value_schema.contains(".Envelope v");
    let out = Block {
        schemas: schemas.then_some(before),
        short_source: !is_changed,
        before: Some(before),
        ..Block::alone(&after)
    };
    let _ = write!(text, "In: {name}\n\n{}Out:\n\n{}", into.text(), out.text());
}

/// A record as a page shows it.
struct Block<'r> {
    record: &'r Plain,
    /// The record whose schemas are compared: those that differ are shown.
    schemas: Option<&'r Plain>,
    /// The record that came in: what is as it was there is not shown again.
    before: Option<&'r Plain>,
    short_source: bool,
    is_event: bool,
}

impl<'r> Block<'r> {
    const fn alone(record: &'r Plain) -> Self {
        Self {
            record,
            schemas: None,
            before: None,
            short_source: true,
            is_event: false,
        }
    }

    fn text(&self) -> String {
        let record = self.record;
        let mut text = String::from("```text\n");
        let mut part = |name: &str, value: &str| {
            let _ = writeln!(text, "{name:<13}{}", value.replace('\n', "\n             "));
        };
        let text_of = |bytes: &Option<Vec<u8>>, before: Option<&Option<Vec<u8>>>| {
            let text = readable(bytes.as_deref(), self.short_source);
            match before == Some(bytes) && text.contains('\n') {
                true => "unchanged".to_owned(),
                false => text,
            }
        };
        part("topic", &record.topic);
        if let Some(partition) = record.partition {
            part("partition", &partition.to_string());
        }
        if let Some(timestamp) = record.timestamp_ms {
            part("timestamp", &timestamp.to_string());
        }
        part("key", &text_of(&record.key, self.before.map(|before| &before.key)));
        let headers = record.headers.iter();
        let headers: Vec<String> = headers
            .map(|(name, value)| format!("{name} = {}", readable(value.as_deref(), false)))
            .collect();
        if !headers.is_empty() {
            part("headers", &headers.join("\n"));
        }
        part(
            "value",
            &text_of(&record.value, self.before.map(|before| &before.value)),
        );
        if self.schemas.is_some_and(|other| other.key_schema != record.key_schema) {
            part("key schema", &record.key_schema);
        }
        if self
            .schemas
            .is_some_and(|other| other.value_schema != record.value_schema)
        {
            match (self.is_event, record.value_schema.lines().next()) {
                (true, Some(first)) => part("value schema", &format!("{first} (as in every change event)")),
                _ => part("value schema", &record.value_schema),
            }
        }
        text.push_str("```\n\n");
        text
    }
}

fn readable(bytes: Option<&[u8]>, short_source: bool) -> String {
    const SHORT: &str = "{ … }";
    let bytes = match bytes {
        None => return "(null)".to_owned(),
        Some([]) => return "(empty)".to_owned(),
        Some(bytes) => bytes,
    };
    let Some(text) = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains(char::is_control))
    else {
        return bytes
            .iter()
            .fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}"));
    };
    let Ok(mut json) = serde_json::from_str::<serde_json::Value>(text) else {
        return text.to_owned();
    };
    if !text.starts_with('{') || text.len() < 60 {
        return text.to_owned();
    }
    if let Some(source) = json
        .get_mut("source")
        .filter(|source| short_source && source.is_object())
    {
        *source = SHORT.into();
    }
    let pretty = serde_json::to_string_pretty(&json).unwrap_or_default();
    pretty.replace(&format!("\"{SHORT}\""), SHORT)
}
