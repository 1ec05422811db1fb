//! The news that a commit may have brought to others.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::pool_set::{PoolNumber, PoolSet};
use crate::core::admission::queue_mask::QueueMask;
use crate::id::{PoolName, QueueName};

/// One kind of change, announced when a transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Tasks became ready.
    Ready,
    /// Slots or limits were returned or changed.
    Capacity,
    Sensors,
    Events,
    /// Holders of leases were asked to stop.
    Cancels,
}

impl News {
    const ALL: [Self; 5] = [Self::Ready, Self::Capacity, Self::Sensors, Self::Events, Self::Cancels];

    const fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Capacity => "capacity",
            Self::Sensors => "sensors",
            Self::Events => "events",
            Self::Cancels => "cancels",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of news.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewsSet {
    bits: u8,
    /// The queues in which tasks became ready.
    queues: QueueMask,
    /// The pools in which they became ready.
    pools: PoolSet,
}

impl NewsSet {
    pub(super) const NONE: Self = Self { bits: 0, queues: QueueMask::NONE, pools: PoolSet::None };
    pub(super) const ALL: Self = Self { bits: 31, queues: QueueMask::ALL, pools: PoolSet::All };

    /// Returns the news that a task of this queue and this pool became ready.
    pub(super) fn ready_in(queue: &QueueName, pool: &PoolName) -> Self {
        let pools = PoolSet::One(PoolNumber::of(pool));
        Self { bits: News::Ready.bit(), queues: QueueMask::of(queue), pools }
    }

    pub(super) fn has(self, news: News) -> bool {
        self.bits & news.bit() != 0
    }

    /// Returns true if tasks became ready in one of these queues, unless all of them are in full pools.
    pub(super) fn is_ready_in(self, queues: QueueMask, full: &[PoolName]) -> bool {
        let is_full = |number| full.iter().any(|pool| PoolNumber::of(pool) == number);
        self.queues.meets(queues) && !self.pools.is_within(is_full)
    }

    pub(super) fn and(self, more: impl Into<Self>) -> Self {
        let more = more.into();
        let (queues, pools) = (self.queues.and(more.queues), self.pools.and(more.pools));
        Self { bits: self.bits | more.bits, queues, pools }
    }

    /// Returns the news that the other set lacks.
    pub(super) fn without(self, other: Self) -> Self {
        let is_known = other.pools == PoolSet::All || self.pools.is_within(|one| other.pools.has(one));
        let queues = if is_known { self.queues.without(other.queues) } else { self.queues };
        let (known, pools) = match queues {
            QueueMask::NONE => (other.bits, PoolSet::None),
            _ => (other.bits & !News::Ready.bit(), self.pools),
        };
        Self { bits: self.bits & !known, queues, pools }
    }

    pub(super) fn is_empty(self) -> bool {
        self.bits == 0
    }
}

impl From<News> for NewsSet {
    fn from(news: News) -> Self {
        let (queues, pools) = match news {
            News::Ready => (QueueMask::ALL, PoolSet::All),
            _ => (QueueMask::NONE, PoolSet::None),
        };
        Self { bits: news.bit(), queues, pools }
    }
}

impl FromIterator<NewsSet> for NewsSet {
    fn from_iter<I: IntoIterator<Item = NewsSet>>(sets: I) -> Self {
        sets.into_iter().fold(Self::NONE, Self::and)
    }
}

/// Identifies a store among all stores, wherever they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreMark(u64);

impl StoreMark {
    pub(super) fn draw() -> Self {
        // The keys of a hasher come from the operating system, but a forked process draws the same ones.
        Self(RandomState::new().hash_one(std::process::id()))
    }
}

/// Precedes the mark of the announcing store in a payload.
const FROM: &str = "from";

/// Precedes the queues in which tasks became ready in a payload, unless these are all queues.
const QUEUES: &str = "queues";

/// Precedes the pools in which they became ready, unless these are all pools.
const POOLS: &str = "pools";

/// The channel for announcements, and the store that makes them.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    pub(super) name: Arc<str>,
    /// `None` in a host's transaction.
    pub(super) from: Option<StoreMark>,
}

