//! The retry policy: how long to wait after a failure, and when to give up. Plain data.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::airflow::AirflowVersion;
use super::jitter::Jitter;
use crate::base::setters;
use crate::error::Invalid;
use crate::seconds;

/// The default cap per delay: one day, as in Airflow since 2.6.
pub const DEFAULT_CAP: Duration = Duration::from_secs(86_400);

/// When a failed task runs again, and when it does not.
///
/// Created by [`none`](Self::none), or by [`fixed`](Self::fixed), [`exponential`](Self::exponential) and
/// [`airflow`](Self::airflow), which start a [`RetryPolicyBuilder`]. A policy that was built or read from
/// JSON is valid, so no function that takes a policy can fail.
///
/// # JSON
///
/// One flat object. Durations are numbers of seconds (see [`crate::seconds`] for the precision). Only
/// `delay_s` is required. Unknown fields are refused. Missing fields have the builder's defaults.
///
/// ```json
/// {"delay_s":30,"multiplier":2.0,"jitter":"hashed","cap_s":86400,"max_delay_s":600,"max_attempts":5,"budget_s":3600}
/// {"delay_s":300,"multiplier":2.0,"cap_s":86400,"airflow":"2.10"}
/// ```
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::backoff::{Jitter, RetryPolicy};
///
/// let policy = RetryPolicy::exponential(Duration::from_secs(30))
///     .max_delay(Duration::from_secs(600))
///     .max_attempts(5)
///     .budget(Duration::from_secs(3600))
///     .build()?;
/// assert_eq!(policy.jitter(), Jitter::Hashed);
///
/// let text = serde_json::to_string(&policy).unwrap();
/// assert_eq!(serde_json::from_str::<RetryPolicy>(&text).unwrap(), policy);
/// assert!(serde_json::from_str::<RetryPolicy>(r#"{"delay_s":30,"multiplier":0.5}"#).is_err());
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Draft", into = "Draft")]
pub struct RetryPolicy {
    pub(super) delay: Duration,
    pub(super) multiplier: f64,
    pub(super) jitter: Jitter,
    pub(super) cap: Duration,
    pub(super) max_delay: Option<Duration>,
    pub(super) max_attempts: Option<NonZeroU32>,
    pub(super) budget: Option<Duration>,
    pub(super) airflow: Option<AirflowVersion>,
    /// False if this policy replaces stored text that is not a policy of this version.
    pub(super) readable: bool,
}

/// The multiplier is never NaN.
impl Eq for RetryPolicy {}

impl RetryPolicy {
    /// Returns a policy that never retries: it allows one attempt. This is the default.
    pub const fn none() -> Self {
        Self {
            delay: Duration::ZERO,
            multiplier: 1.0,
            jitter: Jitter::None,
            cap: DEFAULT_CAP,
            max_delay: None,
            max_attempts: Some(NonZeroU32::MIN),
            budget: None,
            airflow: None,
            readable: true,
        }
    }

    /// Returns the policy that a store wrote as this text. If the text cannot be read, for example because a
    /// newer version wrote it, the policy never retries, and [`decide`](super::decide) returns the reason.
    /// One such row must not prevent reading the others.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn stored(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or(Self { readable: false, ..Self::none() })
    }

    /// Starts a policy that waits the same time after each failure.
    ///
    /// Defaults: no jitter, a cap of one day, no maximum, no limit of attempts, no budget.
    #[must_use = "call `build` to get the policy"]
    pub fn fixed(delay: Duration) -> RetryPolicyBuilder {
        RetryPolicyBuilder(Draft { delay_s: delay, ..Draft::default() })
    }

    /// Starts a policy that waits `base * multiplier^(attempt - 1)`, spread by its jitter.
    ///
    /// Defaults: multiplier 2, [`Jitter::Hashed`], a cap of one day, no maximum, no limit of attempts, no
    /// budget.
    #[must_use = "call `build` to get the policy"]
    pub fn exponential(base: Duration) -> RetryPolicyBuilder {
        RetryPolicyBuilder(Draft { delay_s: base, multiplier: Some(2.0), ..Draft::default() })
    }

    /// Starts a policy that waits exactly as this version of Airflow does with `retry_delay` and
    /// `retry_exponential_backoff=True`.
    ///
    /// The workflow is used as the DAG, and the attempt as the stored try number. Defaults: multiplier 2 (use
    /// 1 for `retry_exponential_backoff=False`), the version's cap, no maximum, no limit of attempts, no
    /// budget. The jitter is Airflow's and cannot be chosen. See [`AirflowRetry`](super::AirflowRetry) for
    /// the formula.
    #[must_use = "call `build` to get the policy"]
    pub fn airflow(version: AirflowVersion, retry_delay: Duration) -> RetryPolicyBuilder {
        RetryPolicyBuilder(Draft { delay_s: retry_delay, airflow: Some(version), ..Draft::default() })
    }

    /// Returns the delay after the first failure, before jitter.
    pub fn base(&self) -> Duration {
        self.delay
    }

    /// Returns the factor by which the delay grows with each attempt; 1 for a fixed delay.
    pub fn multiplier(&self) -> f64 {
        self.multiplier
    }

    /// Returns how retries are spread; [`Jitter::None`] in Airflow mode, which spreads them by its own hash.
    pub fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// Returns the cap per delay.
    pub fn cap(&self) -> Duration {
        self.cap
    }

    /// Returns the task's own maximum per delay; `None` if only the cap applies.
    pub fn max_delay(&self) -> Option<Duration> {
        self.max_delay
    }

    /// Returns the most attempts in total, including the first; `None` if unlimited.
    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts.map(NonZeroU32::get)
    }

    /// Returns how long after the start of the first attempt another may start; `None` if unlimited.
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// Returns the version of Airflow that the policy follows; `None` if the policy is the crate's own.
    pub fn airflow_version(&self) -> Option<AirflowVersion> {
        self.airflow
    }
}

