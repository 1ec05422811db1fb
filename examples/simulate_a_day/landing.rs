//! The targets of sensors: when an instance of a target lands, and the poke that checks it.

use chrono::DateTime;
use serde::{Deserialize, Serialize};
use stationmaster::Timestamp;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::PokeRequest;
use stationmaster::service::kinds::Condition;

use crate::spread::Dice;
use crate::workload::Target;

/// The poke context: one instance of a target. All tasks that wait for it share its pokes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) target: String,
    /// The beginning of its period.
    pub(crate) period: Timestamp,
}

impl Condition for Instance {
    const KIND: &'static str = "target_landed";
    const EXAMPLE: &'static str = r#"{"target": "orders", "period": "2026-01-05T03:00:00Z"}"#;
}

/// The world outside: a pure function of seed, target and time.
#[derive(Debug, Clone)]
pub(crate) struct Landings {
    dice: Dice,
    targets: Vec<Target>,
}

impl Landings {
    pub(crate) fn new(dice: Dice, targets: &[Target]) -> Self {
        Self { dice, targets: targets.to_vec() }
    }

    /// Returns the instance for a run of this date.
    pub(crate) fn instance(&self, target: &str, date: Timestamp) -> Option<Instance> {
        let every = i64::try_from(self.find(target)?.every_s.as_micros()).unwrap_or(i64::MAX);
        let date = date.as_micros();
        let period = Timestamp::from_micros(date.saturating_sub(date.rem_euclid(every)));
        Some(Instance { target: target.to_owned(), period })
    }

    /// Returns when it lands.
    pub(crate) fn lands_at(&self, instance: &Instance) -> Option<Timestamp> {
        let target = self.find(&instance.target)?;
        let roll = self.dice.roll("lands", &target.name, instance.period.as_micros().unsigned_abs());
        Some(instance.period + target.lands_after_s.at(roll))
    }

    fn find(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == name)
    }
}

impl Landings {
    /// Runs on a thread of the poker, and reads no clock: the request contains the tick's instant.
    pub(crate) fn poke(&self, request: &PokeRequest) -> PokeOutcome {
        match Instance::read(&request.context).map(|instance| self.lands_at(&instance)) {
            Ok(Some(at)) if at <= request.now => PokeOutcome::Landed(Some(DateTime::from(at).to_rfc3339())),
            Ok(Some(_)) => PokeOutcome::NotYet,
            Ok(None) => PokeOutcome::Failed(format!("{} is of no target", request.context)),
            Err(wrong) => wrong,
        }
    }
}
