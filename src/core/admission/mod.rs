//! Admission: which ready tasks may run now, and why the others may not.
//!
//! The order is total: rank, logical date, map index, arrival. The rank is computed from the priority and,
//! optionally, the waiting time ([`Ageing`]). Among tasks of equal priority, those of shares take turns
//! instead. The plan of a tick equals a walk over *all* ready tasks in that order. The walk admits each task
//! that fits into the capacity left by its predecessors, and ends when the tick's budget is spent. The host
//! chooses what happens to a task that does not fit: a [`Policy`].
//!
//! The cost of that walk would grow with the number of waiting tasks. The planner gets the same result from
//! *lanes*. A lane is all tasks of one queue that need the same slots of the same pools and count the same
//! against the same limits. Capacity only shrinks during a tick, so if the head of a lane is refused, so is
//! the rest of the lane. The planner merges the heads of all lanes in a heap. It reads from a lane only as
//! far as it admits from it (one head more with [`Policy::Reserve`]).
//!
//! Each task is in a queue, and a tick serves some queues or all. It admits nothing from the other queues.
//! But capacity held by their tasks still counts, and under [`Policy::Reserve`] their tasks keep their place
//! in a full pool.
//!
//! A [`WaitingCap`] limits how many tasks wait in a queue or with a limit key. An enqueue that exceeds it is
//! refused.
//!
//! Tasks that a tick leaves waiting get one [`Reason`] per lane: the reason of the lane's first waiting task,
//! computed from the capacity left after the tick.

mod ageing;
pub(crate) mod cap;
mod contenders;
mod define;
mod heap;
pub(crate) mod lane;
pub mod limits;
pub(crate) mod order;
mod plan;
mod planner;
mod policy;
pub(crate) mod queue;
pub(crate) mod queue_mask;
pub(crate) mod rate;
pub(crate) mod share;
pub(crate) mod sleep;
pub(crate) mod subject;
mod tick_capacity;
mod verdict;
mod window;

pub use ageing::Ageing;
pub use cap::{QueueSpec, WaitingCap};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use contenders::Place;
pub(crate) use contenders::{Pair, Turn, UnreadOf};
pub use define::{Defined, Definition, IfExists, Undefined};
pub(crate) use lane::{Candidate, Lane, LaneId, LaneKey, LanePage};
pub(crate) use order::OrderKey;
pub(crate) use plan::{Behind, Need, Plan};
pub(crate) use planner::Planner;
pub use policy::{AirflowWindow, Policy};
pub use queue::QueueRecord;
pub(crate) use queue::{Serving, leave_unserved, served_until};
pub(crate) use rate::has_token;
pub(crate) use share::{ShareTurn, ShareUse};
pub(crate) use sleep::{Cause, MARKS, Mark, NAMED};
pub use subject::{Drain, Subject};
pub use verdict::{Reason, Refusal};