/// The default is [`RetryPolicy::none`].
impl Default for RetryPolicy {
    fn default() -> Self {
        Self::none()
    }
}

/// Collects the parts of a [`RetryPolicy`]. [`build`](Self::build) checks them.
///
/// Durations are truncated to what survives in JSON: see [`crate::seconds::clip`].
#[derive(Debug, Clone)]
pub struct RetryPolicyBuilder(Draft);

impl RetryPolicyBuilder {
    setters! {
        /// Sets the factor by which the delay grows with each attempt: finite and at least 1. A factor of 1
        /// is a fixed delay.
        ///
        /// It is rounded to 15 significant digits and limited to 10^15, so that it survives every JSON
        /// parser.
        multiplier(multiplier: f64) { 0.multiplier = Some(multiplier) }
        /// Sets how retries are spread.
        jitter(jitter: Jitter) { 0.jitter = Some(jitter) }
        /// Sets the operator's cap per delay, above zero. It applies to servers' hints too.
        cap(cap: Duration) { 0.cap_s = Some(cap) }
        /// Sets the task's own maximum per delay, above zero (in Airflow mode zero means no maximum). A
        /// server's hint may exceed it.
        max_delay(max: Duration) { 0.max_delay_s = Some(max) }
        /// Sets the most attempts in total, including the first: retries + 1; at least 1.
        max_attempts(attempts: u32) { 0.max_attempts = Some(attempts) }
        /// Sets how long after the start of the first attempt another may start.
        budget(budget: Duration) { 0.budget_s = Some(budget) }
    }

    /// Checks the parts and creates the policy.
    ///
    /// # Errors
    ///
    /// Returns an [`Invalid`] error that names the part out of range.
    pub fn build(self) -> Result<RetryPolicy, Invalid> {
        RetryPolicy::try_from(self.0)
    }
}

/// A policy that is not yet checked: the builder's parts, and the fields in JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    #[serde(with = "seconds")]
    delay_s: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    multiplier: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jitter: Option<Jitter>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "seconds::option")]
    cap_s: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "seconds::option")]
    max_delay_s: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "seconds::option")]
    budget_s: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    airflow: Option<AirflowVersion>,
}

impl TryFrom<Draft> for RetryPolicy {
    type Error = Invalid;

    fn try_from(draft: Draft) -> Result<Self, Invalid> {
        let (default_multiplier, default_cap) = match draft.airflow {
            Some(version) => (2.0, version.default_cap()),
            None => (1.0, DEFAULT_CAP),
        };
        let multiplier = draft.multiplier.unwrap_or(default_multiplier);
        if !(multiplier.is_finite() && multiplier >= 1.0) {
            return Err(Invalid::Multiplier { given: multiplier });
        }
        let multiplier = surviving(multiplier);
        let cap = seconds::clip(draft.cap_s.unwrap_or(default_cap));
        if cap.is_zero() {
            return Err(Invalid::ZeroMaximum { what: "a cap" });
        }
        let max_attempts = match draft.max_attempts.map(NonZeroU32::new) {
            Some(None) => return Err(Invalid::NoAttempts),
            Some(some) => some,
            None => None,
        };
        let mut max_delay = draft.max_delay_s.map(seconds::clip);
        let jitter = match draft.airflow {
            Some(version) => {
                if draft.jitter.is_some() {
                    return Err(Invalid::AirflowJitter);
                }
                if !version.takes_any_multiplier() && multiplier != 1.0 && multiplier != 2.0 {
                    return Err(Invalid::AirflowMultiplier { given: multiplier });
                }
                max_delay = max_delay.filter(|max| !max.is_zero());
                Jitter::None
            }
            None if max_delay.is_some_and(|max| max.is_zero()) => {
                return Err(Invalid::ZeroMaximum { what: "a maximum delay" });
            }
            None => draft.jitter.unwrap_or(if multiplier > 1.0 { Jitter::Hashed } else { Jitter::None }),
        };
        if jitter == Jitter::Decorrelated && multiplier == 1.0 {
            return Err(Invalid::DecorrelatedFixed);
        }
        Ok(Self {
            delay: seconds::clip(draft.delay_s),
            multiplier,
            jitter,
            cap,
            max_delay,
            max_attempts,
            budget: draft.budget_s.map(seconds::clip),
            airflow: draft.airflow,
            readable: true,
        })
    }
}

