//! `source.xmin`: the oldest transaction whose catalog rows the slot keeps.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use walferry_pgoutput::Xid;

/// The slot's `catalog_xmin` as it was last fetched. Whoever fetches it and whoever reads it hold clones of one value.
#[derive(Debug, Clone, Default)]
pub struct SlotXmin(Arc<AtomicU32>);

impl SlotXmin {
    /// What has been fetched.
    pub fn set(&self, xmin: Xid) {
        self.0.store(xmin.0, Relaxed);
    }

    /// `None` before anything was fetched: no transaction has the id 0.
    pub fn get(&self) -> Option<Xid> {
        Some(self.0.load(Relaxed)).filter(|xmin| *xmin > 0).map(Xid)
    }
}
