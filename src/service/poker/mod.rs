//! The poker: polls what sensors wait for. Its protocol stands with [`Poker`].

mod groups;
mod probe;
mod report;
mod worker;

pub use probe::{Poke, PokeLog, PokeRequest};
pub use report::PokeReport;
pub use worker::{Poker, PokerOptions};
