//! Connect's logical types whose values are `java.util.Date` in Java.

use crate::{Schema, Value};

/// A schema whose integers stand for a `java.util.Date` in Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logical {
    /// Days since 1970.
    Date,
    /// Milliseconds since midnight.
    Time,
    /// Milliseconds since 1970.
    Timestamp,
}

impl Logical {
    /// The logical type of a schema. Like Connect, this looks only at the schema's name.
    pub fn of(schema: &Schema) -> Option<Self> {
        match schema.name.as_deref()?.strip_prefix("org.apache.kafka.connect.data.")? {
            "Date" => Some(Self::Date),
            "Time" => Some(Self::Time),
            "Timestamp" => Some(Self::Timestamp),
            _ => None,
        }
    }

    /// The name in Connect's messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Date => "Date",
            Self::Time => "Time",
            Self::Timestamp => "Timestamp",
        }
    }

    /// `Date.getTime` of a value: milliseconds since 1970. `None` if the value is not an integer of the right size.
    pub fn millis(self, value: &Value<'_>) -> Option<i64> {
        match (self, value) {
            (Self::Date, Value::Int32(days)) => Some(i64::from(*days) * MILLIS_PER_DAY),
            (Self::Time, Value::Int32(millis)) => Some(i64::from(*millis)),
            (Self::Timestamp, Value::Int64(millis)) => Some(*millis),
            _ => None,
        }
    }
}

pub use walferry_java::MILLIS_PER_DAY;
