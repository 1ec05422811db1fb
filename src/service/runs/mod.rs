//! The door to the store's runs: what a host calls to record, end and watch them, and to draw them over time.
//!
//! Each function takes a transaction of the store's or of the host's and many items. Reading needs no door: see
//! [`RunTx::active_runs`](crate::store::RunTx::active_runs) and its neighbours. Nor has retention:
//! [`RunTx::forget_stopped_runs`](crate::store::RunTx::forget_stopped_runs) never deletes an open run.
//!
//! # Life of a record
//!
//! ```text
//! record ──> open ──stop──> closed ──stop──> closed, corrected ──forget_stopped_runs──> gone
//!             │ ^              │
//!             │ └──record──────┘ re-opened
//!             └──close_silent──> killed, at its last sign of life
//! ```
//!
//! * Whoever works on a run tells so by [`RunTx::beat_runs_if_open`](crate::store::RunTx::beat_runs_if_open). A run is
//!   watched from its first heartbeat on, or from its start if it is recorded with one, and not while it is suspended.
//! * A run that was closed as silent and is alive after all learns it from the answer to its next beat; a host that wants it
//!   back records it [again open](crate::run::RunRecord::reopened).

mod door;
mod series;
mod silence;

pub use door::{EarlyStop, Stopped, record, stop};
pub use series::series;
pub use silence::{Silence, close_silent};
