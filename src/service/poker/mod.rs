//! The poker: polls what sensors wait for. Its protocol stands with [`Poker`].

mod crew;
mod cycle;
mod ends;
mod follow;
mod group;
mod groups;
mod kinds;
mod members;
mod options;
mod probe;
mod report;
mod shards;
mod slab;
mod worker;

pub use options::PokerOptions;
pub use probe::{Poke, PokeLog, PokeMany, PokeRequest};
pub use report::PokeReport;
pub use worker::Poker;
