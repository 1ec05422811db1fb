//! A worker runs what it is granted, ends it once, and stops without leaving anything: handlers on threads.
#![allow(clippy::unwrap_used)]

mod cancels;
mod ends;
#[cfg(feature = "sqlite")]
mod own_rows;
mod places;
mod scene;
mod stops;
#[path = "../stores/mod.rs"]
mod stores;
mod trouble;
#[cfg(feature = "postgres")]
mod turns;
