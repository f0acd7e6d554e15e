//! Why a server invalidates a slot.

/// What is known about a slot that can no longer be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalidation {
    /// What happened to it: the end of a sentence that begins with the slot's name.
    pub why: &'static str,
    /// How to prevent it.
    pub prevention: &'static str,
}

impl Invalidation {
    /// The meaning of `invalidation_reason` in `pg_replication_slots`. Before Postgres 17 there is no such column: then
    /// the WAL is gone, or, on a standby of Postgres 16, there was a conflict.
    pub fn of(reason: Option<&str>) -> Self {
        match reason {
            None | Some("wal_removed") => Self {
                why: "Postgres has removed WAL that had not been read yet",
                prevention: "raise `max_slot_wal_keep_size`",
            },
            Some("idle_timeout") => Self {
                why: "no process read it for longer than `idle_replication_slot_timeout`",
                prevention: "raise `idle_replication_slot_timeout`",
            },
            Some("wal_level_insufficient") => Self {
                why: "`wal_level` of the primary was lowered",
                prevention: "keep `wal_level` set to logical on the primary",
            },
            Some("rows_removed" | "conflict") => Self {
                why: "the primary has removed catalog rows that the standby needs for decoding",
                prevention: "set `hot_standby_feedback = on` on the standby, and let it use a slot on the primary",
            },
            Some(_) => Self {
                why: "Postgres has invalidated it",
                prevention: "see the server's log for the reason",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Invalidation;

    #[test]
    fn each_reason_names_the_setting_that_prevents_it() {
        let cases = [
            (None, "max_slot_wal_keep_size"),
            (Some("wal_removed"), "max_slot_wal_keep_size"),
            (Some("idle_timeout"), "idle_replication_slot_timeout"),
            (Some("wal_level_insufficient"), "wal_level"),
            (Some("rows_removed"), "hot_standby_feedback"),
            (Some("conflict"), "hot_standby_feedback"),
            (Some("a reason of a later version"), "the server's log"),
        ];
        for (reason, setting) in cases {
            let prevention = Invalidation::of(reason).prevention;
            assert!(prevention.contains(setting), "{reason:?}: {prevention}");
        }
    }
}
