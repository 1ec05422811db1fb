//! Kinds of sensors that are useful at once.
//!
//! | kind | waits until | lands with |
//! |---|---|---|
//! | [`FileExists`] `file_exists` | a file is there, by path or glob, and old enough | `{"path": …, "bytes": …}` |
//! | [`TimeReached`] `time_reached` | an instant has come | nothing |
//! | [`TaskEnded`] `task_ended` | another task of the store has ended | that task's value |
//! | [`RunEnded`] `run_ended` | a run of the active-run index has stopped | its status |
//!
//! Each is a plain struct that serialises to the poke context; [`Condition::sensor`] makes a sensor of it,
//! [`builtin`] teaches a poker all of them. A context holds all that its poke needs, so that any process can
//! make it: give absolute paths that mean the same on every machine with a poker. A context that makes no
//! sense ends its sensors as failed, with a message that says what to correct.
//!
//! A host writes kinds of its own in the same way: `examples/orchestrator/kinds` has one that runs a command,
//! and one that connects to a port.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use stationmaster::sensor::Settings;
//! use stationmaster::service::kinds::{Condition, FileExists, builtin};
//! use stationmaster::service::{Poker, PokerOptions};
//! use stationmaster::store::MemoryStore;
//! use stationmaster::{LeaseRef, TaskId};
//!
//! let store = std::sync::Arc::new(MemoryStore::new());
//! let poker = builtin(Poker::new(store.clone(), "poker".try_into()?, PokerOptions::default())?, store)?;
//!
//! let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
//! let lease = LeaseRef::new(TaskId(1), 1); // of the running task that waits
//! let sensor = FileExists::matching("/data/2026-01-01/*.csv").min_age(Duration::from_secs(60)).sensor(lease, settings)?;
//! assert_eq!(sensor.context.as_str(), r#"{"glob":"/data/2026-01-01/*.csv","min_age_s":60}"#);
//! # Ok::<(), stationmaster::Error>(())
//! ```

mod file;
mod run;
mod task;
mod time;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use file::{FileExists, file_exists};
pub use run::{RunEnded, run_ended};
pub use task::{TaskEnded, task_ended};
pub use time::{TimeReached, time_reached};

use super::poker::Poker;
use crate::canonical::{CanonicalError, PokeContext};
use crate::error::Result;
use crate::id::{IdError, SensorKind};
use crate::lease::LeaseRef;
use crate::sensor::{NewSensor, PokeOutcome, Settings};
use crate::store::Store;

/// What a sensor of one kind waits for, with types. Implement it for contexts of your own kinds, too.
pub trait Condition: Serialize + DeserializeOwned {
    /// The name of the kind.
    const KIND: &'static str;

    /// A context that is right, to be shown where one is wrong.
    const EXAMPLE: &'static str;

    /// The kind.
    ///
    /// # Errors
    ///
    /// [`IdError`] if [`Self::KIND`] is no name.
    fn kind() -> Result<SensorKind, IdError> {
        SensorKind::new(Self::KIND)
    }

    /// The poke context. Equal conditions give equal contexts, and so share their pokes.
    ///
    /// # Errors
    ///
    /// [`CanonicalError`] if it has no canonical form: it is too large, or a path is not UTF-8.
    fn context(&self) -> Result<PokeContext, CanonicalError> {
        PokeContext::of(self)
    }

    /// The sensor that waits for it instead of this running task.
    ///
    /// # Errors
    ///
    /// As [`Self::kind`] and [`Self::context`].
    fn sensor(&self, lease: LeaseRef, settings: Settings) -> Result<NewSensor> {
        Ok(NewSensor::new(lease, Self::kind()?, self.context()?, settings))
    }

    /// Reads a context back: what a poke does first. A context that does not fit is a [`PokeOutcome::Failed`].
    ///
    /// # Errors
    ///
    /// The answer that the poke should give.
    fn read(context: &PokeContext) -> Result<Self, PokeOutcome> {
        context.decode().map_err(|error| Self::wrong(&error.to_string()))
    }

    /// Returns the answer to a context that makes no sense: a [`PokeOutcome::Failed`] that says what to correct.
    fn wrong(problem: &str) -> PokeOutcome {
        let (kind, example) = (Self::KIND, Self::EXAMPLE);
        PokeOutcome::Failed(format!(
            "the context of this {kind} sensor is wrong: {problem}: register it with, say, {example}"
        ))
    }
}

/// Teaches a poker all kinds of this module, under their names. `store` is where [`TaskEnded`] and
/// [`RunEnded`] look.
///
/// # Errors
///
/// [`IdError`] if a name were refused, which none is.
pub fn builtin(poker: Poker, store: Arc<dyn Store>) -> Result<Poker> {
    Ok(poker
        .kind(FileExists::kind()?, file_exists)
        .kind(TimeReached::kind()?, time_reached)
        .kind(TaskEnded::kind()?, task_ended(Arc::clone(&store)))
        .kind(RunEnded::kind()?, run_ended(store)))
}
