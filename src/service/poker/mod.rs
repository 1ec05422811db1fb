//! The poker: polls what sensors wait for. [`Poker`] documents its protocol.

mod counts;
mod crew;
mod cycle;
#[cfg_attr(not(feature = "tokio"), allow(dead_code, unreachable_pub))]
mod distant;
mod ends;
mod follow;
mod kinds;
mod life;
mod options;
mod probe;
mod report;
mod savings;
mod shards;
mod worker;

#[cfg(feature = "tokio")]
pub(crate) use distant::{AsyncProbe, BoxFuture};
pub use probe::{Poke, PokeLog, PokeMany, PokeRequest};
pub use report::PokeReport;
pub use worker::Poker;
