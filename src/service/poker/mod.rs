//! The poker: polls what sensors wait for. [`Poker`] documents its protocol.

mod counts;
mod cycle;
mod ends;
mod engine;
mod follow;
mod kinds;
mod life;
mod options;
mod poke;
mod report;
mod savings;
mod shards;
mod worker;

#[cfg(feature = "tokio")]
pub(crate) use poke::{AsyncProbe, BoxFuture, Probe};
pub use poke::{Poke, PokeLog, PokeMany, PokeRequest};
pub use report::PokeReport;
pub use worker::Poker;
