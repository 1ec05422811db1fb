//! What a commit may have brought to others.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// One kind of change that is announced when a transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Tasks became ready.
    Ready,
    /// Slots or limits came back, or were changed.
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

/// Some of the news.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewsSet(u8);

impl NewsSet {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(31);

    pub(super) fn has(self, news: News) -> bool {
        self.0 & news.bit() != 0
    }

    pub(super) fn and(self, more: impl Into<Self>) -> Self {
        Self(self.0 | more.into().0)
    }

    /// Returns those that the other set does not have.
    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<News> for NewsSet {
    fn from(news: News) -> Self {
        Self(news.bit())
    }
}

impl FromIterator<NewsSet> for NewsSet {
    fn from_iter<I: IntoIterator<Item = NewsSet>>(sets: I) -> Self {
        sets.into_iter().fold(Self::NONE, Self::and)
    }
}

/// Distinguishes stores, wherever they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreMark(u64);

impl StoreMark {
    pub(super) fn draw() -> Self {
        // The keys of a hasher come from the operating system, but a forked process draws the same ones.
        Self(RandomState::new().hash_one(std::process::id()))
    }
}

/// Stands in a payload before the mark of the store that announces.
const FROM: &str = "from";

/// The channel for announcements, and which store makes them.
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
        let mark = self.from.map(|StoreMark(mark)| format!("{mark:016x}"));
        words.extend(mark.iter().flat_map(|mark| [FROM, mark]));
        words.join(" ")
    }
}

/// Reads a payload. An unknown word comes from a newer version of the crate, or from another program:
/// anything may have changed.
pub(super) fn read(payload: &str) -> (NewsSet, Option<StoreMark>) {
    let (mut news, mut from) = (NewsSet::NONE, None);
    let mut words = payload.split_whitespace();
    while let Some(word) = words.next() {
        if word == FROM {
            from = words.next().and_then(|mark| u64::from_str_radix(mark, 16).ok()).map(StoreMark);
            continue;
        }
        let known = News::ALL.into_iter().find(|news| news.word() == word);
        news = known.map_or(NewsSet::ALL, |known| news.and(known));
    }
    (if news.is_empty() { NewsSet::ALL } else { news }, from)
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
        let host = Channel { name, from: None };
        assert_eq!(host.payload(NewsSet::from(News::Capacity).and(News::Sensors)), "capacity sensors");
    }

    #[test]
    fn what_is_not_known_may_be_anything() {
        for payload in ["", "unheard", "ready unheard", "ready unheard events", "from", "from 7"] {
            assert_eq!(read(payload).0, NewsSet::ALL, "{payload}");
        }
        assert_eq!(read("ready from nowhere"), (News::Ready.into(), None));
    }
}
