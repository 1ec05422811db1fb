//! Stub, replaced at the merge.
#![allow(missing_docs)]
use crate::fingerprint::Fingerprint;
use std::num::NonZeroU32;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShardLimit(pub NonZeroU32);
impl Default for ShardLimit {
    fn default() -> Self {
        Self(NonZeroU32::new(10_000).unwrap())
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardCode(pub u32);
impl ShardCode {
    pub fn of(f: Fingerprint, l: ShardLimit) -> Self {
        Self((f.0 % u64::from(l.0.get())) as u32)
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShardRange {
    pub start: u32,
    pub end: u32,
}
impl ShardRange {
    pub fn contains(&self, c: ShardCode) -> bool {
        (self.start..self.end).contains(&c.0)
    }
}
