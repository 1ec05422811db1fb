//! Numbers that distinguish two services with the same name.

use std::hash::{BuildHasher, RandomState};

/// Draws a random number that no other service has, in this process or another.
pub(super) fn draw() -> u64 {
    // The keys of a hasher come from the operating system, but a forked process draws the same ones.
    RandomState::new().hash_one(std::process::id())
}
