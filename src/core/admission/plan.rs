//! What a planner requests, and the plan that it returns.

use super::lane::{Candidate, LanePage};
use super::limits::RateUse;
use super::share::ShareUse;
use super::verdict::Refusal;
use crate::id::LimitKey;
use crate::time::Timestamp;

/// What a [`super::Planner`] must be fed next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Need {
    /// The state of the pools and limits that its lanes name, and in a window of every pool:
    /// [`super::Planner::feed_capacity`]. What does not exist is left out of the input.
    Capacity,
    /// Ready tasks of these lanes: [`super::Planner::feed_candidates`].
    Candidates(Vec<LanePage>),
    /// Nothing more: [`super::Planner::finish`].
    Nothing,
}

/// What a tick should commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The tasks to admit, in order.
    pub(crate) admit: Vec<Candidate>,
    /// The ready tasks left waiting, by lane.
    pub(crate) refusals: Vec<Refusal>,
    /// Those of [`super::AirflowWindow::missing`] that the tick met, in order of the keys.
    pub(crate) missing: Vec<LimitKey>,
    /// What the keys that have a rate owe after these starts.
    pub(crate) rates: Vec<RateUse>,
    /// What the shares whose tasks start hold after these starts.
    pub(crate) shares: Vec<ShareUse>,
    /// When the first token comes that one of the refused tasks waits for.
    pub(crate) next_token: Option<Timestamp>,
}
