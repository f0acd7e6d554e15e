//! An offset in memory.

use std::sync::{Arc, Mutex, PoisonError};

use walferry_engine::{
    Failure,
    store::{OffsetStore, StoredOffset},
};

/// Keeps the offset until the process ends. Clones share the offset.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Option<StoredOffset>>>);

impl MemoryStore {
    /// The present offset.
    pub fn get(&self) -> Option<StoredOffset> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces or removes the offset.
    pub fn set(&self, offset: Option<StoredOffset>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = offset;
    }
}

impl OffsetStore for MemoryStore {
    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        Ok(self.get())
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        self.set(Some(offset.clone()));
        Ok(())
    }
}
