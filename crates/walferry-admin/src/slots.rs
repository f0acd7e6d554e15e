//! The server's replication slots: ours first, then the others with remarks.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use walferry_engine::status::{Invalidation, Phase, Slot, Status};
use walferry_pgoutput::Lsn;

use crate::{human, observation::Observation};

/// `GET /slots`.
#[derive(Debug, Serialize)]
pub(crate) struct Body {
    connectors: Vec<ServerSlots>,
}

/// The slots of a connector's server.
#[derive(Debug, Serialize)]
pub(crate) struct ServerSlots {
    connector: String,
    /// When the server was queried. `None` before its first answer.
    asked_at: Option<String>,
    /// How old the figures are.
    age_seconds: Option<f64>,
    /// The server's WAL position then.
    wal_end: Option<String>,
    slots: Vec<SlotView>,
}

/// A slot, with a remark about it.
#[derive(Debug, Serialize)]
pub(crate) struct SlotView {
    #[serde(flatten)]
    slot: Slot,
    /// The connector of this process that reads it, if that is another one than the slots are listed for.
    connector: Option<String>,
    /// Whether it looks as if nobody will ever read it again.
    forgotten: bool,
    /// What is wrong with it.
    remark: Option<String>,
    /// What drops it, when nobody needs it.
    drop_sql: Option<String>,
}

/// How long a slot may be unread before it looks forgotten.
const FORGOTTEN_SECONDS: f64 = 3_600.0;
/// How much WAL makes a slot look forgotten where the server does not tell since when it is unread.
const FORGOTTEN_BYTES: u64 = 1 << 30;

impl Body {
    /// What all connectors see.
    pub(crate) fn new(connectors: &[impl AsRef<Status>], now_us: i64) -> Self {
        let observations: Vec<_> = connectors
            .iter()
            .map(|status| Observation::at(status.as_ref(), now_us))
            .collect();
        let own = OwnSlots::of(&observations);
        Self {
            connectors: observations
                .iter()
                .map(|observed| ServerSlots::new(observed, &own))
                .collect(),
        }
    }
}

/// The slots that this process reads.
#[derive(Debug, Default)]
pub(crate) struct OwnSlots {
    /// A slot of the same name is never called forgotten: dropping it would lose data.
    names: BTreeSet<String>,
    /// Who reads a slot now, by the slot's name and the server's process.
    readers: BTreeMap<(String, i32), SlotReader>,
}

#[derive(Debug)]
struct SlotReader {
    connector: String,
    /// Servers may have slots and processes of the same name.
    database: Option<String>,
}

