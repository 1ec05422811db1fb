//! Admission: which ready tasks may run now, and why not the others.
//!
//! The order is total: rank (from the priority), logical date, map index, arrival. The plan of a tick equals a walk
//! over *all* ready tasks in that order which admits each task that fits into what its forerunners left.
//!
//! That walk would cost as much as there are waiting tasks. The planner gets the same answer from *lanes*: all tasks
//! that need the same slots of the same pool and count against the same limits. During one tick capacity only
//! shrinks, so when the head of a lane is refused, so is the rest of the lane. The planner merges the heads of all
//! lanes in a heap and reads from a lane only as far as it admits from it.

mod lane;
pub mod limits;
mod planner;
mod verdict;

pub use lane::{Candidate, Lane, LaneKey, LaneNo, LanePage, OrderKey, rank};
pub use planner::{Need, Plan, Planner};
pub use verdict::{Deferral, Reason};