impl Channel {
    pub(super) fn payload(&self, news: NewsSet) -> String {
        let mut words: Vec<&str> =
            News::ALL.into_iter().filter(|one| news.has(*one)).map(News::word).collect();
        let is_some = news.has(News::Ready) && news.queues != QueueMask::ALL;
        let queues = is_some.then(|| format!("{:08x}", news.queues.0));
        let pools: Vec<String> = news.pools.numbers().map(|number| format!("{:016x}", number.0)).collect();
        let pools = (!pools.is_empty()).then(|| pools.join(","));
        let mark = self.from.map(|StoreMark(mark)| format!("{mark:016x}"));
        words.extend(queues.iter().flat_map(|queues| [QUEUES, queues]));
        words.extend(pools.iter().flat_map(|pools| [POOLS, pools]));
        words.extend(mark.iter().flat_map(|mark| [FROM, mark]));
        words.join(" ")
    }
}

/// Reads a payload. An unknown word comes from a newer version of the crate, or from another program:
/// anything may have changed.
pub(super) fn read(payload: &str) -> (NewsSet, Option<StoreMark>) {
    let (mut news, mut queues, mut pools, mut from) = (NewsSet::NONE, QueueMask::ALL, PoolSet::All, None);
    let (mut words, mut is_known) = (payload.split_whitespace(), true);
    while let Some(word) = words.next() {
        match word {
            FROM => from = words.next().and_then(|mark| u64::from_str_radix(mark, 16).ok()).map(StoreMark),
            QUEUES => {
                let mask = words.next().and_then(|mask| u32::from_str_radix(mask, 16).ok());
                queues = mask.map_or(QueueMask::ALL, QueueMask);
            }
            POOLS => pools = words.next().and_then(read_pools).unwrap_or(PoolSet::All),
            word => match News::ALL.into_iter().find(|news| news.word() == word) {
                Some(known) => news = news.and(known),
                None => is_known = false,
            },
        }
    }
    if !is_known || news.is_empty() {
        return (NewsSet::ALL, from);
    }
    if news.has(News::Ready) {
        (news.queues, news.pools) = (queues, pools);
    }
    (news, from)
}

fn read_pools(word: &str) -> Option<PoolSet> {
    let number = |word| u64::from_str_radix(word, 16).ok().map(|number| PoolSet::One(PoolNumber(number)));
    word.split(',').map(number).try_fold(PoolSet::None, |pools, one| Some(pools.and(one?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_as_it_was_written() {
        let set = NewsSet::from(News::Ready).and(News::Events);
        let name: Arc<str> = "c".into();
        for from in [None, Some(StoreMark(0)), Some(StoreMark(u64::MAX)), Some(StoreMark::draw())] {
            let channel = Channel { name: Arc::clone(&name), from };
            assert_eq!(read(&channel.payload(set)), (set, from));
            assert_eq!(read(&channel.payload(NewsSet::ALL)), (NewsSet::ALL, from));
        }
        let [one, two] = [7, u64::MAX].map(|number| PoolSet::One(PoolNumber(number)));
        for pools in [one, one.and(two), PoolSet::All] {
            for queues in [QueueMask(1), QueueMask(u32::MAX - 1), QueueMask::ALL] {
                let set = NewsSet { queues, pools, ..News::Ready.into() }.and(News::Sensors);
                assert_eq!(read(&Channel { name: Arc::clone(&name), from: None }.payload(set)), (set, None));
            }
        }
        let host = Channel { name, from: None };
        assert_eq!(host.payload(NewsSet::from(News::Capacity).and(News::Sensors)), "capacity sensors");
    }

    #[test]
    fn what_is_known_of_one_queue_or_pool_is_not_assumed_of_another() {
        let [one, two] = [1, 2].map(|number| PoolSet::One(PoolNumber(number)));
        let ready = |queues, pools| NewsSet { queues: QueueMask(queues), pools, ..News::Ready.into() };
        let both = ready(3, one).and(News::Capacity);
        assert_eq!(both.without(ready(1, one)), ready(2, one).and(News::Capacity));
        assert_eq!(both.without(ready(3, two)), both);
        assert_eq!(both.without(ready(3, one.and(two))), News::Capacity.into());
        assert_eq!(both.without(News::Ready.into()), News::Capacity.into());
        assert!(both.without(both).is_empty());
    }

    #[test]
    fn what_is_not_known_may_be_anything() {
        let odd =
            ["", "unheard", "ready unheard", "ready unheard events", "from", "from 7", "ready queues 1 x"];
        for payload in odd {
            assert_eq!(read(payload).0, NewsSet::ALL, "{payload}");
        }
        assert_eq!(read("ready queues some pools 1,none"), (News::Ready.into(), None));
        assert_eq!(read("ready from nowhere"), (News::Ready.into(), None));
    }
}
