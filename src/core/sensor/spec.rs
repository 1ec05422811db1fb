//! The settings with which a task registers as a sensor, and the stored row.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lifecycle::SensorState;
use crate::base::setters;
use crate::canonical::PokeContext;
use crate::error::Invalid;
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, SensorKind, TaskKey};
use crate::lease::{LeaseRef, TaskId};
use crate::time::Timestamp;
use crate::{seconds, time};

/// What happens to a sensing task when the awaited condition is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnLanded {
    /// It ends as a success, with the landed value.
    #[default]
    Succeed,
    /// It is scheduled again. Its next attempt has the landed value: see
    /// [`Attempt::landed`](crate::service::Attempt::landed).
    Resume,
}

/// What happens to a sensing task when it times out, or its poke reports that it will never land.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnMissed {
    /// It fails.
    #[default]
    Fail,
    /// It is skipped (Airflow: `soft_fail`).
    Skip,
}

/// How long and how often a sensor waits.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::sensor::Settings;
/// let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
/// assert_eq!(settings.interval, Duration::from_secs(30));
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Draft")]
#[non_exhaustive]
pub struct Settings {
    /// The time between two pokes, at least one millisecond. Each registration also causes a poke at once. No
    /// poker goes below its own minimum (`Poker::min_interval`, one second by default), which bounds the rate
    /// of pokes.
    #[serde(rename = "interval_s", with = "seconds")]
    pub interval: Duration,
    /// How long it waits, from its registration; at least one microsecond. A poker then ends it, without a
    /// retry.
    #[serde(rename = "timeout_s", with = "seconds")]
    pub timeout: Duration,
    /// How long the attempt that registered may wait, from its registration; at least one microsecond. After
    /// that the attempt fails, and the task's retry policy decides (Airflow: `execution_timeout`).
    #[serde(
        rename = "execution_timeout_s",
        with = "seconds::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub execution_timeout: Option<Duration>,
    /// How long one poke may take, at least one millisecond. If not set, the poker's options decide. A poker
    /// also has an upper bound of its own (`Poker::max_poke_timeout`, ten minutes by default). The smallest
    /// value in a group counts.
    #[serde(rename = "poke_timeout_s", with = "seconds::option", skip_serializing_if = "Option::is_none")]
    pub poke_timeout: Option<Duration>,
    /// The longest interval. If set, the interval doubles as the sensor waits, up to this value. A sensor
    /// with interval `i` is poked about `i`, `3i`, `7i`, `15i` … after it registered.
    #[serde(rename = "max_interval_s", with = "seconds::option", skip_serializing_if = "Option::is_none")]
    pub max_interval: Option<Duration>,
    /// What happens when it lands.
    pub on_landed: OnLanded,
    /// What happens when it times out or fails.
    pub on_missed: OnMissed,
}

/// [`Settings`] before they are checked.
#[derive(Deserialize)]
struct Draft {
    #[serde(rename = "interval_s", with = "seconds")]
    interval: Duration,
    #[serde(rename = "timeout_s", with = "seconds")]
    timeout: Duration,
    #[serde(rename = "execution_timeout_s", with = "seconds::option", default)]
    execution_timeout: Option<Duration>,
    #[serde(rename = "poke_timeout_s", with = "seconds::option", default)]
    poke_timeout: Option<Duration>,
    #[serde(rename = "max_interval_s", with = "seconds::option", default)]
    max_interval: Option<Duration>,
    #[serde(default)]
    on_landed: OnLanded,
    #[serde(default)]
    on_missed: OnMissed,
}

impl TryFrom<Draft> for Settings {
    type Error = Invalid;
    fn try_from(draft: Draft) -> Result<Self, Invalid> {
        let mut settings = Self::new(draft.interval, draft.timeout)?;
        if let Some(length) = draft.execution_timeout {
            settings = settings.execution_timeout(length)?;
        }
        if let Some(length) = draft.poke_timeout {
            settings = settings.poke_timeout(length)?;
        }
        if let Some(length) = draft.max_interval {
            settings = settings.max_interval(length)?;
        }
        Ok(settings.on_landed(draft.on_landed).on_missed(draft.on_missed))
    }
}

impl Settings {
    /// Creates the settings of a sensor that succeeds when it lands and fails when it times out.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Duration`] if the interval is below one millisecond or the timeout below one
    /// microsecond.
    pub fn new(interval: Duration, timeout: Duration) -> Result<Self, Invalid> {
        let interval = at_least(MILLISECOND, interval, "the poke interval", "at least 1 ms")?;
        let timeout = at_least(MICROSECOND, timeout, "the sensor timeout", "at least 1 microsecond")?;
        Ok(Self {
            interval,
            timeout,
            execution_timeout: None,
            poke_timeout: None,
            max_interval: None,
            on_landed: OnLanded::Succeed,
            on_missed: OnMissed::Fail,
        })
    }

    /// Sets how long the attempt may wait.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Duration`] below one microsecond.
    pub fn execution_timeout(mut self, length: Duration) -> Result<Self, Invalid> {
        let length = at_least(MICROSECOND, length, "the execution timeout", "at least 1 microsecond")?;
        self.execution_timeout = Some(length);
        Ok(self)
    }

    /// Sets how long one poke may take.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Duration`] below one millisecond.
    pub fn poke_timeout(mut self, length: Duration) -> Result<Self, Invalid> {
        self.poke_timeout = Some(at_least(MILLISECOND, length, "the poke timeout", "at least 1 ms")?);
        Ok(self)
    }

