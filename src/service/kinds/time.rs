//! Sensors that wait for an instant.

use serde::{Deserialize, Serialize};

use super::Condition;
use crate::sensor::PokeOutcome;
use crate::service::poker::PokeRequest;
use crate::time::Timestamp;

/// Waits until an instant has passed, by the poker's clock. It lands at the first poke after that, so up to
/// an interval late.
///
/// # Examples
///
/// ```
/// use stationmaster::service::kinds::{Condition, TimeReached};
/// use stationmaster::Timestamp;
/// let context = TimeReached::new(Timestamp::from_micros(1_500_000)).context()?;
/// assert_eq!(context.as_str(), r#"{"at":"1970-01-01T00:00:01.500Z"}"#);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeReached {
    at: Timestamp,
}

impl TimeReached {
    /// Waits for this instant.
    pub fn new(at: impl Into<Timestamp>) -> Self {
        Self { at: at.into() }
    }
}

impl Condition for TimeReached {
    const KIND: &'static str = "time_reached";
    const EXAMPLE: &'static str = r#"{"at": "2026-01-01T06:00:00Z"}"#;
}

/// Pokes for [`TimeReached`].
pub fn time_reached(request: &PokeRequest) -> PokeOutcome {
    match TimeReached::read(&request.context) {
        Ok(wanted) if request.now >= wanted.at => PokeOutcome::Landed(None),
        Ok(_) => PokeOutcome::NotYet,
        Err(wrong) => wrong,
    }
}
