//! The SQLite store.
/// Keeps everything in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore;