impl OwnSlots {
    pub(crate) fn of(observations: &[Observation<'_>]) -> Self {
        let mut all = Self::default();
        for observed in observations {
            let Some(slot) = observed.slot() else { continue };
            all.names.insert(slot.name.clone());
            if let (Some(pid), Phase::Snapshot | Phase::Streaming) = (slot.active_pid, &observed.course.phase) {
                let reader = SlotReader {
                    connector: observed.status.name.clone(),
                    database: slot.database.clone(),
                };
                all.readers.insert((slot.name.clone(), pid), reader);
            }
        }
        all
    }

    /// The connector that reads a slot.
    fn reader(&self, slot: &Slot) -> Option<&str> {
        let reader = self.readers.get(&(slot.name.clone(), slot.active_pid?))?;
        (reader.database == slot.database).then_some(&*reader.connector)
    }
}

impl ServerSlots {
    pub(crate) fn new(observed: &Observation<'_>, own: &OwnSlots) -> Self {
        let mut slots: Vec<_> = observed.slots.iter().flat_map(|slots| &slots.slots).cloned().collect();
        slots.sort_by(|a, b| {
            b.ours
                .cmp(&a.ours)
                .then_with(|| b.retained_wal_bytes.cmp(&a.retained_wal_bytes))
        });
        Self {
            connector: observed.status.name.clone(),
            asked_at: observed.slots.as_ref().and_then(|slots| human::instant(slots.at_us)),
            age_seconds: observed.slots_age_seconds(),
            wal_end: observed
                .slots
                .as_ref()
                .map(|slots| Lsn::from(slots.wal_end).to_string()),
            slots: slots
                .into_iter()
                .map(|slot| {
                    let reader = own.reader(&slot).filter(|reader| *reader != observed.status.name);
                    SlotView {
                        connector: reader.map(str::to_owned),
                        ..SlotView::new(slot, own)
                    }
                })
                .collect(),
        }
    }
}

impl SlotView {
    fn new(slot: Slot, own: &OwnSlots) -> Self {
        let lost = slot
            .is_lost()
            .then(|| Invalidation::of(slot.invalidation_reason.as_deref()));
        let copied = slot.synced == Some(true);
        let retained = slot.retained_wal_bytes.unwrap_or_default();
        let unread = match slot.inactive_seconds {
            Some(seconds) => seconds >= FORGOTTEN_SECONDS,
            None => retained >= FORGOTTEN_BYTES,
        };
        // A copy of the primary's slot goes with that; nobody may drop it here.
        let forgotten =
            !slot.ours && !slot.active && !copied && !own.names.contains(&slot.name) && (lost.is_some() || unread);
        let remark = match (lost, slot.wal_status.as_deref()) {
            (Some(lost), _) => Some(format!("lost: {}", lost.why)),
            (None, Some("unreserved")) => Some("will be lost at the next checkpoint".to_owned()),
            _ if copied => Some("a synchronized copy of the primary's slot, for a failover".to_owned()),
            _ if forgotten => Some(match slot.inactive_seconds {
                Some(seconds) => format!(
                    "unused for {}, and the server keeps {} of WAL for it",
                    human::duration(seconds),
                    human::bytes(retained)
                ),
                None => format!(
                    "no process reads it, and the server keeps {} of WAL for it",
                    human::bytes(retained)
                ),
            }),
            _ => None,
        };
        // Slot names are lower-case letters, digits and underscores; whatever else it were is quoted all the same.
        let drop_sql =
            forgotten.then(|| format!("SELECT pg_drop_replication_slot('{}');", slot.name.replace('\'', "''")));
        Self {
            slot,
            connector: None,
            forgotten,
            remark,
            drop_sql,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observation::tests::{NOW_US, slots};

    fn slot(name: &str, active: bool, inactive_seconds: Option<f64>, retained: u64) -> Slot {
        Slot {
            name: name.into(),
            active,
            inactive_seconds,
            retained_wal_bytes: Some(retained),
            ..Slot::default()
        }
    }

    #[test]
    fn ours_comes_first_and_then_what_costs_most() {
        let status = Arc::new(Status::new("orders", "shop"));
        let mut figures = slots(2, 0x1_0000_00A0, 0x10);
        let others = [slot("small", true, None, 5), slot("big", true, None, 9_000)];
        figures.slots.splice(0..0, others);
        status.set_slots(figures);
        let body = serde_json::to_value(Body::new(&[status, Arc::new(Status::new("new", "n"))], NOW_US)).unwrap();
        let seen = &body["connectors"][0];
        let names: Vec<_> = seen["slots"]
            .as_array()
            .unwrap()
            .iter()
            .map(|slot| slot["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["dbz_orders", "big", "small"]);
        assert_eq!(seen["wal_end"], "1/A0");
        assert_eq!(seen["age_seconds"], 2.0);
        assert_eq!(seen["asked_at"], "2026-09-21T14:13:18.000Z");
        let unknown = &body["connectors"][1];
        assert_eq!(
            (
                unknown["age_seconds"].is_null(),
                unknown["slots"].as_array().unwrap().len()
            ),
            (true, 0)
        );
    }

    #[test]
    fn the_other_connector_of_this_process_that_reads_a_slot_is_named() {
        let at_server = |name: &str, database: &str, reads: bool| {
            let status = Arc::new(Status::new(name, name));
            let mut figures = slots(2, 0x20, 0x10);
            figures.slots[0].active_pid = Some(4711);
            figures.slots[0].database = Some(database.to_owned());
            status.set_slots(figures);
            if reads {
                status.set_phase(Phase::Streaming);
            }
            status
        };
        let all = [
            at_server("first", "shop", true),
            at_server("second", "shop", false),
            at_server("elsewhere", "other", false),
        ];
        let body = serde_json::to_value(Body::new(&all, NOW_US)).unwrap();
        let readers = [0, 1, 2].map(|i| body["connectors"][i]["slots"][0]["connector"].clone());
        assert_eq!(
            readers,
            [serde_json::Value::Null, "first".into(), serde_json::Value::Null]
        );
    }

    #[test]
    fn a_forgotten_slot_comes_with_the_sql_that_drops_it() {
        let lost = Slot {
            wal_status: Some("lost".into()),
            ..slot("lost", false, Some(5.0), 0)
        };
        let idle = Slot {
            invalidation_reason: Some("idle_timeout".into()),
            ..slot("idle", false, Some(5.0), 0)
        };
        let cases = [
            (slot("in_use", true, None, 1 << 40), None),
            (slot("short_pause", false, Some(3_599.0), 1 << 40), None),
            (
                slot("hour", false, Some(3_600.0), 5 << 20),
                Some("unused for 1 h, and the server keeps 5.0 MiB of WAL for it"),
            ),
            (slot("old_server", false, None, (1 << 30) - 1), None),
            (
                slot("old_big", false, None, 1 << 30),
                Some("no process reads it, and the server keeps 1.0 GiB of WAL for it"),
            ),
            (slot("read_here", false, Some(1e6), 1 << 40), None),
            (lost, Some("lost: Postgres has removed WAL that had not been read yet")),
            (
                idle,
                Some("lost: no process read it for longer than `idle_replication_slot_timeout`"),
            ),
        ];
        let own = OwnSlots {
            names: BTreeSet::from(["read_here".to_owned()]),
            ..OwnSlots::default()
        };
        for (slot, remark) in cases {
            let name = slot.name.clone();
            let view = SlotView::new(slot, &own);
            assert_eq!(view.remark.as_deref(), remark, "{name}");
            let sql = remark.map(|_| format!("SELECT pg_drop_replication_slot('{name}');"));
            assert_eq!((view.forgotten, view.drop_sql), (remark.is_some(), sql), "{name}");
        }
    }

    #[test]
    fn a_standbys_copy_of_a_slot_is_never_to_be_dropped() {
        let copy = Slot {
            synced: Some(true),
            ..slot("copy", false, Some(1e6), 1 << 40)
        };
        let view = SlotView::new(copy, &OwnSlots::default());
        assert_eq!((view.forgotten, view.drop_sql), (false, None));
        assert_eq!(
            view.remark.as_deref(),
            Some("a synchronized copy of the primary's slot, for a failover")
        );
    }
}
