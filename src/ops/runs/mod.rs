//! Recording, ending and watching runs, and drawing them over time.
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
//! * A worker on a run sends heartbeats with [`Tx::beat_runs`](crate::store::Tx::beat_runs). A run is watched
//!   from its first heartbeat on, or from its start if it is recorded with one. It is not watched while it is
//!   suspended.
//! * A run that was closed as silent but is alive learns that from its next `beat_runs`. A host that wants it
//!   back records it [open again](crate::run::RunRecord::reopened).

mod record;
mod series;
mod silence;

pub use record::{StopBeforeStart, Stopped};
