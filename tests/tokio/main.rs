//! Stores, services and pokes on a tokio runtime: what may be dropped, what may hang, and that nothing blocks.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

#[cfg(feature = "sqlite")]
mod blocking;
mod cut;
mod fleet;
mod keeper;
mod operations;
mod outside;
#[cfg(feature = "postgres")]
mod own_rows;
mod pokes;
#[allow(dead_code)]
#[path = "../poke_engine/scene.rs"]
mod scene;
mod services;
#[path = "../stores/mod.rs"]
mod stores;
mod trouble;
mod worker;
