//! Waiting: tasks become sensors, the poker polls, and landed tasks continue.

use stationmaster::id::PoolName;
use stationmaster::sensor::{NewSensor, OnLanded, OnMissed, Settings};
use stationmaster::service::Service;
use stationmaster::service::kinds::Condition;
use stationmaster::{Result, TaskKey, TaskRecord, Timestamp};

use super::Day;
use crate::trouble::Trouble;

impl Day<'_> {
    /// Runs one cycle of the poker, and applies the ends to the runs.
    pub(super) fn poke(&mut self, now: Timestamp) -> Result<(), Trouble> {
        let report = self.poker.tick(now)?;
        self.poke_at = report.next_due;
        self.counts.pokes += report.poked;
        self.counts.pokes_saved += report.saved;
        if report.poked > 0 {
            self.trace.note(now, format_args!("poked {}, saved {}", report.poked, report.saved))?;
        }
        self.feed.tick(now)?;
        let ended: Vec<_> = self.ended.try_iter().collect();
        for (task, reason, state) in ended {
            let by = self.seen_by.remove(&task);
            self.trace.note(now, format_args!("{reason} {task}"))?;
            if reason == "landed" {
                self.counts.landed += 1;
                if by.is_none_or(|by| now > by) {
                    self.ledger.violation(now, format!("{}: its landing was seen late", task));
                }
            }
            if let Some((pool, slots)) = self.kept_slots(&task) {
                self.ledger.give_back(&pool, slots);
            }
            // Otherwise it waits for slots again, after landing or for a retry.
            if state.is_end() {
                self.ended(&task, state, now)?;
            }
        }
        Ok(())
    }

    /// Returns what a sensing task holds, if its pool lets it keep slots.
    pub(super) fn kept_slots(&self, key: &TaskKey) -> Option<(PoolName, u32)> {
        let spec = self.runs.spec(self.runs.place(key)?);
        self.keeping.contains(spec.pool.as_str()).then(|| (spec.pool.clone(), spec.pool_slots))
    }

    /// Returns the sensor of a task that must wait first. A task that comes back from waiting has the landed
    /// value.
    pub(super) fn sensor_of(&mut self, task: &TaskRecord, now: Timestamp) -> Result<Option<NewSensor>> {
        let Some(place) = self.runs.place(&task.key) else { return Ok(None) };
        let spec = self.runs.spec(place);
        let Some(wait) = spec.wait_for.as_ref().filter(|_| task.value.is_none()) else { return Ok(None) };
        let Some(instance) = self.landings.instance(&wait.target, self.runs.runs[place.run].date) else {
            return Ok(None);
        };
        let lands = self.landings.lands_at(&instance).unwrap_or(now);
        self.seen_by.insert(task.key.clone(), lands.max(now) + wait.interval_s);
        let then = if spec.takes_s.is_some() { OnLanded::Resume } else { OnLanded::Succeed };
        let missed = if wait.soft_fail { OnMissed::Skip } else { OnMissed::Fail };
        let settings = Settings::new(wait.interval_s, wait.timeout_s)?.on_landed(then).on_missed(missed);
        Ok(Some(instance.sensor(task.lease_ref(), settings)?))
    }

    pub(super) fn hand_over(
        &mut self,
        sensors: &[(NewSensor, TaskRecord)],
        now: Timestamp,
    ) -> Result<(), Trouble> {
        let new: Vec<NewSensor> = sensors.iter().map(|(sensor, _)| sensor.clone()).collect();
        let registered = self.store.write(|tx| tx.register(now, &new))?;
        for ((sensor, task), registered) in sensors.iter().zip(registered) {
            self.trace.note(now, format_args!("waits {} for {}", task.key, sensor.context))?;
            if !registered.is_waiting() {
                self.ledger.violation(now, format!("{} could not register: {registered:?}", task.key));
            }
            if !self.keeping.contains(task.lane.pool.as_str()) {
                self.ledger.give_back(&task.lane.pool, task.held_slots);
            }
        }
        self.counts.sensors += sensors.len();
        // A host would wake the loop of its poker here.
        self.poke_at = Some(now);
        Ok(())
    }
}
