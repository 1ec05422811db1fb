//! A set of queues in one word.

use std::collections::BTreeSet;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use crate::id::QueueName;

/// A superset of some queues. Each queue maps to one of 32 bits, the same in every process; several queues
/// share a bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueMask(pub(crate) u32);

impl QueueMask {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(u32::MAX);

    pub(crate) fn of(queue: &QueueName) -> Self {
        // The hash has no seed, because processes of different builds compare masks.
        let mut hasher = SipHasher24::new();
        hasher.write(queue.as_str().as_bytes());
        Self(1 << (hasher.finish() % 32))
    }

    /// Returns the mask of the queues that an admitter serves. `None` means all queues.
    pub(crate) fn serving(queues: Option<&BTreeSet<QueueName>>) -> Self {
        queues.map_or(Self::ALL, |queues| queues.iter().map(Self::of).fold(Self::NONE, Self::and))
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[cfg(feature = "postgres")]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns true if the two sets may have a queue in common.
    #[cfg(feature = "postgres")]
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
