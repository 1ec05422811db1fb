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
    /// The state of the pools and limits that its lanes name, or of every pool if the policy is a window:
    /// [`super::Planner::feed_capacity`]. Pools and limits that do not exist are left out of the input.
    Capacity,
    /// Ready tasks of these lanes: [`super::Planner::feed_candidates`].
    Candidates(Vec<LanePage>),
    /// At most this many lanes that do not sleep: [`super::Planner::feed_lanes`]. The caller records `marks`
    /// first.
    Lanes { of: Behind, limit: usize, marks: Vec<Mark> },
    /// Nothing more: [`super::Planner::finish`].
    Nothing,
}

/// Which unread lanes a planner requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Lanes without a share whose first tasks are behind this place.
    Place(OrderKey),
    /// The first lanes of shares whose turns are behind this one.
    Turn(Turn),
    /// Other lanes of one share.
    Of(UnreadOf),
}

/// What a tick should commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The tasks to admit, in order.
    pub(crate) admit: Vec<Candidate>,
    /// The ready tasks left waiting, by lane, for the lanes that the tick names.
    pub(crate) refusals: Vec<Refusal>,
    /// Whether there were more lanes than the tick names.
    pub(crate) more_lanes: bool,
    /// Whether the tick ended without reading some lanes: another tick may admit from them.
    pub(crate) is_cut: bool,
    /// The marks that still have to be recorded.
    pub(crate) marks: Vec<Mark>,
    /// The workflows of [`super::AirflowWindow::missing`] that the tick encountered, in key order.
    pub(crate) missing: Vec<LimitKey>,
    /// What each key with a rate owes after these starts.
    pub(crate) rates: Vec<RateUse>,
    /// The use of each share whose tasks start, after these starts.
    pub(crate) shares: Vec<ShareUse>,
    /// The earliest instant at which a refused task gets a token that it waits for.
    pub(crate) next_token: Option<Timestamp>,
}
