//! Two or three connections stepped by hand: which of them wait, and what they see.

mod ahead;
mod beats;
mod bounds;
mod cancels;
mod caps;
mod changes;
mod definitions;
mod ends;
mod feed;
mod filed;
mod fold;
mod hand;
mod keys;
mod looks;
mod numbers;
mod open_tick;
mod orders;
mod prepared;
mod retention;
mod scene;
mod sensors;
mod serialize;
mod waits;
