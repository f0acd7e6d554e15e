//! Connect's logical types that Java holds as `java.util.Date`.

use crate::{Schema, Value};

/// A schema whose integers are a `java.util.Date` in Connect.
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
    /// The logical type of a schema, told by its name alone as Connect does.
    pub fn of(schema: &Schema) -> Option<Self> {
        match schema.name.as_deref()?.strip_prefix("org.apache.kafka.connect.data.")? {
            "Date" => Some(Self::Date),
            "Time" => Some(Self::Time),
            "Timestamp" => Some(Self::Timestamp),
            _ => None,
        }
    }

    /// The name as Connect's messages write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Date => "Date",
            Self::Time => "Time",
            Self::Timestamp => "Timestamp",
        }
    }

    /// `Date.getTime` of a value: milliseconds since 1970. `None` where the value is not what the type is held as.
    pub fn millis(self, value: &Value<'_>) -> Option<i64> {
        match (self, value) {
            (Self::Date, Value::Int32(days)) => Some(i64::from(*days) * MILLIS_PER_DAY),
            (Self::Time, Value::Int32(millis)) => Some(i64::from(*millis)),
            (Self::Timestamp, Value::Int64(millis)) => Some(*millis),
            _ => None,
        }
    }
}

/// Milliseconds of a day.
pub const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;
