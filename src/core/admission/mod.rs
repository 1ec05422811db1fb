//! Admission: which ready tasks may run now, and why not the others.
//!
//! The order is total: rank (from the priority, and from the waiting time by choice: [`Ageing`]), logical
//! date, map index, arrival. The plan of a tick equals a walk over *all* ready tasks in that order which
//! admits each task that fits into what its forerunners left, and ends when the tick's budget is spent. What
//! becomes of a task that does not fit is the host's choice, a [`Policy`].
//!
//! That walk would cost as much as there are waiting tasks. The planner gets the same answer from *lanes*:
//! all tasks that need the same slots of the same pool and count against the same limits. During one tick
//! capacity only shrinks, so when the head of a lane is refused, so is the rest of the lane. The planner
//! merges the heads of all lanes in a heap and reads from a lane only as far as it admits from it (by
//! [`Policy::Reserve`], one head more).
//!
//! The tasks that a tick leaves have one [`Reason`] per lane: that of the first of them, told by what the
//! tick leaves open.

mod ageing;
pub(crate) mod lane;
pub mod limits;
mod plan;
mod planner;
mod policy;
mod tick_capacity;
mod verdict;
mod window;

pub use ageing::Ageing;
pub(crate) use lane::{Candidate, Lane, LaneId, LaneKey, LanePage, OrderKey};
pub(crate) use plan::{Need, Plan};
pub(crate) use planner::Planner;
pub use policy::{AirflowWindow, Policy};
pub use verdict::{Reason, Refusal};
