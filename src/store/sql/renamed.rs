//! Statements with the names of a host's tables put in.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Identifies a statement of the crate: these are constants, so the address and length of the text do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store) struct Identity(usize, usize);

impl Identity {
    pub(in crate::store) fn of(sql: &'static str) -> Self {
        Self(sql.as_ptr() as usize, sql.len())
    }
}

/// Remembers each statement with the names put in, so that it is made once.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Renamed(Arc<Mutex<HashMap<Identity, Arc<str>>>>);

impl Renamed {
    pub(in crate::store) fn get(&self, sql: &'static str, rename: impl FnOnce(&str) -> String) -> Arc<str> {
        Arc::clone(self.0.lock().entry(Identity::of(sql)).or_insert_with(|| rename(sql).into()))
    }
}
