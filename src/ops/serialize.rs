//! Serializing transactions by name.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::id::check_name;
use crate::store::Tx;

impl Tx<'_> {
    /// Makes transactions that give the same name run one after another. Each waits until those before it
    /// have committed or rolled back, and then sees what they did. Transactions that give other names do not
    /// wait.
    ///
    /// Call it first in a transaction whose decision depends on what others may be changing at the same time.
    /// An example is a transaction that ends a task of a run, and enqueues the successor if all other tasks
    /// have ended. Two such transactions that end the last two tasks might not see each other, and neither
    /// would enqueue the successor. If both give the run's name first, the second sees what the first ended.
    ///
    /// In memory and on SQLite, writers run one after another anyway, so the call only checks the names. On
    /// PostgreSQL, the second caller waits at `READ COMMITTED`. In a host's transaction at a higher isolation
    /// level it gets a conflict instead, because its snapshot is older.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`](crate::error::Invalid) for a name that is empty, is longer than
    /// [`MAX_BYTES`](crate::id::MAX_BYTES) or contains a NUL. Returns [`crate::Error::Store`] if the store
    /// fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::ops::Mark;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
    ///
    /// let (store, now) = (MemoryStore::new(), Timestamp::UNIX_EPOCH);
    /// let key = |task| TaskKey::new("prod", "nightly", "r1", task);
    /// let extracts = [key("extract_a")?, key("extract_b")?];
    /// store.write(|tx| tx.enqueue(now, &extracts.clone().map(NewTask::new)))?;
    ///
    /// let end = |extract: &TaskKey| store.write(|tx| {
    ///     tx.serialize(&["prod/nightly/r1"])?;
    ///     tx.mark(now, &[Mark::new(extract.clone(), TaskState::Success, "done elsewhere")])?;
    ///     if tx.tasks(&extracts)?.iter().flatten().all(|task| task.state.is_end()) {
    ///         tx.enqueue(now, &[NewTask::new(key("load")?)])?;
    ///     }
    ///     Ok(())
    /// });
    /// end(&extracts[0])?;
    /// assert_eq!(store.read(|tx| tx.tasks(&[key("load")?]))?, [None]);
    /// end(&extracts[1])?;
    /// assert!(store.read(|tx| tx.tasks(&[key("load")?]))?[0].is_some());
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn serialize(&mut self, names: &[impl AsRef<str>]) -> Result<()> {
        let names: BTreeSet<&str> = names.iter().map(AsRef::as_ref).collect();
        let check = |name: &&str| check_name("a name to serialize by", name);
        names.iter().try_for_each(check)?;
        let names: Vec<&str> = names.into_iter().collect();
        Ok(self.writes()?.serialize(&names)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::error::{Error, Invalid};
    use crate::id::MAX_BYTES;
    use crate::store::MemoryStore;

    #[test]
    fn names_are_checked_like_other_names() {
        let store = MemoryStore::new();
        let refused = |name: &str| match store.write(|tx| tx.serialize(&["fine", name])) {
            Err(Error::Invalid(refused)) => Some(refused),
            other => other.map(|()| None).unwrap(),
        };
        let what = "a name to serialize by";
        assert_eq!(refused(""), Some(Invalid::EmptyName { what }));
        assert_eq!(refused("a\0"), Some(Invalid::NulInName { what, at: 1 }));
        let long = "x".repeat(MAX_BYTES + 1);
        assert_eq!(refused(&long), Some(Invalid::LongName { what, bytes: MAX_BYTES + 1 }));
        assert_eq!(refused(&long[1..]), None);
        assert!(store.write(|tx| tx.serialize(&[] as &[&str])).is_ok());
    }
}
