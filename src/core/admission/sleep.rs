//! What keeps lanes asleep: the marks that a tick with many lanes makes for its refusals.

use serde::{Deserialize, Serialize};

use super::lane::LaneId;
use super::subject::Subject;
use super::verdict::Reason;
use crate::id::LimitKey;
use crate::time::Timestamp;

/// The most lanes with ready tasks that a tick reads completely and names in its refusals.
pub(crate) const NAMED: usize = 256;

/// The most marks that one tick makes.
pub(crate) const MARKS: usize = 10_000;

/// A refusal that applies to all lanes with something in common. It is derived from the first task of one of
/// them.
///
/// **A mark is exact in each committed state:** by the committed counts, what it names refuses. Removing a
/// mark is always safe: it costs one look at the lane, which makes the mark again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mark {
    /// Refuses all lanes with the same queue and pools as this one.
    Class {
        /// One of the lanes.
        lane: LaneId,
        /// The paused queue, or the pool that refuses.
        by: Subject,
        /// True if the pool has too few open slots; false if it is paused, unknown or too small.
        is_full: bool,
    },
    /// Refuses this lane and all lanes with the same queue, pools and cause: a *group*.
    Group {
        /// The lane. It belongs to the group of this cause from now on.
        lane: LaneId,
        /// What refuses it.
        cause: Cause,
        /// When the refusal ends on its own.
        next: Option<Timestamp>,
    },
}

/// What refuses the lanes that carry a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// A pause of the key or of a family.
    Paused(Subject),
    /// A maximum without room for this count.
    Reached(LimitKey, u32),
    /// A rate without a token.
    Spent(LimitKey),
}

impl Cause {
    /// Returns the key whose counts or tokens end the refusal; `None` if a resume ends it.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn key(&self) -> Option<&LimitKey> {
        match self {
            Self::Paused(_) => None,
            Self::Reached(key, _) | Self::Spent(key) => Some(key),
        }
    }
}

impl Mark {
    /// Returns the mark for a refusal; `None` if the refusal ends with the tick.
    pub(super) fn of(lane: LaneId, reason: Reason) -> Option<Self> {
        Some(match reason {
            Reason::Paused { subject: subject @ (Subject::Key(_) | Subject::Family(_)) } => {
                Self::Group { lane, cause: Cause::Paused(subject), next: None }
            }
            Reason::Paused { subject } => Self::Class { lane, by: subject, is_full: false },
            Reason::PoolUnknown { pool } | Reason::NeverFits { pool, .. } => {
                Self::Class { lane, by: Subject::Pool(pool), is_full: false }
            }
            Reason::PoolFull { pool, .. } => Self::Class { lane, by: Subject::Pool(pool), is_full: true },
            Reason::LimitReached { limit, needs, .. } => {
                Self::Group { lane, cause: Cause::Reached(limit, needs), next: None }
            }
            Reason::RateSpent { limit, next, .. } => {
                Self::Group { lane, cause: Cause::Spent(limit), next: Some(next) }
            }
            _ => return None,
        })
    }
}
