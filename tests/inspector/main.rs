//! The program `stationmaster`, run on stores with known content.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod edits;
mod refusals;
mod shows;
#[cfg(unix)]
mod terminal;
mod wordings;
mod world;
