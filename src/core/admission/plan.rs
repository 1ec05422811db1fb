//! What a planner requests, and the plan that it returns.

use super::contenders::{Turn, UnreadOf};
use super::lane::{Candidate, LanePage};
use super::limits::RateUse;
use super::order::OrderKey;
use super::share::ShareUse;
use super::sleep::Mark;
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
    /// At most this many lanes that do not sleep: [`super::Planner::feed_lanes`]. The marks made so far are
    /// recorded first.
    Lanes { of: Behind, limit: usize, marks: Vec<Mark> },
    /// Nothing more: [`super::Planner::finish`].
    Nothing,
}

/// Which of the lanes that were not read a planner requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Those without a share whose first tasks are behind this place.
    Place(OrderKey),
    /// The first lanes of shares that have their turns behind this one.
    Turn(Turn),
    /// Other lanes of one share.
    Of(UnreadOf),
}

/// What a tick should commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The tasks to admit, in order.
    pub(crate) admit: Vec<Candidate>,
    /// The ready tasks left waiting, by lane, of the lanes that are named.
    pub(crate) refusals: Vec<Refusal>,
    /// Whether there were more lanes than are named.
    pub(crate) more_lanes: bool,
    /// Whether it ended before lanes that it did not read: another tick may admit from them.
    pub(crate) is_cut: bool,
    /// The marks that are still to be made.
    pub(crate) marks: Vec<Mark>,
    /// Those of [`super::AirflowWindow::missing`] that the tick met, in order of the keys.
    pub(crate) missing: Vec<LimitKey>,
    /// What the keys that have a rate owe after these starts.
    pub(crate) rates: Vec<RateUse>,
    /// What the shares whose tasks start hold after these starts.
    pub(crate) shares: Vec<ShareUse>,
    /// When the first token comes that one of the refused tasks waits for.
    pub(crate) next_token: Option<Timestamp>,
}
