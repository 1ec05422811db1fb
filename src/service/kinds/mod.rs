//! Ready-made kinds of sensors.
//!
//! | kind | waits until | lands with |
//! |---|---|---|
//! | [`FileExists`] `file_exists` | a file is there, by path or glob, and old enough | `{"path": …, "bytes": …}` |
//! | [`TimeReached`] `time_reached` | an instant has come | nothing |
//! | [`TaskEnded`] `task_ended` | another task of the store has ended | that task's value |
//! | [`RunEnded`] `run_ended` | a run of the active-run index has stopped | its status |
//!
//! Each is a plain struct that serialises to the poke context. [`Condition::sensor`] turns it into a sensor,
//! and [`builtin`] registers all of them with a poker. A context holds everything that its poke needs, so any
//! process can run the poke. Give absolute paths that mean the same on every machine with a poker. An invalid
//! context ends its sensors as failed, with a message that says what to correct.
//!
//! A host writes its own kinds in the same way. `examples/orchestrator/kinds` has one that runs a command,
//! and one that connects to a port.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use stationmaster::sensor::Settings;
//! use stationmaster::service::kinds::{Condition, FileExists, builtin};
//! use stationmaster::service::Poker;
//! use stationmaster::store::MemoryStore;
//! use stationmaster::{LeaseRef, TaskId};
//!
//! let store = std::sync::Arc::new(MemoryStore::new());
//! let poker = builtin(Poker::new(store.clone(), "poker".try_into()?), store)?;
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
use crate::error::{Invalid, Result};
use crate::id::SensorKind;
use crate::lease::LeaseRef;
use crate::sensor::{NewSensor, PokeOutcome, Settings};
use crate::store::Store;

/// What a sensor of one kind waits for, as a type. Implement it for the contexts of your own kinds, too.
pub trait Condition: Serialize + DeserializeOwned {
    /// The name of the kind.
    const KIND: &'static str;

    /// A valid context, shown in the message for an invalid one.
    const EXAMPLE: &'static str;

    /// Returns the kind.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if [`Self::KIND`] is not a valid name.
    fn kind() -> Result<SensorKind, Invalid> {
        SensorKind::new(Self::KIND)
    }

    /// Returns the poke context. Equal conditions give equal contexts, and so share their pokes.
    ///
    /// # Errors
    ///
    /// [`CanonicalError`] if it has no canonical form: it is too large, or a path is not UTF-8.
    fn context(&self) -> Result<PokeContext, CanonicalError> {
        PokeContext::of(self)
    }

    /// Creates the sensor that waits for the condition in place of this running task.
    ///
    /// # Errors
    ///
    /// As [`Self::kind`] and [`Self::context`].
    fn sensor(&self, lease: LeaseRef, settings: Settings) -> Result<NewSensor> {
        Ok(NewSensor::new(lease, Self::kind()?, self.context()?, settings))
    }

    /// Parses a context, which is what a poke does first. A context that does not fit is a
    /// [`PokeOutcome::Failed`].
    ///
    /// # Errors
    ///
    /// The outcome that the poke should return.
    fn read(context: &PokeContext) -> Result<Self, PokeOutcome> {
        context.decode().map_err(|error| Self::wrong(&error.to_string()))
    }

    /// Returns the outcome for an invalid context: a [`PokeOutcome::Failed`] that says what to correct.
    fn wrong(problem: &str) -> PokeOutcome {
        let (kind, example) = (Self::KIND, Self::EXAMPLE);
        PokeOutcome::Failed(format!(
            "the context of this {kind} sensor is wrong: {problem}: register it with, say, {example}"
        ))
    }
}

/// Registers all kinds of this module with a poker, under their names. [`TaskEnded`] and [`RunEnded`] look in
/// `store`.
///
/// # Errors
///
/// [`Invalid`] if a name were refused, which does not happen.
pub fn builtin(poker: Poker, store: Arc<dyn Store>) -> Result<Poker> {
    Ok(poker
        .kind(FileExists::kind()?, file_exists)
        .kind(TimeReached::kind()?, time_reached)
        .kind(TaskEnded::kind()?, task_ended(Arc::clone(&store)))
        .kind(RunEnded::kind()?, run_ended(store)))
}
