//! The report of a poke cycle.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::id::SensorKind;
use crate::service::driver::Report;
use crate::service::observer::metrics::*;
#[cfg(feature = "tracing")]
use crate::service::observer::spans::debug_or_warn;
use crate::service::observer::{Emitter, Reported};
use crate::time::Timestamp;

/// The numbers of one tick of a [`super::Poker`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PokeReport {
    /// Shards that this worker holds. A shard with only lent kinds counts for its owner.
    pub shards: u32,
    /// Shards that no worker held when it last renewed. Workers may still come back for them, or every worker
    /// holds as many as it may ([`most_shards`](super::Poker::most_shards)). Their sensors are not poked.
    pub unclaimed: u32,
    /// Until when another poker with its name counts as alive. This one holds nothing until then. It is due at this
    /// instant, and takes over unless the other has renewed. `None` if the name is its own.
    pub name_taken_until: Option<Timestamp>,
    /// Sensors in its memory.
    pub sensors: usize,
    /// Poke groups, that is distinct targets, in its memory.
    pub groups: usize,
    /// Shards that it took over in this tick, fully or for some kinds: at its start, from a worker that left or died,
    /// or as a loan.
    pub gained: usize,
    /// Sensors read from the store: registered, changed or ended since the last tick, or taken over.
    pub loaded: usize,
    /// Groups that became due in this tick.
    pub due: usize,
    /// Pokes whose outcomes were processed, including those that passed their deadline.
    pub poked: usize,
    /// Pokes that were saved because sensors share them.
    pub saved: usize,
    /// How often a target was unreachable. Includes panics, pokes past their deadline, due times at which the
    /// last poke still hung, and those [held back](Self::held_back).
    pub unreachable: usize,
    /// Due times at which a target was not poked because too many pokes of its kind hang
    /// ([`max_hung`](super::Poker::max_hung)).
    pub held_back: usize,
    /// Pokes that passed their deadline in this tick.
    pub overran: usize,
    /// Outcomes that arrived after their deadline. They change nothing.
    pub late: usize,
    /// Sensors that landed.
    pub landed: usize,
    /// Sensors whose poke said that they will never land.
    pub failed: usize,
    /// Sensors that timed out.
    pub timed_out: usize,
    /// Sensors whose target was unreachable for longer than they tolerate
    /// ([`retry_window`](super::Poker::retry_window)).
    pub gave_up: usize,
    /// Due sensors of kinds for which this worker has no poke. They time out, but are not poked.
    pub unknown_kind: usize,
    /// The sensors in its memory whose kind no live worker serves, by kind. They only time out. A worker that
    /// has just started may include kinds that others serve, until its next renewal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unserved: BTreeMap<SensorKind, usize>,
    /// Groups whose target was unreachable last time. They are poked after longer pauses.
    pub backed_off: usize,
    /// How often the log panicked ([`PokeLog`](super::PokeLog)).
    pub log_panics: usize,
    /// Groups that are still due at the end of the tick and wait for a thread, or for one of their kind's concurrent
    /// calls.
    pub waiting: usize,
    /// Groups whose poke had begun by the end of the tick and had neither returned nor passed its deadline.
    pub in_flight: usize,
    /// Calls that passed their deadline and have not returned. Each holds a thread. Async pokes count only if
    /// they block their runtime.
    pub hung: usize,
    /// Threads that may poke: [`Poker::threads`](super::Poker::threads), less those hung beyond
    /// [`max_hung`](super::Poker::max_hung). At 0 only async kinds are poked. Sensors of other kinds
    /// can then only time out.
    pub threads: usize,
    /// How long the tick took.
    #[serde(rename = "duration_s", with = "crate::seconds")]
    pub duration: Duration,
    /// What sharing saves, for each kind that was poked in this tick: its [`sensors`](Self::sensors) and
    /// [`groups`](Self::groups) in memory, its [`poked`](Self::poked) and [`saved`](Self::saved), and the total length
    /// of its calls as [`duration`](Self::duration). The other numbers are zero.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_kind: BTreeMap<SensorKind, Self>,
    /// For one kind: how often its pokes ended with each outcome.
    #[serde(skip)]
    pub(super) outcomes: BTreeMap<&'static str, usize>,
    /// When the next poke, timeout or renewal is due.
    pub next_due: Option<Timestamp>,
}

impl Report for PokeReport {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }
}

impl PokeReport {
    /// Emits the gauges after a tick that did not fail.
    pub(super) fn emit_gauges(&self, to: &Emitter) {
        let gauges = [
            (&SHARDS, self.shards as usize),
            (&SHARDS_UNCLAIMED, self.unclaimed as usize),
            (&POKER_NAME_TAKEN, usize::from(self.name_taken_until.is_some())),
            (&POKE_GROUPS_WAITING, self.waiting),
            (&POKES_IN_FLIGHT, self.in_flight),
            (&POKE_THREADS, self.threads),
            (&POKE_THREADS_HUNG, self.hung),
            (&OUTAGES, self.backed_off),
        ];
        for (metric, value) in gauges {
            to.gauge(metric, &[], value as u64);
        }
    }
}

impl Reported for PokeReport {
    /// Emits the work done, which counts even if the tick failed later.
    fn emit(&self, to: &Emitter) {
        let counters = [
            (&POKES_LATE, self.late),
            (&POKES_HELD_BACK, self.held_back),
            (&GROUPS_DUE, self.due),
            (&SENSORS_LOADED, self.loaded),
            (&SENSORS_UNKNOWN_KIND, self.unknown_kind),
            (&SHARDS_GAINED, self.gained),
            (&LOG_PANICS, self.log_panics),
        ];
        for (metric, more) in counters {
            to.counter(metric, &[], more);
        }
        let ends = [
            ("landed", self.landed),
            ("failed", self.failed),
            ("timed_out", self.timed_out),
            ("unreachable", self.gave_up),
        ];
        for (reason, more) in ends {
            to.counter(&SENSORS_ENDED, &[("reason", reason)], more);
        }
        for (kind, own) in &self.by_kind {
            to.counter(&POKES_SAVED, &[("kind", kind.as_str())], own.saved);
            for (word, more) in &own.outcomes {
                to.counter(&POKES, &[("kind", kind.as_str()), ("outcome", word)], *more);
            }
        }
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let wrong = self.overran + self.log_panics + self.unknown_kind > 0;
        debug_or_warn!(wrong, target: "stationmaster::poker",
            shards = self.shards, gained = self.gained, sensors = self.sensors, groups = self.groups,
            loaded = self.loaded, due = self.due, poked = self.poked, saved = self.saved,
            unreachable = self.unreachable, overran = self.overran, late = self.late,
            held_back = self.held_back, landed = self.landed, failed = self.failed,
            timed_out = self.timed_out, gave_up = self.gave_up, unknown_kind = self.unknown_kind,
            log_panics = self.log_panics, outages = self.backed_off, waiting = self.waiting,
            hung = self.hung, took_s, "cycled");
    }
}
