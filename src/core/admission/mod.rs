//! Admission: which ready tasks may run now, and why the others may not.
//!
//! The order is total: rank, logical date, map index, arrival. The rank is made from the priority and
//! optionally the waiting time ([`Ageing`]). Tasks of shares take turns instead, among those of equal priority. The
//! plan of a tick equals a walk over *all* ready tasks in that order. The walk admits each task that fits into what
//! its predecessors left, and ends when the tick's budget is spent. The host chooses what happens to a task that
//! does not fit: a [`Policy`].
//!
//! That walk would cost as much as there are waiting tasks. The planner gets the same result from *lanes*. A
//! lane is all tasks of one queue that need the same slots of the same pools and count the same against the same
//! limits. During one tick capacity only shrinks, so if the head of a lane is refused, so is the rest of the
//! lane. The planner merges the heads of all lanes in a heap. It reads from a lane only as far as it admits
//! from it (with [`Policy::Reserve`], one head more).
//!
//! A task is in a queue, and a tick serves some queues or all. It admits nothing from other queues. But what
//! they hold counts, and under [`Policy::Reserve`] their tasks keep their place in a full pool.
//!
//! A [`WaitingCap`] bounds how many tasks wait in a queue or with a limit key. Beyond it an enqueue is refused.
//!
//! The tasks that a tick leaves waiting have one [`Reason`] per lane. It is the reason of the lane's first
//! waiting task, computed from what the tick leaves open.

mod ageing;
pub(crate) mod cap;
mod contenders;
mod define;
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
