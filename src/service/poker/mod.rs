//! The poker: polls what sensors wait for.
//!
//! # One tick
//!
//! 1. *Shards.* At a third of the lease's length the worker renews its life and its shards, gives up what exceeds its quota
//!    and takes what is free ([`crate::sensor::claims`]).
//! 2. *Follow.* It reads what changed since its cursor, in its shards only, and the waiting sensors of the shards it just
//!    took. When nothing changed it reads nothing else.
//! 3. *Poke.* Each group that is due is poked once, on up to `threads` threads; a panic is caught and counts as
//!    [`crate::sensor::Poked::Unreachable`].
//! 4. *Settle.* What landed, failed or timed out is ended in one transaction, with an event per sensor. When nothing ended,
//!    nothing is written.
//!
//! # What holds
//!
//! While its leases hold, a worker alone pokes the groups of its shards; it stops poking a shard when it could not renew its
//! lease in time. A poke whose sensor was cancelled, registered again or ended by another worker meanwhile changes nothing:
//! every end is conditional on the registration's epoch and on the task still sensing. Times to poke are computed from
//! fingerprint and interval alone ([`crate::sensor::next_poke`]), so a restart needs no stored counter.

mod groups;
mod probe;
mod report;
mod worker;

pub use probe::{Poke, PokeLog, PokeRequest};
pub use report::PokeReport;
pub use worker::{Poker, PokerOptions};
