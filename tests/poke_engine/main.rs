//! Pokes that hang, panic, come late, come in batches or cannot look: what they do to their sensors, and to all others. Schedules
//! are checked by a clock that the test moves.
#![allow(clippy::unwrap_used)]

mod batches;
mod bounds;
mod hangs;
mod late;
mod leases;
mod outages;
mod scene;
mod steady;
#[path = "../stores/mod.rs"]
mod stores;
