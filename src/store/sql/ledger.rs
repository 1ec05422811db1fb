//! The record of migrations that a database keeps.
//!
//! A released migration is never changed: its checksum is in the ledger of every database it was applied to.

use sha1::{Digest, Sha1};

use crate::error::{StoreError, StoreErrorKind};

/// One step of the schema, in SQL with the crate's default names.
#[derive(Debug)]
pub(in crate::store) struct Migration {
    pub(in crate::store) name: &'static str,
    pub(in crate::store) sql: &'static str,
}

impl Migration {
    pub(in crate::store) fn checksum(&self) -> String {
        Sha1::digest(self.sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Compares a database's ledger with the migrations of this version of the crate.
#[derive(Debug)]
pub(in crate::store) struct Ledger {
    known: &'static [Migration],
    applied: usize,
}

impl Ledger {
    pub(in crate::store) fn new(known: &'static [Migration]) -> Self {
        Self { known, applied: 0 }
    }

    /// Checks the next entry, in the order of versions.
    ///
    /// # Errors
    ///
    /// Kind `Schema` if the entry is from a newer version of the crate, or not from this crate.
    pub(in crate::store) fn check(
        &mut self,
        version: i64,
        name: &str,
        checksum: &str,
    ) -> Result<(), StoreError> {
        let Some(known) = self.known.get(self.applied) else {
            return Err(untouched(format!(
                "its schema has version {version}, this version of the crate knows {}: use a newer version",
                self.known.len()
            )));
        };
        if version != self.applied as i64 + 1 || name != known.name || checksum != known.checksum() {
            return Err(untouched(format!(
                "migration {version} ({name}) is not the one this version of the crate knows: \
                 use the version that created the database"
            )));
        }
        self.applied += 1;
        Ok(())
    }

    /// Returns how many migrations were applied, or `None` if all were.
    pub(in crate::store) fn older(&self) -> Option<usize> {
        (self.applied < self.known.len()).then_some(self.applied)
    }
}

/// Returns the error for a database that is not the crate's, or not of this version.
pub(in crate::store) fn untouched(what: String) -> StoreError {
    StoreError::new(StoreErrorKind::Schema, format!("the database was left untouched: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Migration] =
        &[Migration { name: "first", sql: "a" }, Migration { name: "second", sql: "b" }];

    #[test]
    fn notes_are_those_of_the_known_migrations_in_their_order() {
        let (first, second) = (KNOWN[0].checksum(), KNOWN[1].checksum());
        let mut ledger = Ledger::new(KNOWN);
        assert_eq!(ledger.older(), Some(0));
        assert!(ledger.check(2, "second", &second).is_err());
        assert!(ledger.check(1, "first", &second).is_err());
        assert!(ledger.check(1, "other", &first).is_err());
        ledger.check(1, "first", &first).unwrap();
        assert_eq!(ledger.older(), Some(1));
        ledger.check(2, "second", &second).unwrap();
        assert_eq!(ledger.older(), None);
        let newer = ledger.check(3, "third", "c").unwrap_err();
        assert_eq!(newer.kind(), StoreErrorKind::Schema);
        assert!(newer.to_string().contains("use a newer version"));
    }
}
