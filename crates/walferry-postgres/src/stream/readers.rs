//! Which connector of this process reads a slot, so that another one that wants the same slot can name it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A server's process: the system identifier, and the process id there.
type Walsender = (u64, i32);

/// Connectors, by the process of the server that streams to each.
static READERS: Mutex<BTreeMap<Walsender, String>> = Mutex::new(BTreeMap::new());

fn readers() -> MutexGuard<'static, BTreeMap<Walsender, String>> {
    READERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connector reads a slot as long as this lives.
#[derive(Debug)]
pub(crate) struct SlotReader(Walsender);

impl SlotReader {
    pub(crate) fn new(system_id: u64, walsender: i32, connector: &str) -> Self {
        readers().insert((system_id, walsender), connector.to_owned());
        Self((system_id, walsender))
    }
}

impl Drop for SlotReader {
    fn drop(&mut self) {
        readers().remove(&self.0);
    }
}

/// The connector of this process to which a process of a server streams.
pub(crate) fn reader(system_id: u64, walsender: i32) -> Option<String> {
    readers().get(&(system_id, walsender)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_known_while_it_reads_and_only_on_its_server() {
        let streams = SlotReader::new(7, 4711, "orders");
        assert_eq!(reader(7, 4711).as_deref(), Some("orders"));
        assert_eq!(reader(8, 4711), None);
        drop(streams);
        assert_eq!(reader(7, 4711), None);
    }
}
