//! Which rows of which parts of a table may go.

use walferry_engine::lower_bounds::PartLowerBound;

use crate::time_column::TimeColumn;

/// The lower bounds of a table's parts, in the same order.
#[derive(Debug, Default)]
pub(super) struct PartBounds {
    /// The table itself, or its partitions. Rows of other partitions stay.
    pub(super) parts: Vec<u32>,
    /// The lower bound of each part: a transaction id,
    pub(super) xids: Vec<i64>,
    /// and a time in microseconds since 1970.
    pub(super) since_us: Vec<i64>,
}

impl PartBounds {
    pub(super) fn add(&mut self, oid: u32, bound: &PartLowerBound) {
        self.parts.push(oid);
        self.xids.push(bound.xid);
        self.since_us.push(bound.since_us);
    }
}

/// Whether a row is confirmed, and from after its lower bound.
///
/// The ids of rows are the lower 32 bits of transaction ids. `$1` is all 64 of one, so the distance is taken modulo 2^32: a row is before
/// it if the distance is less than 2^31. No row that can be seen is further ahead than that; one that lies further back, and that was
/// frozen long ago, may stay. `$6` has the lower bound of each partition, in 64 bits, too.
pub(super) fn may_go(time: TimeColumn) -> String {
    let distance = "(((($1 - id) % 4294967296) + 4294967296) % 4294967296)";
    format!(
        "{} AND {distance} BETWEEN 1 AND 2147483647 AND {distance} <= $1 - {}",
        time.is_after("at", &of_part("$7")),
        of_part("$6")
    )
}

/// What an array holds for the partition of a row, or for the table itself. NULL for a partition that is not in `$5`: no condition on it is
/// then true.
fn of_part(array: &str) -> String {
    format!("({array}::int8[])[pg_catalog.array_position($5::oid[], part)]")
}
