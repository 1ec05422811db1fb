//! The result of a poke, and its effect on the sensors that share the poke.

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
    /// The condition has not been met yet. The text says how far it is, for example
    /// `3 of 5 partitions are there`. Only the log uses it. Otherwise this is like [`NotYet`](Self::NotYet).
    Progress(String),
    /// The condition is met. Each sensor receives the host's text.
    Landed(Option<String>),
    /// The poke could not check its target, for example because of the network, a quota, a panic or a passed
    /// deadline. It is retried after growing pauses. In the end the sensor is given up
    /// ([`Poker::retry_window`](crate::service::Poker::retry_window)).
    Unreachable(String),
    /// The condition will never be met, so there is no point in waiting longer.
    Failed(String),
}

/// Whether a sensor still waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SensorState {
    /// It waits and is poked.
    Waiting,
    /// It has ended. The row is kept for a while so that followers of the change cursor see the end.
    Ended,
}

/// Why a sensor stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndReason {
    /// The awaited condition was met.
    Landed,
    /// It waited for as long as it may ([`super::Settings::timeout`]).
    TimedOut,
    /// Its attempt waited for as long as an attempt may ([`super::Settings::execution_timeout`]).
    ExecutionTimedOut,
    /// Its target could not be checked for too long.
    Unreachable,
    /// Its poke reported that the condition will never be met.
    Failed,
    /// The host took the task away from the sensor.
    Cancelled,
}

impl EndReason {
    /// Returns the name as in JSON. Logs and metric labels use the same name.
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

/// The end of a sensor, and its effect on the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// Why it ended.
    pub reason: EndReason,
    /// The task's next state.
    pub to: TaskState,
    /// The value with which it landed.
    pub value: Option<String>,
    /// The message for humans.
    pub message: Option<String>,
}

impl Ending {
    /// Creates an end with this reason that moves the task to this state.
    pub fn new(reason: EndReason, to: TaskState) -> Self {
        Self { reason, to, value: None, message: None }
    }

    setters! {
        /// Sets the message for humans.
        message: Option<String>;
        /// Sets the value with which it landed.
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
    /// Returns the state to which the task moves if the awaited condition is not met.
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

/// Returns how a poke's result at `now` ends one of the sensors that share the poke, or `None` if the sensor
/// continues to wait.
///
/// A landing takes precedence over a timeout that has passed meanwhile. A poke that could not check its
/// target does not. [`super::give_up`] decides how long a sensor tolerates such pokes.
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
