//! The replication slot and the publication.

use std::collections::BTreeMap;
use std::time::Duration;

use super::relay;
use crate::name::SlotName;
use crate::property::{Group, Property, Support};
use crate::reader::Reader;
use crate::regex::JavaRegex;
use crate::value::{Value, ValueError};
use crate::{choices, properties};

/// The replication slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSection {
    /// `slot.name`
    pub name: SlotName,
    /// `slot.drop.on.stop`: only at an orderly stop.
    pub drop_on_stop: bool,
    /// `slot.failover`: for Postgres 17 and later, when the slot is created.
    pub failover: bool,
    /// `slot.stream.params`: further options of START_REPLICATION.
    pub stream_params: BTreeMap<String, String>,
    /// `internal.create.slot.command.timeout`
    pub create_timeout: Duration,
    /// `slot.max.retries` times `slot.retry.delay.ms`: how long another process that is alive may read the slot.
    pub patience: Duration,
}

/// The publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationSection {
    /// `publication.name`
    pub name: String,
    /// `publication.autocreate.mode`
    pub autocreate: PublicationAutocreate,
    /// `publish.via.partition.root`: when the publication is created.
    pub via_partition_root: bool,
    /// `walferry.publication.uncertain`
    pub uncertain: UncertainPublication,
    /// `replica.identity.autoset.values`: which tables get which replica identity at the start.
    pub replica_identities: Vec<ReplicaIdentityRule>,
}

choices! {
    /// Who makes the publication.
    pub enum PublicationAutocreate {
        /// Made for all tables if it is missing.
        #[default]
        AllTables = "all_tables",
        /// Must be there.
        Disabled = "disabled",
        /// Made for the captured tables, and kept in step with them.
        Filtered = "filtered",
        /// Made empty if it is missing.
        NoTables = "no_tables",
    }
}

choices! {
    /// What happens when nobody can tell whether the publication has left out changes.
    pub enum UncertainPublication {
        /// A warning: the connector goes on.
        #[default]
        Continue = "continue",
        /// The connector waits at a gap.
        Gap = "gap",
    }
}

/// One entry of `replica.identity.autoset.values`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaIdentityRule {
    /// Which tables, as `schema.table`.
    pub tables: JavaRegex,
    /// What they get.
    pub identity: AutosetIdentity,
}

