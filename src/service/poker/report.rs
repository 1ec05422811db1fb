//! What a poke cycle tells.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::service::run::Report;

/// The numbers of one tick of a [`super::Poker`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PokeReport {
    /// Shards that this worker holds.
    pub shards: u32,
    /// Shards that nobody held when it last renewed: workers may still come back for them, or all have as
    /// many as they may ([`most_shards`](super::PokerOptions::most_shards)). Their sensors are not poked.
    pub unclaimed: u32,
    /// Until when another poker of its name counts as alive. While it does, this one holds nothing; it is due
    /// at this instant, and takes over then unless the other has renewed. `None` if the name is its own.
    pub name_taken_until: Option<DateTime<Utc>>,
    /// Sensors that it holds in memory.
    pub sensors: usize,
    /// Poke groups, that is distinct targets, that it holds in memory.
    pub groups: usize,
    /// Shards that it took in this tick: at its start, or from a worker that left or died.
    pub gained: usize,
    /// Sensors read from the store: registered, changed or ended since the last tick, or taken over.
    pub loaded: usize,
    /// Groups that came due in this tick.
    pub due: usize,
    /// Pokes whose answers were taken up, those that passed their deadline among them.
    pub poked: usize,
    /// Pokes that were not needed, because sensors share them.
    pub saved: usize,
    /// How often a target could not be looked at: panics, pokes past their deadline, due times at which its
    /// last poke still hung, and those [held back](Self::held_back) are among them.
    pub unreachable: usize,
    /// Due times at which a target was not poked because too many pokes of its kind hang
    /// ([`max_hung`](super::PokerOptions::max_hung)).
    pub held_back: usize,
    /// Pokes that passed their deadline in this tick.
    pub overran: usize,
    /// Outcomes that came after their deadline. They change nothing.
    pub late: usize,
    /// Sensors that landed.
    pub landed: usize,
    /// Sensors whose poke said that they never will land.
    pub failed: usize,
    /// Sensors that timed out.
    pub timed_out: usize,
    /// Sensors whose target could not be looked at for longer than they bear
    /// ([`retry_window`](super::PokerOptions::retry_window)).
    pub gave_up: usize,
    /// Sensors of kinds that this worker has no poke for. They time out, but are not poked.
    pub unknown_kind: usize,
    /// Groups whose target could not be looked at last time: they are poked after longer pauses.
    pub backed_off: usize,
    /// How often the log panicked ([`PokeLog`](super::PokeLog)).
    pub log_panics: usize,
    /// Groups that are due and wait for a thread, or for a place among the calls of their kind, now that the
    /// tick is over.
    pub waiting: usize,
    /// Groups whose poke was begun and has neither answered nor passed its deadline, now that the tick is
    /// over.
    pub in_flight: usize,
    /// Calls that passed their deadline and have not returned: each holds a thread; of async pokes, only
    /// those that block their runtime.
    pub hung: usize,
    /// Threads that may poke: [`PokerOptions::threads`](super::PokerOptions::threads), less those hung beyond
    /// [`max_hung`](super::PokerOptions::max_hung). At 0 only async kinds are poked; sensors of the others
    /// time out only.
    pub threads: usize,
    /// How long the tick took.
    #[serde(rename = "duration_s", with = "crate::seconds")]
    pub duration: Duration,
    /// When the next poke, timeout or renewal is due.
    pub next_due: Option<DateTime<Utc>>,
}

impl Report for PokeReport {
    fn next_due(&self) -> Option<DateTime<Utc>> {
        self.next_due
    }
}
