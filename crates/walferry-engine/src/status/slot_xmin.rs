//! `source.xmin`: the oldest transaction whose catalog rows the slot keeps.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use walferry_pgoutput::Xid;

/// The slot's `catalog_xmin` as last fetched. The task that fetches it and those that read it share one value through
/// clones.
#[derive(Debug, Clone, Default)]
pub struct SlotXmin(Arc<AtomicU32>);

impl SlotXmin {
    /// Sets the fetched value.
    pub fn set(&self, xmin: Xid) {
        self.0.store(xmin.0, Relaxed);
    }

    /// `None` before the first fetch. No transaction has the id 0.
    pub fn get(&self) -> Option<Xid> {
        Some(self.0.load(Relaxed)).filter(|xmin| *xmin > 0).map(Xid)
    }
}
