//! Stub, replaced at the merge.
#![allow(missing_docs)]
use crate::{canonical::PokeContext, id::SensorKind};
use serde::{Deserialize, Serialize};
use std::hash::Hasher;
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub u64);
impl Fingerprint {
    pub fn of(kind: &SensorKind, context: &PokeContext) -> Self {
        let mut h = siphasher::sip::SipHasher24::new();
        h.write(kind.as_str().as_bytes());
        h.write(context.as_str().as_bytes());
        Self(h.finish())
    }
}
