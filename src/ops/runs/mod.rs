//! Recording, ending and watching runs, and series of runs over time.
//!
//! # Life of a record
//!
//! ```text
//! record_runs ──> open ──stop_runs──> closed ──stop_runs──> closed, corrected ──forget_stopped_runs──> gone
//!                  │ ^                  │
//!                  │ └───record_runs────┘ re-opened
//!                  └──close_silent_runs──> killed, at its last heartbeat
//! ```
//!
//! * The worker of a run sends heartbeats with [`Tx::beat_runs`](crate::store::Tx::beat_runs). A run is
//!   watched from its first heartbeat on, or from its start if it is recorded with a heartbeat. It is not
//!   watched while it is suspended.
//! * The worker of a run that was closed as silent but is alive learns this from its next `beat_runs`. To
//!   continue the run, the host records it [open again](crate::run::RunRecord::reopened).

mod record;
mod series;
mod silence;

pub use record::{StopBeforeStart, Stopped};
