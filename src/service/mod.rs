//! Services.
pub mod lifecycle;
