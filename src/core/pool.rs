//! Slot pools: named capacity that tasks share.
//!
//! A pool has a number of *slots*. An admitted task takes `pool_slots` of them until its lease ends. *Open*
//! slots are `slots - used` and may be negative. Shrinking a busy pool is allowed: this blocks no other pool,
//! and the pool admits nothing until enough slots are freed. Each pool has one counter, changed in the
//! transaction that grants or frees slots. The counter always equals the sum of the slots that the pool's
//! tasks hold.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::{setters, words};
use crate::bounds::{MAX_SLOTS, MAX_TEXT_BYTES};
use crate::error::Invalid;
use crate::id::PoolName;

/// The slots of [`PoolName::DEFAULT`] in a new store (Airflow: `default_pool_task_slot_count`).
pub const DEFAULT_POOL_SLOTS: u32 = 128;

/// How many slots a pool has.
///
/// In JSON it is a number, or the text `"unlimited"`.
///
/// # Examples
///
/// ```
/// use stationmaster::pool::Slots;
/// assert_eq!(serde_json::to_string(&Slots::Limited(4))?, "4");
/// assert_eq!(serde_json::from_str::<Slots>("\"unlimited\"")?, Slots::Unlimited);
/// assert_eq!(Slots::Limited(4).open(6), Some(-2));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SlotsForm", into = "SlotsForm")]
pub enum Slots {
    /// Never full (Airflow: `-1`).
    Unlimited,
    /// This many slots: 0 to [`MAX_SLOTS`].
    Limited(u32),
}

impl Slots {
    /// Returns the slots that are not in use; `None` if unlimited.
    pub fn open(self, used: i64) -> Option<i64> {
        self.total().map(|total| i64::from(total).saturating_sub(used))
    }

    /// Returns the number of slots; `None` if unlimited.
    pub fn total(self) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            Self::Limited(total) => Some(total),
        }
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Limited(total) => write!(f, "{total}"),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SlotsForm {
    Number(u64),
    Word(String),
}

impl TryFrom<SlotsForm> for Slots {
    type Error = String;
    fn try_from(form: SlotsForm) -> Result<Self, String> {
        match form {
            SlotsForm::Number(n) if n <= u64::from(MAX_SLOTS) => Ok(Self::Limited(n as u32)),
            SlotsForm::Word(word) if word == "unlimited" => Ok(Self::Unlimited),
            _ => Err(format!("slots must be a number from 0 to {MAX_SLOTS} or \"unlimited\"")),
        }
    }
}

impl From<Slots> for SlotsForm {
    fn from(slots: Slots) -> Self {
        match slots {
            Slots::Unlimited => Self::Word("unlimited".into()),
            Slots::Limited(n) => Self::Number(n.into()),
        }
    }
}

/// The host's definition of a pool: its size and options.
///
/// # Examples
///
/// ```
/// use stationmaster::pool::{PoolSpec, Slots};
/// let pool = PoolSpec::new("database", Slots::Limited(4))?.described("at most four loads at once");
/// assert_eq!(pool.slots, Slots::Limited(4));
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolSpec {
    /// Its name, unique in the store.
    pub name: PoolName,
    /// Its size.
    pub slots: Slots,
    /// The description, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether a task that waits as a sensor keeps its slots instead of freeing them (Airflow 2.7:
    /// `include_deferred`). The task then continues in these slots, without waiting for others. In JSON the
    /// field is `sensing_slots`: `"give_back"` or `"keep"`; `deferred` is also accepted.
    #[serde(default, rename = "sensing_slots", alias = "deferred", with = "sensing_slots")]
    pub sensing_keeps_slots: bool,
}

words! {
    /// How [`PoolSpec::sensing_keeps_slots`] is serialised.
    sensing_slots { GiveBack, Keep }
}

impl PoolSpec {
    /// Creates a pool whose tasks free their slots when they become sensors.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`] if the name is refused, or for slots above [`MAX_SLOTS`].
    pub fn new(name: impl AsRef<str>, slots: Slots) -> crate::Result<Self> {
        let name = PoolName::new(name)?;
        let spec = Self { name, slots, description: String::new(), sensing_keeps_slots: false };
        spec.check()?;
        Ok(spec)
    }

    /// Checks that the values are in range.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self.slots.total() {
            Some(n) if n > MAX_SLOTS => Err(Invalid::TooLarge { what: "a pool", value: n.into() }),
            _ if self.description.len() > MAX_TEXT_BYTES => Err(Invalid::TooManyBytes {
                what: "the description of a pool",
                bytes: self.description.len(),
                cap: MAX_TEXT_BYTES,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the pool that every new store has, [`PoolName::DEFAULT`], with its initial size.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::pool::{PoolSpec, Slots};
    /// let pool = PoolSpec::default_pool();
    /// assert_eq!((pool.name.as_str(), pool.slots), ("default_pool", Slots::Limited(128)));
    /// ```
    pub fn default_pool() -> Self {
        Self {
            name: PoolName::default_pool(),
            slots: Slots::Limited(DEFAULT_POOL_SLOTS),
            description: String::new(),
            sensing_keeps_slots: false,
        }
    }

    setters! {
        /// Sets the description.
        described(description: impl Into<String>) { description = description.into() }
        /// Sets whether sensing tasks keep their slots.
        sensing_keeps_slots: bool;
    }
}

/// A pool as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolRecord {
    /// The host's definition of the pool.
    #[serde(flatten)]
    pub spec: PoolSpec,
    /// The slots that tasks hold. May exceed the size after a busy pool was shrunk.
    pub used: i64,
}

impl PoolRecord {
    /// Creates a record from a row. For stores.
    pub fn new(spec: PoolSpec, used: i64) -> Self {
        Self { spec, used }
    }

    /// Returns `slots - used`, negative after a busy pool was shrunk; `None` if unlimited.
    pub fn open(&self) -> Option<i64> {
        self.spec.slots.open(self.used)
    }
}

/// The slots of a pool's tasks, summed by what the tasks are doing (Airflow: `Pool.slots_stats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolStats {
    /// The pool's size.
    pub total: Slots,
    /// Slots of running tasks.
    pub running: i64,
    /// Slots of admitted tasks that have not started yet.
    pub queued: i64,
    /// Slots that ready tasks wait for, or that they kept while sensing.
    pub scheduled: i64,
    /// Slots that sensing tasks need, whether or not they keep them.
    pub sensing: i64,
    /// `total - used`; `None` if unlimited.
    pub open: Option<i64>,
}

impl PoolStats {
    /// Creates the sums from a store's counts. For stores.
    pub fn new(pool: &PoolRecord, running: i64, queued: i64, scheduled: i64, sensing: i64) -> Self {
        Self { total: pool.spec.slots, running, queued, scheduled, sensing, open: pool.open() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_refuses_other_words_and_large_numbers() {
        assert!(serde_json::from_str::<Slots>("\"many\"").is_err());
        assert!(serde_json::from_str::<Slots>("-1").is_err());
        assert!(serde_json::from_str::<Slots>("2147483648").is_err());
        assert_eq!(serde_json::from_str::<Slots>("2147483647").unwrap(), Slots::Limited(MAX_SLOTS));
    }

    #[test]
    fn refuses_a_pool_above_the_cap() {
        assert!(PoolSpec::new("p", Slots::Limited(MAX_SLOTS + 1)).is_err());
    }
}
