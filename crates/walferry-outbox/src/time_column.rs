//! The columns that tell the time of a row, and what SQL says of such a time.

/// A type of column that becomes the timestamp of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeColumn {
    /// `timestamptz`.
    Zoned,
    /// `timestamp`: a time without a zone is UTC, as in records.
    Utc,
    /// `bigint`: milliseconds since 1970.
    Millis,
}

/// The end of the year 9999, in microseconds since 1970: no row is behind it. The server cannot compute with much later times.
pub(crate) const NEVER_US: i64 = 253_402_300_799_000_000;

impl TimeColumn {
    /// What to do about a column of another type.
    pub(crate) const HINT: &str =
        "name a column of type timestamptz, timestamp or bigint in table.field.event.timestamp";

    /// By the name that `format_type` gives a type; `None` for a type that does not tell the time.
    pub(crate) fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "timestamp with time zone" => Self::Zoned,
            "timestamp without time zone" => Self::Utc,
            "bigint" => Self::Millis,
            _ => return None,
        })
    }

    /// A time, from SQL for microseconds since 1970. A time between two milliseconds becomes the earlier one. All functions are immutable:
    /// from a parameter, the planner gets a constant, and leaves out partitions of other times.
    pub(crate) fn at_us(self, us: &str) -> String {
        let utc = format!("('1970-01-01 00:00:00'::timestamp + {us} * interval '1 microsecond')");
        match self {
            Self::Zoned => format!("({utc} AT TIME ZONE 'UTC')"),
            Self::Utc => utc,
            Self::Millis => format!("({us} / 1000)"),
        }
    }

    /// The least distance of two times that differ, in microseconds.
    pub(crate) const fn step_us(self) -> i64 {
        match self {
            Self::Zoned | Self::Utc => 1,
            Self::Millis => 1000,
        }
    }

    /// The microseconds since 1970 of a time that is finite.
    pub(crate) fn us(self, time: &str) -> String {
        match self {
            Self::Zoned | Self::Utc => format!("(EXTRACT(epoch FROM {time}) * 1000000)::int8"),
            Self::Millis => format!("({time} * 1000)::int8"),
        }
    }

    /// Whether the time of a row is later than SQL for microseconds since 1970. The division truncates, so the next millisecond is the
    /// first one that is later.
    pub(crate) fn is_after(self, column: &str, us: &str) -> String {
        match self {
            Self::Zoned | Self::Utc => format!("{column} > {}", self.at_us(us)),
            Self::Millis => format!("{column} > {us} / 1000 + 1"),
        }
    }

    /// The latest time in a column, in microseconds since 1970 as `int8`: no less than 0, and no more than [`NEVER_US`]. A column may hold
    /// any number, such as nanoseconds, and infinity.
    pub(crate) fn latest_us(self, column: &str) -> String {
        let latest = format!("pg_catalog.max({column})");
        let us = match self {
            Self::Zoned | Self::Utc => format!("pg_catalog.ceil(EXTRACT(epoch FROM {latest})::numeric * 1000000)"),
            Self::Millis => format!("({latest}::numeric + 1) * 1000"),
        };
        format!(
            "CASE WHEN {us} IS NULL OR {us} < 0 THEN 0 WHEN {us} < {NEVER_US} THEN ({us})::int8 ELSE {NEVER_US} END"
        )
    }

    /// Seconds since the time in a column; NULL if the time is not finite.
    pub(crate) fn age_seconds(self, column: &str) -> String {
        const NOW: &str = "pg_catalog.clock_timestamp()";
        match self {
            Self::Zoned => {
                format!("CASE WHEN pg_catalog.isfinite({column}) THEN EXTRACT(epoch FROM {NOW} - {column}) END")
            }
            Self::Utc => format!(
                "CASE WHEN pg_catalog.isfinite({column}) THEN EXTRACT(epoch FROM ({NOW} AT TIME ZONE 'UTC') - {column}) END"
            ),
            Self::Millis => format!("EXTRACT(epoch FROM {NOW}) - {column} / 1000.0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_told_by_the_types_that_become_timestamps_of_records() {
        for (kind, expected) in [
            ("timestamp with time zone", Some(TimeColumn::Zoned)),
            ("timestamp without time zone", Some(TimeColumn::Utc)),
            ("bigint", Some(TimeColumn::Millis)),
            ("text", None),
            ("integer", None),
            ("date", None),
        ] {
            assert_eq!(TimeColumn::of(kind), expected, "{kind}");
        }
    }
}
