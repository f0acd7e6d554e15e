//! What converters need of a schema registry: the settings of its client, the requests, and how ids stand in a record.
//!
//! Nothing here opens a socket. The client lies in a crate of its own and implements [`Registry`].

mod apicurio;
mod confluent;
mod framing;
mod link;
mod linked;
mod naming;
mod options;
mod settings;

use std::fmt;

use walferry_record::Wait;

pub(crate) use apicurio::{DECLARATIONS as APICURIO, FRAMING as APICURIO_FRAMING, link as apicurio_link};
pub(crate) use confluent::{DECLARATIONS as CONFLUENT, link as confluent_link};
pub(crate) use framing::Framing;
pub(crate) use link::{Described, Referenced, RegistryLink, TopicIds};
pub(crate) use linked::RegistryConverter;
pub(crate) use naming::TypeName;
pub use settings::{Api, Auth, CertificateStore, ClientTls, Id, OAuth, Proxy, RegistrySettings};

/// A schema registry, as converters see it. It answers at once.
pub trait Registry: Send + Sync + fmt::Debug {
    /// The ids of a schema. If they are not known yet, requests them and returns a wait, which ends when they have arrived.
    fn ids(&self, request: &SchemaRequest) -> RegistryAnswer;

    /// Changes when the registry has lost schemas, so that ids returned before may be wrong.
    fn generation(&self) -> u64;
}

/// A registry that is not asked: every schema has the id 0. For previews, which must register nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct PreviewRegistry;

impl Registry for PreviewRegistry {
    fn ids(&self, _request: &SchemaRequest) -> RegistryAnswer {
        RegistryAnswer::Known(Ids {
            content: 0,
            global: 0,
            guid: Some(Guid::default()),
        })
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// What a registry says at once.
#[derive(Debug, Clone)]
pub enum RegistryAnswer {
    /// The ids.
    Known(Ids),
    /// They are on their way.
    Wait(Wait),
    /// The registry does not take the schema, or does not have it.
    Refused(RegistryRefusal),
}

/// What identifies a schema in a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// Of the content, wherever it is registered: Confluent's id, Apicurio's `contentId`.
    pub content: i64,
    /// Of this version of this artifact: Apicurio's `globalId`. With Confluent's interface there is one id.
    pub global: i64,
    /// The same in every registry, because it is computed from the schema. Only newer registries of Confluent tell it.
    pub guid: Option<Guid>,
}

/// A schema's id of sixteen bytes.
pub type Guid = [u8; 16];

/// Why a registry returns no id. The same request would be refused again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryRefusal {
    /// What the registry says, without a full stop.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A schema whose ids are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaRequest {
    /// Where it belongs.
    pub subject: Subject,
    /// Of what kind it is.
    pub kind: SchemaKind,
    /// Its text.
    pub schema: String,
    /// What to do if the registry does not have the schema, and which version to use.
    pub lookup: IdLookup,
    /// The types that the text only names. Each is a schema of its own, and belongs into the registry before this one.
    pub references: Vec<SchemaReference>,
}

/// A type that a schema refers to by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaReference {
    /// Its full name, as it stands in the text that refers to it.
    pub name: String,
    /// Where it belongs.
    pub subject: Subject,
    /// Its text.
    pub schema: String,
    /// The types that this text only names.
    pub references: Vec<SchemaReference>,
}

/// Where a schema belongs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Subject {
    /// Apicurio's group; `None` is the default group. Confluent's registry has none.
    pub group: Option<String>,
    /// Confluent's subject, Apicurio's artifact id.
    pub id: String,
    /// Apicurio's `artifact.version`.
    pub version: Option<String>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{group}/{}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

/// Kinds of schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaKind {
    /// Avro.
    Avro,
    /// JSON Schema.
    Json,
    /// Protocol Buffers.
    Protobuf,
    /// A schema of Kafka Connect, as JsonConverter writes it; known to Apicurio's registry.
    KafkaConnect,
}

impl SchemaKind {
    /// Both registries' word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Avro => "AVRO",
            Self::Json => "JSON",
            Self::Protobuf => "PROTOBUF",
            Self::KafkaConnect => "KCONNECT",
        }
    }
}

/// Whether values of our schema are the same bytes under theirs, so that who reads with theirs reads what was written.
///
/// # Errors
/// Says where the two differ.
pub fn same_bytes(kind: SchemaKind, ours: &str, theirs: &str) -> Result<(), String> {
    match kind {
        SchemaKind::Avro => crate::avro::same_bytes(ours, theirs),
        // JSON tells its names itself.
        SchemaKind::Json | SchemaKind::KafkaConnect => Ok(()),
        SchemaKind::Protobuf => crate::protobuf::same_bytes(ours, theirs),
    }
}

/// Where our schema differs from theirs, in words. `None` if the two are alike, or if the kind cannot be compared.
pub fn difference(kind: SchemaKind, ours: &str, theirs: &str) -> Option<String> {
    match kind {
        SchemaKind::Json => crate::json_schema::difference(ours, theirs),
        SchemaKind::Avro | SchemaKind::Protobuf | SchemaKind::KafkaConnect => same_bytes(kind, ours, theirs).err(),
    }
}

/// A registered schema with the types of other subjects, given by name and text, written out where they are used. Protobuf's imports
/// stay as they are.
pub fn with_references(kind: SchemaKind, schema: &str, references: &[(String, String)]) -> String {
    match kind {
        SchemaKind::Avro if !references.is_empty() => crate::avro::with_references(schema, references),
        _ => schema.to_owned(),
    }
}

/// Whether two texts are of one schema. A registry may lay a schema out in its own way.
pub fn is_same(kind: SchemaKind, ours: &str, theirs: &str) -> bool {
    match kind {
        SchemaKind::Avro => ours == theirs || crate::avro::same_bytes(ours, theirs).is_ok(),
        SchemaKind::Protobuf => crate::protobuf::is_same(ours, theirs),
        SchemaKind::Json | SchemaKind::KafkaConnect => {
            let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            parsed(ours) == parsed(theirs)
        }
    }
}

/// How a schema's ids are found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IdLookup {
    /// Registers it where it is new.
    Register {
        /// The registry compares schemas in their normal form.
        normalize: bool,
        /// Apicurio's `auto-register.if-exists`.
        if_exists: &'static str,
    },
    /// It has to be there.
    Find {
        /// As above.
        normalize: bool,
    },
    /// The newest version is taken, whatever stands in it. Values of our schema must be the same bytes in it.
    Latest,
    /// The schema of this id is taken.
    Id(i64),
}
