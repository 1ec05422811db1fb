//! The text that identifies the next page of a list.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use super::query::TaskQuery;
use super::walk::Place;
use crate::error::Invalid;

/// Where a list continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// The hash of the query, without its page.
    query: u64,
    /// The index of the walk.
    pub(crate) walk: usize,
    /// Where to continue in the walk; `None` means at its beginning.
    pub(crate) place: Option<Place>,
}

impl Cursor {
    /// Creates a cursor for a place in a list.
    pub(crate) fn new(query: &TaskQuery, walk: usize, place: Option<Place>) -> Self {
        Self { query: hash(query), walk, place }
    }

    /// Returns the text in hexadecimal digits, so that it can be part of a URL.
    pub(crate) fn to_text(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        let digit = |half: u8| char::from_digit(half.into(), 16);
        json.bytes().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(digit).collect()
    }

    /// Returns where the query continues. If it names no page, this is the beginning of the list.
    pub(crate) fn of(query: &TaskQuery) -> Result<Self, Invalid> {
        let Some(text) = &query.after else { return Ok(Self::new(query, 0, None)) };
        let cursor = Self::from_text(text).ok_or(Invalid::TaskQuery {
            why: "a list goes on after what a page named as `next`, and nothing else",
        })?;
        if cursor.query != hash(query) || cursor.walk >= query.walks().len() {
            let why = "this page is the next one of another query: ask with the same states and filters";
            return Err(Invalid::TaskQuery { why });
        }
        Ok(cursor)
    }

    fn from_text(text: &str) -> Option<Self> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let pairs = text.as_bytes().chunks(2);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let json: Option<Vec<u8>> = pairs.map(byte).collect();
        serde_json::from_slice(&json?).ok()
    }
}

#[cfg(feature = "dashboard")]
impl TaskQuery {
    /// Leaves out the tasks that wait for an instant. They come first in a list of waiting tasks.
    pub(crate) fn without_later(mut self) -> Self {
        let ready = self.walks().iter().position(|walk| *walk == super::walk::Walk::Ready);
        self.after = ready.map(|walk| Cursor::new(&self, walk, None).to_text());
        self
    }
}

fn hash(query: &TaskQuery) -> u64 {
    // Each state counts once, in a fixed order, because order and repetition do not change the query.
    let states: Vec<_> = query.possible().collect();
    let whole = TaskQuery { states, after: None, limit: 1, ..query.clone() };
    let mut hasher = SipHasher24::new();
    hasher.write(serde_json::to_string(&whole).unwrap_or_default().as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskState;

    #[test]
    fn a_cursor_is_read_back_by_its_query_alone() {
        let query = TaskQuery::waiting().pool("p".try_into().unwrap());
        let place = Place::new([i64::MIN, -1, i64::MAX], ["\u{0}\u{10ffff}\"".to_owned(), String::new()]);
        let cursor = Cursor::new(&query, 2, Some(place));
        let text = cursor.to_text();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(Cursor::of(&query.clone().limit(7).after(&text)), Ok(cursor));
        let mut again = query.clone().after(&text);
        again.states = vec![TaskState::UpForRetry, TaskState::Scheduled, TaskState::UpForRetry];
        assert!(Cursor::of(&again).is_ok(), "the order of the states says nothing");
        for other in [
            query.clone().pool("q".try_into().unwrap()),
            query.clone().queue("q".try_into().unwrap()),
            TaskQuery::waiting(),
            TaskQuery::sensing().pool("p".try_into().unwrap()),
        ] {
            assert!(Cursor::of(&other.after(&text)).is_err());
        }
        for bad in ["", "0", "zz", "ü", "7b7d", &text[..text.len() - 1], &text[2..]] {
            assert!(Cursor::of(&query.clone().after(bad)).is_err(), "{bad}");
        }
        let beyond = Cursor::new(&query, 3, None).to_text();
        assert!(Cursor::of(&query.after(beyond)).is_err());
    }
}
