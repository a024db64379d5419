//! A temporary file for the records of a long session.

use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steadycast_endpoints::{Store, StoredRows};

/// An unnamed temporary file in the system's temporary directory (`TMPDIR`). It is deleted when the value is dropped.
#[derive(Debug)]
pub struct TempStore {
    file: File,
    end: AtomicU64,
}

impl TempStore {
    /// Creates an empty file.
    ///
    /// # Errors
    /// Returns an error if the directory can't be written.
    pub fn new() -> io::Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("steadycast-{}-{number}.rows", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        // Remove the name, so that the file disappears with its descriptor even if the process is killed.
        remove_file(&path)?;
        Ok(Self { file, end: AtomicU64::new(0) })
    }

    /// Moves the rows of all lists in `rows` to one temporary file. If no file can be created, the rows stay in memory.
    pub fn keep<'a>(rows: impl IntoIterator<Item = &'a mut dyn StoredRows>) {
        let Ok(spool) = Self::new() else { return };
        let store: Arc<dyn Store> = Arc::new(spool);
        rows.into_iter().for_each(|rows| rows.keep_in(&store));
    }
}

impl Store for TempStore {
    fn put(&self, bytes: &[u8]) -> io::Result<u64> {
        let at = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, at).map(|()| at)
    }

    fn get(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }
}