    /// Makes the interval double as the sensor waits, up to this value.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Duration`] if the length is less than the interval.
    pub fn max_interval(mut self, length: Duration) -> Result<Self, Invalid> {
        let length = at_least(self.interval, length, "the longest interval", "at least the interval")?;
        self.max_interval = Some(length);
        Ok(self)
    }

    /// Returns the longest time that a sensor waits, whichever timeout ends it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::sensor::Settings;
    /// let hour = Duration::from_secs(3600);
    /// let settings = Settings::new(Duration::from_secs(30), hour)?.execution_timeout(hour / 2)?;
    /// assert_eq!(settings.longest(), hour / 2);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn longest(&self) -> Duration {
        self.execution_timeout.map_or(self.timeout, |length| length.min(self.timeout))
    }

    setters! {
        /// Sets what happens when it lands.
        on_landed: OnLanded;
        /// Sets what happens when it times out or fails.
        on_missed: OnMissed;
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const MICROSECOND: Duration = Duration::from_micros(1);

/// Truncates a length to whole microseconds that fit into an `i64`, and checks its lower bound.
fn at_least(
    least: Duration,
    length: Duration,
    what: &'static str,
    expected: &'static str,
) -> Result<Duration, Invalid> {
    let length = Duration::from_micros(time::duration_micros(length).unsigned_abs());
    if length < least { Err(Invalid::Duration { what, expected }) } else { Ok(length) }
}

/// A sensor to register on behalf of a running task.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NewSensor {
    /// The lease of the running task.
    pub lease: LeaseRef,
    /// The kind, which selects the poke function.
    pub kind: SensorKind,
    /// What that function checks.
    pub context: PokeContext,
    /// How long and how often it waits.
    pub settings: Settings,
    /// Whether the task has callbacks that only the process that runs it can call. Such a task must not end
    /// while that process is gone. Handlers of the feed do not count, since they run in any process. Only
    /// [`super::SmartSensorConfig::ineligible`] reads this field; it is not stored.
    pub has_callbacks: bool,
}

impl NewSensor {
    /// Creates a sensor for this running task.
    pub fn new(lease: LeaseRef, kind: SensorKind, context: PokeContext, settings: Settings) -> Self {
        Self { lease, kind, context, settings, has_callbacks: false }
    }

    setters! {
        /// Sets whether the task has callbacks that only its own process can call.
        has_callbacks: bool;
    }

    /// Returns the row to store.
    pub fn insert(&self, now: Timestamp) -> SensorInsert {
        SensorInsert {
            lease: self.lease,
            kind: self.kind.clone(),
            context: self.context.clone(),
            fingerprint: Fingerprint::new(&self.kind, &self.context),
            settings: self.settings,
            registered_at: now,
            times_out_at: now + self.settings.longest(),
            registered_by: None,
        }
    }
}

/// A row for [`crate::store::contract::SensorTx::put_sensors`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SensorInsert {
    /// The task, and the grant under which it registered.
    pub lease: LeaseRef,
    /// The kind, which selects the poke function.
    pub kind: SensorKind,
    /// What that function checks.
    pub context: PokeContext,
    /// The hash of the kind and the context.
    pub fingerprint: Fingerprint,
    /// How long and how often it waits.
    pub settings: Settings,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// The first instant at which it has timed out.
    pub times_out_at: Timestamp,
    /// The holder of the lease that it replaces, if known.
    pub registered_by: Option<Holder>,
}

/// A sensor as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SensorRecord {
    /// The number of its task.
    pub id: TaskId,
    /// The epoch of the grant under which it registered. A later epoch fences this registration.
    pub epoch: i64,
    /// The task.
    pub task: TaskKey,
    /// The latest attempt of the task: the one that registered.
    pub attempt: u32,
    /// The number of registrations of this task, from 1.
    pub generation: u64,
    /// The kind, which selects the poke function.
    pub kind: SensorKind,
    /// What that function checks.
    pub context: PokeContext,
    /// The hash of the kind and the context.
    pub fingerprint: Fingerprint,
    /// How long and how often it waits.
    pub settings: Settings,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// The first instant at which it has timed out.
    pub times_out_at: Timestamp,
    /// Who held the task's lease until it registered.
    #[serde(default)]
    pub registered_by: Option<Holder>,
    /// Whether it still waits.
    pub state: SensorState,
    /// The store's change number of the last write; larger is later. Until that change has a number, this is
    /// 0 or the number of an earlier change.
    pub changed: u64,
}

impl SensorRecord {
    /// Creates the row of a sensor that was just registered.
    pub fn registered(
        insert: SensorInsert,
        task: TaskKey,
        attempt: u32,
        generation: u64,
        changed: u64,
    ) -> Self {
        Self {
            id: insert.lease.id,
            epoch: insert.lease.epoch,
            task,
            attempt,
            generation,
            kind: insert.kind,
            context: insert.context,
            fingerprint: insert.fingerprint,
            settings: insert.settings,
            registered_at: insert.registered_at,
            times_out_at: insert.times_out_at,
            registered_by: insert.registered_by,
            state: SensorState::Waiting,
            changed,
        }
    }

    /// Returns the lease that names this registration.
    pub fn lease_ref(&self) -> LeaseRef {
        LeaseRef::new(self.id, self.epoch)
    }
}
