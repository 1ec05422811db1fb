//! Statements with a host's table names substituted.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Identifies one of the crate's statements by the address and length of its text, which is a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store) struct Identity(usize, usize);

impl Identity {
    pub(in crate::store) fn of(sql: &'static str) -> Self {
        Self(sql.as_ptr() as usize, sql.len())
    }
}

/// Caches each statement with the names substituted, so that it is built once.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Renamed(Arc<Mutex<HashMap<Identity, Arc<str>>>>);

impl Renamed {
    pub(in crate::store) fn get(&self, sql: &'static str, rename: impl FnOnce(&str) -> String) -> Arc<str> {
        Arc::clone(self.0.lock().entry(Identity::of(sql)).or_insert_with(|| {
            let sql = rename(sql);
            // The schema of tests/rolling has this column under another name.
            #[cfg(stationmaster_next_schema)]
            let sql = sql.replace("description", "about");
            sql.into()
        }))
    }
}
