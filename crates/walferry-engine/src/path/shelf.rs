//! Storage for bytes that are seldom needed again: an unnamed file that disappears with the process.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
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
            Ok(Some(kept)) => kept,
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
        let at = self.end;
        file.write_all_at(bytes, at)?;
        self.end += u64::from(length);
        Ok(Some(SpilledBytes::File { at, length }))
    }

    /// Reads bytes that were put away since the last [`clear`](Self::clear).
    pub(crate) fn get(&self, kept: &SpilledBytes) -> io::Result<Vec<u8>> {
        match (kept, &self.file) {
            (SpilledBytes::Memory(bytes), _) => Ok(bytes.to_vec()),
            (SpilledBytes::File { at, length }, Some(file)) => {
                let mut bytes = vec![0; *length as usize];
                file.read_exact_at(&mut bytes, *at)?;
                Ok(bytes)
            }
            (SpilledBytes::File { .. }, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Drops everything that was put away.
    pub(crate) fn clear(&mut self) {
        (self.file, self.end) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_away_is_found_and_leaves_nothing_in_the_folder() {
        let folder = std::env::temp_dir().join(format!("walferry-shelf-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        for mut shelf in [
            SpillFile::default(),
            SpillFile::in_folder(folder.clone()),
            // This folder cannot be written.
            SpillFile::in_folder(folder.join("none")),
        ] {
            for _ in 0..2 {
                let kept: Vec<_> = (0..100_u8).map(|n| shelf.put(vec![n; usize::from(n)].into())).collect();
                for (n, kept) in (0..100_u8).zip(&kept) {
                    assert_eq!(shelf.get(kept).unwrap(), vec![n; usize::from(n)]);
                }
                shelf.clear();
            }
            assert!(fs::read_dir(&folder).unwrap().next().is_none());
        }
        fs::remove_dir(&folder).unwrap();
    }
}
