//! The steps of a schema, and a database's record of them. `docs/upgrading.md` states their guarantees.
//!
//! A released step is never changed: its checksum is in the ledger of every database it was applied to.

use std::ops::Range;

use sha1::{Digest, Sha1};

use crate::error::{StoreError, StoreErrorKind};

/// One step of the schema, in SQL with the crate's default names.
#[derive(Debug)]
pub(in crate::store) struct Migration {
    pub(in crate::store) name: &'static str,
    pub(in crate::store) sql: &'static str,
    /// The version at which a process must work to continue beside this step. An expand step repeats the version of the
    /// previous step, a contract step raises it.
    pub(in crate::store) oldest_compatible: u32,
}

impl Migration {
    fn checksum(&self) -> String {
        Sha1::digest(self.sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// How far to upgrade a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Goal {
    /// To the version that this version of the crate works at. Its own contract steps, which come later, are not
    /// applied.
    Working,
    /// Through every step that this version of the crate knows.
    Whole,
}

/// The steps of a store's schema, in order. The first one creates version 1.
#[derive(Debug)]
pub(in crate::store) struct Steps {
    pub(in crate::store) known: &'static [Migration],
    /// The prefix of the store's table names in its SQL.
    pub(in crate::store) written: &'static str,
    /// The SQL that creates the ledger.
    pub(in crate::store) ledger: &'static str,
    /// The SQL for the instant at which a step is applied.
    pub(in crate::store) now: &'static str,
}

impl Steps {
    /// Returns the version that a process of this version of the crate works at: after the last expand step. It works
    /// equally well after the contract steps of the same version of the crate.
    pub(in crate::store) const fn works_at(&self) -> u32 {
        let mut at = self.known.len();
        while at > 1 && self.is_contract(at) {
            at -= 1;
        }
        at as u32
    }

    /// Fails to compile if steps would refuse the process that applies them, or readmit an older one.
    pub(in crate::store) const fn check(&self) {
        let (mut at, mut oldest) = (0, 1);
        while at < self.known.len() {
            let step = self.known[at].oldest_compatible;
            assert!(step >= oldest, "a step lets go on whom the one before it refuses");
            oldest = step;
            at += 1;
        }
        assert!(oldest <= self.works_at(), "the steps refuse the version that they are of");
    }

    /// Returns true if the step to this version refuses processes that the step before it did not.
    const fn is_contract(&self, version: usize) -> bool {
        version > 1 && self.known[version - 1].oldest_compatible > self.known[version - 2].oldest_compatible
    }

    /// Returns the steps that the next transaction applies to a schema that has had `applied`. Empty if there is
    /// nothing to do.
    ///
    /// For an empty database these are all steps, because no running process needs to continue beside them.
    pub(in crate::store) fn next(&self, applied: usize, goal: Goal) -> Range<usize> {
        let whole = goal == Goal::Whole || applied == 0;
        let end = if whole { self.known.len() } else { self.works_at() as usize };
        let end = if applied == 0 { end } else { end.min(applied + 1) };
        applied..end.max(applied)
    }

    /// Returns the name of the table that exists as long as processes that work at this version may continue. Each of
    /// their transactions first touches it, so none of them is in a transaction when it is dropped.
    pub(in crate::store) fn gate(&self, version: u32) -> String {
        format!("{}version_{version}", self.written)
    }

    /// Returns the SQL of these steps. Also creates the record if there is none.
    pub(in crate::store) fn sql(&self, steps: Range<usize>) -> String {
        let mut sql = if steps.start == 0 { self.ledger.to_owned() } else { String::new() };
        for (at, step) in self.known.iter().enumerate().take(steps.end).skip(steps.start) {
            let (to, oldest) = (at + 1, step.oldest_compatible);
            sql += &format!("-- To version {to}. Processes that work at version {oldest} or later go on.\n");
            sql += &self.step(at);
        }
        sql
    }

    /// Returns the SQL of the step after this many. First it refuses older processes, and last it records the step.
    fn step(&self, applied: usize) -> String {
        let Some(step) = self.known.get(applied) else { return String::new() };
        let version = applied + 1;
        let mut sql = String::new();
        if self.is_contract(version) {
            let before = applied.checked_sub(1).and_then(|at| self.known.get(at));
            let from = before.map_or(1, |before| before.oldest_compatible);
            for version in (from..step.oldest_compatible).filter(|&at| !self.is_contract(at as usize)) {
                sql += &format!("DROP TABLE IF EXISTS {};\n", self.gate(version));
            }
        } else {
            sql += &format!("CREATE TABLE {} (one INTEGER PRIMARY KEY);\n", self.gate(version as u32));
        }
        sql += step.sql;
        sql += &format!(
            "INSERT INTO {}migration (version, name, checksum, applied_at, oldest_compatible) \
             VALUES ({version}, '{}', '{}', {}, {});\n",
            self.written,
            step.name,
            step.checksum(),
            self.now,
            step.oldest_compatible
        );
        sql
    }

    /// Returns the SQL that upgrades a schema of this version to the one that this version of the crate works at. From
    /// there on, returns the SQL of its contract steps. Version 0 means no schema.
    pub(in crate::store) fn text_from(&self, version: usize) -> String {
        let works_at = self.works_at() as usize;
        let is_whole = version == 0 || version >= works_at;
        self.sql(version..if is_whole { self.known.len() } else { works_at })
    }
}

/// Compares a database's ledger with the steps of this version of the crate.
#[derive(Debug)]
pub(in crate::store) struct Ledger {
    steps: &'static Steps,
    applied: usize,
    oldest_compatible: i64,
}

impl Ledger {
    pub(in crate::store) fn new(steps: &'static Steps) -> Self {
        Self { steps, applied: 0, oldest_compatible: 0 }
    }

    /// Checks the next entry, in the order of versions. For an unknown entry, what counts is which versions it allows
    /// to continue.
    ///
    /// # Errors
    ///
    /// Kind `Schema` if the entry is not from this crate.
    pub(in crate::store) fn check(
        &mut self,
        version: i64,
        name: &str,
        checksum: &str,
        oldest_compatible: i64,
    ) -> Result<(), StoreError> {
        let is_known = self.steps.known.get(self.applied).is_none_or(|known| {
            known.name == name
                && known.checksum() == checksum
                && i64::from(known.oldest_compatible) == oldest_compatible
        });
        let is_next = version == self.applied as i64 + 1;
        if !is_known || !is_next || !(1..=version).contains(&oldest_compatible) {
            return Err(untouched(format!(
                "migration {version} ({name}) is not the one this version of the crate knows: \
                 use the version that created the database"
            )));
        }
        self.applied += 1;
        self.oldest_compatible = self.oldest_compatible.max(oldest_compatible);
        Ok(())
    }

    /// Returns how many steps were applied.
    ///
    /// # Errors
    ///
    /// Kind `Schema` if one of them refuses this version of the crate.
    pub(in crate::store) fn applied(&self) -> Result<usize, StoreError> {
        let (works_at, oldest) = (self.steps.works_at(), self.oldest_compatible);
        if oldest <= i64::from(works_at) {
            return Ok(self.applied);
        }
        Err(untouched(format!(
            "its schema has version {}, which needs a version of the crate that works at {oldest} or later, and this \
             one works at {works_at}: stop this process, and start one of a newer version",
            self.applied
        )))
    }
}

/// Returns the error for a database that is not the crate's, or not of this version.
pub(in crate::store) fn untouched(what: String) -> StoreError {
    StoreError::new(StoreErrorKind::Schema, format!("the database was left untouched: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(name: &'static str, oldest_compatible: u32) -> Migration {
        Migration { name, sql: "SELECT 1;\n", oldest_compatible }
    }

    const fn steps(known: &'static [Migration]) -> Steps {
        Steps { known, written: "sm_", ledger: "CREATE ledger;\n", now: "0" }
    }

    /// Four releases. Each one includes the steps of the earlier ones.
    static RELEASES: [Steps; 4] = [
        steps(&[step("first", 1)]),
        steps(&[step("first", 1), step("expand", 1), step("contract", 2)]),
        steps(&[step("first", 1), step("expand", 1), step("contract", 2), step("more", 2), step("less", 4)]),
        steps(&[
            step("first", 1),
            step("expand", 1),
            step("contract", 2),
            step("more", 2),
            step("less", 4),
            step("again", 4),
        ]),
    ];

    /// Returns what a release finds in a ledger to which this many steps of another release were applied.
    fn look(release: usize, other: usize, applied: usize) -> Result<usize, StoreError> {
        let mut ledger = Ledger::new(&RELEASES[release]);
        for (at, step) in RELEASES[other].known.iter().enumerate().take(applied) {
            ledger.check(at as i64 + 1, step.name, &step.checksum(), step.oldest_compatible.into())?;
        }
        ledger.applied()
    }

    #[test]
    fn a_release_works_before_and_after_its_own_contract_steps() {
        assert_eq!(RELEASES.each_ref().map(Steps::works_at), [1, 2, 4, 6]);
        for (release, steps) in RELEASES.iter().enumerate() {
            for applied in steps.works_at() as usize..=steps.known.len() {
                assert_eq!(look(release, release, applied).unwrap(), applied);
            }
        }
    }

    /// Two successive releases both work until the later one's contract steps.
    #[test]
    fn the_release_before_goes_on_until_the_contract() {
        for (later, steps) in RELEASES.iter().enumerate().skip(1) {
            let works_at = steps.works_at() as usize;
            for applied in 1..=steps.known.len() {
                let before = look(later - 1, later, applied);
                assert_eq!(before.is_ok(), applied <= works_at, "{later} {applied}: {before:?}");
            }
        }
        let refused = look(0, 1, 3).unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Schema);
        assert_eq!(
            refused.to_string(),
            "the database was left untouched: its schema has version 3, which needs a version of the crate that works \
             at 2 or later, and this one works at 1: stop this process, and start one of a newer version"
        );
    }

    /// Connected processes check the gate tables, and opening ones the ledger. Both must agree.
    #[test]
    fn the_gates_that_are_there_are_those_of_whom_the_ledger_lets_go_on() {
        for steps in &RELEASES {
            let mut gates = std::collections::BTreeSet::new();
            for applied in 0..steps.known.len() {
                let text = steps.step(applied);
                for line in text.lines() {
                    if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
                        assert!(gates.insert(rest.split(' ').next().unwrap().to_owned()));
                    } else if let Some(gate) = line.strip_prefix("DROP TABLE IF EXISTS ") {
                        assert!(gates.remove(gate.trim_end_matches(';')), "{gate}");
                        assert!(text.find(line) < text.find("SELECT 1"), "before what it protects");
                    }
                }
                for other in &RELEASES {
                    let works_at = other.works_at();
                    let goes_on = works_at as usize <= applied + 1
                        && steps.known[applied].oldest_compatible <= works_at;
                    assert_eq!(gates.contains(&steps.gate(works_at)), goes_on, "{works_at} at {applied}");
                }
            }
        }
    }

    #[test]
    fn the_steps_of_opening_leave_the_contract_to_the_end_or_the_next_release() {
        let next = |release: usize, applied, goal| RELEASES[release].next(applied, goal);
        assert_eq!(next(1, 0, Goal::Working), 0..3, "nobody is there yet");
        assert_eq!(next(1, 1, Goal::Working), 1..2);
        assert_eq!(next(1, 1, Goal::Whole), 1..2, "one in a transaction");
        assert_eq!(next(1, 2, Goal::Working), 2..2);
        assert_eq!(next(1, 2, Goal::Whole), 2..3);
        assert_eq!(next(2, 2, Goal::Working), 2..3, "the contract of the release between");
        assert_eq!(next(0, 3, Goal::Whole), 3..3, "a newer schema is left as it is");
        let text = |release: usize, version| {
            let text = RELEASES[release].text_from(version);
            text.lines().filter(|line| line.starts_with("-- To version")).count()
        };
        assert_eq!((text(1, 0), text(1, 1), text(1, 2), text(1, 3), text(1, 9)), (3, 1, 1, 0, 0));
        assert_eq!((text(2, 1), text(2, 4)), (3, 1));
        assert!(RELEASES[1].text_from(0).starts_with("CREATE ledger;"));
    }

    #[test]
    fn entries_are_those_of_the_known_steps_in_their_order() {
        let checksum = step("first", 1).checksum();
        for (version, name, checksum, oldest) in [
            (2, "first", &*checksum, 1),
            (1, "other", &checksum, 1),
            (1, "first", "x", 1),
            (1, "first", &checksum, 2),
        ] {
            let refused = Ledger::new(&RELEASES[0]).check(version, name, checksum, oldest).unwrap_err();
            assert_eq!(refused.kind(), StoreErrorKind::Schema);
        }
        let mut ledger = Ledger::new(&RELEASES[0]);
        assert_eq!(ledger.applied().unwrap(), 0);
        ledger.check(1, "first", &checksum, 1).unwrap();
        assert!(ledger.check(3, "later", "c", 1).is_err(), "one between is missing");
        assert!(ledger.check(2, "later", "c", 0).is_err());
        assert!(ledger.check(2, "later", "c", 3).is_err(), "it would refuse whoever applied it");
        ledger.check(2, "later", "c", 1).unwrap();
        assert_eq!(ledger.applied().unwrap(), 2);
    }
}
