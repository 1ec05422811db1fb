//! The vocabulary: validated names, instants, clocks, errors and the limits of input.

pub mod bounds;
pub mod clock;
pub mod error;
pub mod id;
mod setters;
pub mod time;

pub(crate) use setters::setters;