/// What `ALTER TABLE … REPLICA IDENTITY` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AutosetIdentity {
    /// The primary key.
    Default,
    /// All columns.
    Full,
    /// None.
    Nothing,
    /// The columns of a unique index.
    Index(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StreamParams(BTreeMap<String, String>);

impl Value for StreamParams {
    const TYPE: &'static str = "pairs";
    fn parse(text: &str) -> Result<Self, ValueError> {
        let pairs = text.split(';').map(str::trim).filter(|pair| !pair.is_empty());
        pairs.map(stream_param).collect::<Result<_, _>>().map(Self)
    }
}

fn stream_param(pair: &str) -> Result<(String, String), ValueError> {
    /// Options that Walferry sets itself. The server refuses an option that is given twice.
    const OURS: [&str; 3] = ["proto_version", "publication_names", "messages"];
    /// Options of later protocol versions that change the format of the stream. They are accepted only if they are off.
    const UNREAD: [&str; 3] = ["binary", "streaming", "two_phase"];
    /// Postgres' words for it.
    const OFF: [&str; 4] = ["false", "off", "no", "0"];

    let (name, value) = pair
        .split_once('=')
        .ok_or_else(|| ValueError::new("a list of name=value pairs separated by ;"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_off = OFF.iter().any(|off| value.eq_ignore_ascii_case(off));
    if OURS.contains(&name) {
        return Err(
            ValueError::new(format!("a list without `{name}`, which Walferry sets itself")).hint(format!(
                "remove `{name}`: Walferry reads the stream with protocol version 1, with messages"
            )),
        );
    }
    if UNREAD.contains(&name) && !is_off {
        return Err(
            ValueError::new(format!("a list without `{name}={value}`")).hint(format!(
                "remove `{name}`: Walferry reads values as text, and transactions after they are committed"
            )),
        );
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReplicaIdentityRules(Vec<ReplicaIdentityRule>);

impl Value for ReplicaIdentityRules {
    const TYPE: &'static str = "list of table:identity";
    fn parse(text: &str) -> Result<Self, ValueError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(replica_identity_rule).collect::<Result<_, _>>().map(Self)
    }
    fn named(self, property: &str) -> Self {
        let rules = self.0.into_iter().map(|rule| ReplicaIdentityRule {
            tables: rule.tables.named(property),
            ..rule
        });
        Self(rules.collect())
    }
}

fn replica_identity_rule(entry: &str) -> Result<ReplicaIdentityRule, ValueError> {
    let malformed = || {
        ValueError::new(format!(
            "a list of table:DEFAULT, table:FULL, table:NOTHING or table:INDEX name ({entry:?})"
        ))
    };
    let (tables, identity) = entry.split_once(':').ok_or_else(malformed)?;
    let (word, index) = identity.trim().split_once(' ').unwrap_or((identity.trim(), ""));
    let identity = match (word.to_ascii_uppercase().as_str(), index.trim()) {
        ("DEFAULT", "") => AutosetIdentity::Default,
        ("FULL", "") => AutosetIdentity::Full,
        ("NOTHING", "") => AutosetIdentity::Nothing,
        ("INDEX", index) if !index.is_empty() => AutosetIdentity::Index(index.to_owned()),
        _ => return Err(malformed()),
    };
    let tables = JavaRegex::ignoring_case(tables.trim())
        .map_err(|error| ValueError::new(format!("a regular expression: {error} of {tables:?}")))?;
    Ok(ReplicaIdentityRule { tables, identity })
}

/// `plugin.name`: there is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pgoutput;

impl Value for Pgoutput {
    const TYPE: &'static str = "enum";
    const VALUES: &'static [&'static str] = &["pgoutput"];
    fn parse(text: &str) -> Result<Self, ValueError> {
        match text.eq_ignore_ascii_case("pgoutput") {
            true => Ok(Self),
            false => Err(ValueError::new("pgoutput, the plugin that is part of Postgres and the only one that Walferry supports").hint(
                "set plugin.name=pgoutput and a new slot.name (a slot keeps the plugin it was created with), and drop the old slot when \
                 nothing reads it any more",
            )),
        }
    }
}

properties! {
    pub(super) const PLUGIN_NAME: Property<Pgoutput> = Property::new("plugin.name").default("pgoutput")
        .text("Plugin that decodes the WAL. Walferry supports `pgoutput`, which is part of Postgres. It does not support Debezium's \
               default `decoderbufs` or the old `wal2json`, which have to be installed on the server.");
    const SLOT_NAME: Property<SlotName> = Property::new("slot.name").default("debezium")
        .text("Name of the logical replication slot. It is created at the first start if it does not exist. Two connectors must not share \
               a slot. If you change the name, Walferry starts with a new slot and does not read the changes that only the old slot \
               holds.");
    const DROP_ON_STOP: Property<bool> = Property::new("slot.drop.on.stop").default("false")
        .text("Drops the slot at an orderly stop. Changes between the stop and the next start are lost, so use it only for tests.");
    const FAILOVER: Property<bool> = Property::new("slot.failover").default("false")
        .text("Creates a slot that standbys with Postgres 17 or later synchronize. On an older server or on a standby, the new slot is an \
               ordinary one; a slot that already exists is not changed.");
    const STREAM_PARAMS: Property<StreamParams> = Property::new("slot.stream.params").example("origin=none")
        .text("Additional options of pgoutput for START_REPLICATION: `name=value` pairs, separated by `;`. `origin=none` (Postgres 16 or \
               later) excludes changes that the server itself received through replication.");
    const MAX_RETRIES: Property<Option<u32>> = Property::new("slot.max.retries").example("6")
        .text("How often Debezium retries while the slot is still in use; the default is 6. Walferry retries until the slot is free, or as \
               often as `errors.max.retries` says. Only if another Walferry process reads the slot, and offsets are in files, so that nothing \
               decides between the two, it gives up after so many times `slot.retry.delay.ms`.");
    const RETRY_DELAY: Property<Duration> = Property::new("slot.retry.delay.ms").default("10000")
        .text("Pause between these retries in Debezium. Walferry's pauses double from 0.1 s to 30 s; this one and `slot.max.retries` decide \
               how long it tries.");
    const CREATE_TIMEOUT: Property<super::postgres::Seconds> = Property::new("internal.create.slot.command.timeout").default("90")
        .text("Time limit for creating the slot or the publication, in seconds. An open transaction delays both; the log and `/ready` \
               name it. After this time, Walferry starts the creation again.");
    const SEEK: Property<bool> = Property::new("internal.slot.seek.to.known.offset.on.start").default("false")
        .text("Older form of `offset.mismatch.strategy=trust_offset`.")
        .support(Support::Refused { hint: "set offset.mismatch.strategy=trust_offset" });
    const PUBLICATION_NAME: Property<String> = Property::new("publication.name").default("dbz_publication")
        .text("Name of the publication, which determines the tables whose changes the slot delivers.");
    const AUTOCREATE: Property<PublicationAutocreate> = Property::new("publication.autocreate.mode").default("all_tables")
        .text("How the publication is created. `all_tables` creates one for all tables; this needs a superuser, and updates of tables \
               without a key then fail. `filtered` creates one for the captured tables and changes it when the captured tables change; \
               the role must own these tables. `no_tables` creates an empty publication. `disabled` expects that the publication exists.");
    const VIA_PARTITION_ROOT: Property<bool> = Property::new("publish.via.partition.root").default("false")
        .text("Whether rows of partitions are sent as rows of the partitioned table. It has an effect only if Walferry creates the \
               publication.");
    const UNCERTAIN: Property<UncertainPublication> = Property::new("walferry.publication.uncertain").default("continue")
        .text("What happens when the publication differs from the last look in a way that may have left out changes, but need not, such as \
               after `ALTER PUBLICATION … SET TABLE` with another column list. Walferry warns and continues (`continue`), or waits at a gap \
               until somebody decides (`gap`). A difference that certainly left out changes, or that nothing explains, is a gap in any case. \
               This property is Walferry's own.");
    const REPLICA_IDENTITIES: Property<ReplicaIdentityRules> = Property::new("replica.identity.autoset.values").example("public\\.orders:FULL")
        .text("Sets the replica identity of tables at the start: `table:FULL`, `table:DEFAULT`, `table:NOTHING` or `table:INDEX name`, \
               separated by commas. Each table is a regular expression that matches `schema.table`.");
}

pub(super) const GROUP: Group = Group {
    title: "Slot and publication",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

/// The default of `slot.max.retries` in Debezium.
const DEBEZIUMS_RETRIES: u32 = 6;

pub(super) fn read(reader: &mut Reader<'_>) -> (SlotSection, PublicationSection) {
    reader.get(&PLUGIN_NAME);
    if !reader.is_set(&PLUGIN_NAME) && !relay::is_relay(reader.options()) {
        let finding = reader.warning(
            PLUGIN_NAME.name(),
            "is not set; Walferry uses pgoutput, but Debezium would use decoderbufs",
        );
        finding.hint("set plugin.name=pgoutput");
    }
    let slot = SlotSection {
        name: reader.get(&SLOT_NAME),
        drop_on_stop: reader.get(&DROP_ON_STOP),
        failover: reader.get(&FAILOVER),
        stream_params: reader.get(&STREAM_PARAMS).0,
        create_timeout: reader.get(&CREATE_TIMEOUT).get(),
        patience: reader
            .get(&RETRY_DELAY)
            .saturating_mul(reader.get(&MAX_RETRIES).unwrap_or(DEBEZIUMS_RETRIES)),
    };
    let publication = PublicationSection {
        name: reader.get(&PUBLICATION_NAME),
        autocreate: reader.get(&AUTOCREATE),
        via_partition_root: reader.get(&VIA_PARTITION_ROOT),
        uncertain: reader.get(&UNCERTAIN),
        replica_identities: reader.get(&REPLICA_IDENTITIES).0,
    };
    (slot, publication)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_identities_are_read_per_table() {
        let rules = ReplicaIdentityRules::parse("public\\.a:FULL, public.b.*:index b_idx,c:default")
            .unwrap()
            .0;
        let read: Vec<_> = rules
            .into_iter()
            .map(|rule| (rule.tables.as_str().to_owned(), rule.identity))
            .collect();
        let expected = [
            ("public\\.a".to_owned(), AutosetIdentity::Full),
            ("public.b.*".to_owned(), AutosetIdentity::Index("b_idx".to_owned())),
            ("c".to_owned(), AutosetIdentity::Default),
        ];
        assert_eq!(read, expected);
        for text in ["a", "a:SOME", "a:INDEX", "a:FULL x", "(:FULL"] {
            assert!(ReplicaIdentityRules::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stream_parameters_are_pairs() {
        let params = StreamParams::parse("origin=none; binary=false;").unwrap().0;
        assert_eq!(
            params,
            BTreeMap::from([
                ("binary".to_owned(), "false".to_owned()),
                ("origin".to_owned(), "none".to_owned())
            ])
        );
        assert!(StreamParams::parse("origin").is_err());
    }

    #[test]
    fn stream_parameters_that_would_change_how_the_stream_is_read_are_refused_by_name() {
        for refused in [
            "proto_version=2",
            "binary=true",
            "streaming=parallel",
            "two_phase=on",
            "messages=false",
            "publication_names=p",
        ] {
            let error = StreamParams::parse(&format!("origin=none;{refused}")).unwrap_err();
            let (name, _) = refused.split_once('=').unwrap();
            assert!(format!("{error:?}").contains(name), "{refused}: {error:?}");
        }
        assert!(StreamParams::parse("streaming=off;two_phase=false;origin=any").is_ok());
    }
}
