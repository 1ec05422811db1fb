//! Common types: validated names, instants, clocks, errors and the caps on input.

pub mod bounds;
pub mod clock;
pub mod error;
pub mod id;
mod setters;
pub mod time;
mod words;

pub(crate) use setters::setters;
pub(crate) use words::words;
