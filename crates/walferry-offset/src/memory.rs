//! An offset in memory.

use std::sync::{Arc, Mutex, PoisonError};

use walferry_engine::{
    Failure,
    store::{OffsetStore, StoredOffset},
};

/// Keeps the offset as long as the process lives. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Option<StoredOffset>>>);

impl MemoryStore {
    /// What is in it now.
    pub fn get(&self) -> Option<StoredOffset> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts an offset in, or takes it out.
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