/// Returns the multiplier as every JSON parser reads it back. Without `float_roundtrip`, the parser of
/// `serde_json` is exact up to 15 digits.
fn surviving(multiplier: f64) -> f64 {
    let multiplier = multiplier.min(1e15);
    format!("{multiplier:.14e}").parse().unwrap_or(multiplier)
}

impl From<RetryPolicy> for Draft {
    fn from(policy: RetryPolicy) -> Self {
        Self {
            delay_s: policy.delay,
            multiplier: Some(policy.multiplier),
            jitter: policy.airflow.is_none().then_some(policy.jitter),
            cap_s: Some(policy.cap),
            max_delay_s: policy.max_delay,
            max_attempts: policy.max_attempts.map(NonZeroU32::get),
            budget_s: policy.budget,
            airflow: policy.airflow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn refuses_what_is_out_of_range() {
        for given in [f64::NEG_INFINITY, -1.0, 0.0, 0.999, f64::INFINITY, f64::NAN] {
            let refused = RetryPolicy::exponential(SECOND).multiplier(given).build();
            assert!(matches!(refused, Err(Invalid::Multiplier { .. })), "{given}");
        }
        let nano = Duration::from_nanos(999);
        assert_eq!(RetryPolicy::fixed(SECOND).max_attempts(0).build(), Err(Invalid::NoAttempts));
        assert!(matches!(RetryPolicy::fixed(SECOND).cap(nano).build(), Err(Invalid::ZeroMaximum { .. })));
        assert!(matches!(
            RetryPolicy::fixed(SECOND).max_delay(nano).build(),
            Err(Invalid::ZeroMaximum { .. })
        ));
        let decorrelated = RetryPolicy::fixed(SECOND).jitter(Jitter::Decorrelated).build();
        assert_eq!(decorrelated, Err(Invalid::DecorrelatedFixed));
    }

    #[test]
    fn airflow_takes_what_airflow_takes() {
        let old = || RetryPolicy::airflow(AirflowVersion::V2_10, SECOND);
        assert_eq!(old().build().unwrap().multiplier(), 2.0);
        assert_eq!(old().multiplier(3.0).build(), Err(Invalid::AirflowMultiplier { given: 3.0 }));
        assert_eq!(old().jitter(Jitter::Full).build(), Err(Invalid::AirflowJitter));
        assert_eq!(old().max_delay(Duration::ZERO).build().unwrap().max_delay(), None);
        assert!(RetryPolicy::airflow(AirflowVersion::V3_2, SECOND).multiplier(3.0).build().is_ok());
    }

    #[test]
    fn json_is_checked_and_defaults_are_the_builders() {
        let read = |text| serde_json::from_str::<RetryPolicy>(text);
        assert_eq!(read(r#"{"delay_s":1}"#).unwrap(), RetryPolicy::fixed(SECOND).build().unwrap());
        assert_eq!(
            read(r#"{"delay_s":1,"multiplier":2}"#).unwrap(),
            RetryPolicy::exponential(SECOND).build().unwrap()
        );
        assert_eq!(
            read(r#"{"delay_s":1,"airflow":"2.5"}"#).unwrap(),
            RetryPolicy::airflow(AirflowVersion::V2_5, SECOND).build().unwrap()
        );
        for refused in [
            "{}",
            r#"{"delay_s":-1}"#,
            r#"{"delay_s":1,"multiplier":0.9}"#,
            r#"{"delay_s":1,"max_attempts":0}"#,
            r#"{"delay_s":1,"max_delays_s":9}"#,
            r#"{"delay_s":1,"airflow":"2.10","jitter":"full"}"#,
        ] {
            assert!(read(refused).is_err(), "{refused}");
        }
        assert_eq!(
            read(&serde_json::to_string(&RetryPolicy::none()).unwrap()).unwrap(),
            RetryPolicy::default()
        );
    }
}
