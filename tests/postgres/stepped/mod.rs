//! Two or three connections stepped by hand: which of them wait, and what they see.

mod ends;
mod hand;
mod scene;
mod serialize;
mod waits;
