//! The result of a poke, and what it does to the sensors that share the poke.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::spec::{OnLanded, OnMissed, SensorRecord, Settings};
use crate::base::setters;
use crate::task::TaskState;
use crate::time::Timestamp;

/// The result of one poke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PokeOutcome {
    /// The awaited condition has not been met yet.
    NotYet,
    /// The condition has not been met yet, and the text says how far it is: `3 of 5 partitions are there`.
    /// The text is for the log; otherwise this is like [`NotYet`](Self::NotYet).
    Progress(String),
    /// The condition is met. The host's text is passed to each sensor.
    Landed(Option<String>),
    /// The poke could not check its target: network, quota, a panic, a deadline passed. It is retried after
    /// longer and longer pauses. Finally the sensor is given up
    /// ([`Poker::retry_window`](crate::service::Poker::retry_window)).
    Unreachable(String),
    /// The condition will never be met: waiting longer is pointless.
    Failed(String),
}

/// Whether a sensor still waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SensorState {
    /// It is poked.
    Waiting,
    /// It ended. It is kept for a while so that followers of the change cursor learn of the end.
    Ended,
}

/// Why a sensor stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndReason {
    /// What it waited for has come.
    Landed,
    /// It waited for as long as it may ([`super::Settings::timeout`]).
    TimedOut,
    /// Its attempt waited for as long as an attempt may ([`super::Settings::execution_timeout`]).
    ExecutionTimedOut,
    /// Its target could not be checked for too long.
    Unreachable,
    /// Its poke reported that it will never land.
    Failed,
    /// The host took the task away from it.
    Cancelled,
}

impl EndReason {
    /// Returns the name in JSON, which is also used in logs and as a label of metrics.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::sensor::EndReason;
    /// assert_eq!(EndReason::TimedOut.to_string(), "timed_out");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Landed => "landed",
            Self::TimedOut => "timed_out",
            Self::ExecutionTimedOut => "execution_timed_out",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a sensor's end does to its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// Why it ended.
    pub reason: EndReason,
    /// The task's next state.
    pub to: TaskState,
    /// The value that it landed with.
    pub value: Option<String>,
    /// The message for people.
    pub message: Option<String>,
}

impl Ending {
    /// Creates an end for this reason that takes the task to this state.
    pub fn new(reason: EndReason, to: TaskState) -> Self {
        Self { reason, to, value: None, message: None }
    }

    setters! {
        /// Sets the message for people.
        message: Option<String>;
        /// Sets the value that it landed with.
        value: Option<String>;
    }
}

/// The terms on which a sensor waits: everything that decides its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How long and how often it waits.
    pub(crate) settings: Settings,
    /// When it was registered.
    pub(crate) registered_at: Timestamp,
    /// The first instant at which it has timed out.
    pub(crate) times_out_at: Timestamp,
}

impl Terms {
    /// Returns the state of a task whose sensor missed what it waited for.
    pub(crate) fn missed(&self) -> TaskState {
        match self.settings.on_missed {
            OnMissed::Fail => TaskState::Failed,
            OnMissed::Skip => TaskState::Skipped,
        }
    }
}

#[cfg(test)]
impl Terms {
    /// Creates the terms of a sensor with these settings, registered at this instant.
    pub(crate) fn new(settings: Settings, registered_at: Timestamp) -> Self {
        Self { settings, registered_at, times_out_at: registered_at + settings.longest() }
    }
}

impl From<&SensorRecord> for Terms {
    fn from(sensor: &SensorRecord) -> Self {
        let SensorRecord { settings, registered_at, times_out_at, .. } = *sensor;
        Self { settings, registered_at, times_out_at }
    }
}

/// Returns what a poke's result at `now` does to one of the sensors that share the poke. Returns `None` if
/// the sensor continues to wait.
///
/// A landing takes precedence over a timeout that has passed meanwhile. A poke that could not check its
/// target never does. [`super::give_up`] decides how long a sensor tolerates such pokes.
pub(crate) fn settle(terms: &Terms, poked: &PokeOutcome, now: Timestamp) -> Option<Ending> {
    match poked {
        PokeOutcome::Landed(value) => {
            let to = match terms.settings.on_landed {
                OnLanded::Succeed => TaskState::Success,
                OnLanded::Resume => TaskState::Scheduled,
            };
            Some(Ending::new(EndReason::Landed, to).value(value.clone()))
        }
        PokeOutcome::Failed(message) => {
            Some(Ending::new(EndReason::Failed, terms.missed()).message(Some(message.clone())))
        }
        PokeOutcome::NotYet | PokeOutcome::Progress(_) | PokeOutcome::Unreachable(_)
            if now >= terms.times_out_at =>
        {
            let waited = now.saturating_duration_since(terms.registered_at).as_secs_f64();
            let last = match poked {
                PokeOutcome::Unreachable(message) => format!("; the last poke could not look: {message}"),
                _ => String::new(),
            };
            let (reason, what) = match terms.settings.execution_timeout {
                Some(length) if length < terms.settings.timeout => {
                    (EndReason::ExecutionTimedOut, "sensor attempt")
                }
                _ => (EndReason::TimedOut, "sensor"),
            };
            let message = format!("{what} timed out after {waited:.3} s{last}");
            Some(Ending::new(reason, terms.missed()).message(Some(message)))
        }
        PokeOutcome::NotYet | PokeOutcome::Progress(_) | PokeOutcome::Unreachable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_beats_a_timeout() {
        use std::time::Duration;
        let (second, start) = (Duration::from_secs(1), Timestamp::UNIX_EPOCH);
        let terms = Terms::new(Settings::new(second * 30, second * 60).unwrap(), start);
        assert_eq!(settle(&terms, &PokeOutcome::NotYet, Timestamp::from_micros(59_999_999)), None);
        let late = settle(&terms, &PokeOutcome::NotYet, terms.times_out_at).unwrap();
        assert_eq!((late.reason, late.to), (EndReason::TimedOut, TaskState::Failed));
        let landed = settle(&terms, &PokeOutcome::Landed(None), terms.times_out_at).unwrap();
        assert_eq!(landed.to, TaskState::Success);
    }

    #[test]
    fn reasons_are_shown_as_json_names_them() {
        use EndReason::*;
        for reason in [Landed, TimedOut, ExecutionTimedOut, Unreachable, Failed, Cancelled] {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
        }
    }
}
