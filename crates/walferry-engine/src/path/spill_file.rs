//! Storage for bytes that are seldom needed again: an unnamed file that disappears with the process.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::PathBuf,
    process,
};

use tracing::warn;

/// Where bytes are put away. What cannot be written to disk stays in memory.
#[derive(Debug, Default)]
pub(crate) struct SpillFile {
    folder: Option<PathBuf>,
    file: Option<File>,
    end: u64,
    /// Places in the file that are not used any more, with their lengths. No two of them touch, and none touches the end.
    free: BTreeMap<u64, u64>,
}

/// Bytes that were put away.
#[derive(Debug)]
pub(crate) enum SpilledBytes {
    File { at: u64, length: u32 },
    Memory(Box<[u8]>),
}

impl SpillFile {
    /// Puts bytes into a file in this folder. The file is created on first use.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self {
            folder: Some(folder),
            ..Self::default()
        }
    }

    /// Puts bytes away.
    pub(crate) fn put(&mut self, bytes: Box<[u8]>) -> SpilledBytes {
        match self.write(&bytes) {
            Ok(Some(spilled)) => spilled,
            Ok(None) => SpilledBytes::Memory(bytes),
            Err(error) => {
                warn!(
                    %error,
                    folder = %self.folder.take().unwrap_or_default().display(),
                    "descriptions of unused tables cannot be written to disk; they stay in memory until the next connection"
                );
                SpilledBytes::Memory(bytes)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<SpilledBytes>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let Ok(length) = u32::try_from(bytes.len()) else {
            return Ok(None);
        };
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                // A connector whose offset is in Kafka has no folder yet.
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                let path = folder.join(format!("tables.{}", process::id()));
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path)?;
                // The file exists only as long as it is open, so a crash leaves nothing behind.
                fs::remove_file(&path)?;
                self.file.insert(file)
            }
        };
        let needed = u64::from(length);
        let place = self.free.iter().find(|&(_, &free)| free >= needed);
        let place = place.map(|(&at, &free)| (at, free));
        let at = place.map_or(self.end, |(at, _)| at);
        file.write_all_at(bytes, at)?;
        match place {
            Some((at, free)) => {
                self.free.remove(&at);
                if free > needed {
                    self.free.insert(at + needed, free - needed);
                }
            }
            None => self.end += needed,
        }
        Ok(Some(SpilledBytes::File { at, length }))
    }

    /// These bytes are not needed any more. Their place in the file is used again.
    pub(crate) fn free(&mut self, spilled: SpilledBytes) {
        let SpilledBytes::File { at, length } = spilled else {
            return;
        };
        let (mut at, mut length) = (at, u64::from(length));
        if let Some((&before, &free)) = self.free.range(..at).next_back()
            && before + free == at
        {
            self.free.remove(&before);
            (at, length) = (before, free + length);
        }
        if let Some(free) = self.free.remove(&(at + length)) {
            length += free;
        }
        if at + length == self.end {
            self.end = at;
        } else if length > 0 {
            self.free.insert(at, length);
        }
    }

    /// Reads bytes that were put away since the last [`clear`](Self::clear).
    pub(crate) fn get(&self, spilled: &SpilledBytes) -> io::Result<Vec<u8>> {
        match (spilled, &self.file) {
            (SpilledBytes::Memory(bytes), _) => Ok(bytes.to_vec()),
            (SpilledBytes::File { at, length }, Some(file)) => {
                let mut bytes = vec![0; *length as usize];
                file.read_exact_at(&mut bytes, *at)?;
                Ok(bytes)
            }
            (SpilledBytes::File { .. }, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// How long the file is.
    #[cfg(test)]
    pub(crate) const fn size(&self) -> u64 {
        self.end
    }

    /// Drops everything that was put away.
    pub(crate) fn clear(&mut self) {
        (self.file, self.end) = (None, 0);
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_away_is_found_and_leaves_nothing_in_the_folder() {
        let folder = std::env::temp_dir().join(format!("walferry-spill-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        for mut spill_file in [
            SpillFile::default(),
            SpillFile::in_folder(folder.clone()),
            // This folder cannot be made.
            SpillFile::in_folder("/dev/null/none".into()),
        ] {
            for _ in 0..2 {
                let spilled: Vec<_> = (0..100_u8)
                    .map(|n| spill_file.put(vec![n; usize::from(n)].into()))
                    .collect();
                for (n, spilled) in (0..100_u8).zip(&spilled) {
                    assert_eq!(spill_file.get(spilled).unwrap(), vec![n; usize::from(n)]);
                }
                spill_file.clear();
            }
            assert!(fs::read_dir(&folder).unwrap().next().is_none());
        }
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn the_place_of_what_is_not_needed_any_more_is_used_again() {
        let folder = std::env::temp_dir().join(format!("walferry-spill-again-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut spill_file = SpillFile::in_folder(folder.clone());
        let of_length = |n: usize, round: u8| vec![round; 50 + (n * 7 + usize::from(round) * 13) % 100];
        let mut spilled: Vec<_> = (0..40).map(|n| spill_file.put(of_length(n, 0).into())).collect();
        let most = spill_file.end * 3;
        for round in 1..=200 {
            for n in 0..spilled.len() {
                let (again, n) = (spill_file.put(of_length(n, round).into()), (n * 17) % spilled.len());
                // In another order than they were put away.
                let old = std::mem::replace(&mut spilled[n], again);
                spill_file.free(old);
            }
            assert!(spill_file.end < most, "round {round}: {} bytes", spill_file.end);
        }
        let mut found: Vec<_> = spilled.iter().map(|spilled| spill_file.get(spilled).unwrap()).collect();
        let mut expected: Vec<_> = (0..40).map(|n| of_length(n, 200)).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        for spilled in spilled {
            spill_file.free(spilled);
        }
        assert_eq!((spill_file.end, spill_file.free.len()), (0, 0));
        fs::remove_dir(&folder).unwrap();
    }
}
