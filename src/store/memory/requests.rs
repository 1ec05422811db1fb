//! What each tick granted, so that a tick whose commit had an unknown outcome can be looked up.

use std::collections::{BTreeSet, HashMap};

#[cfg(test)]
use super::state::Write;
use crate::id::RequestId;
use crate::lease::LeaseRef;
use crate::store::contract::Forget;
use crate::time::Timestamp;

/// What one tick granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The instant of the tick, for retention.
    pub(super) at: Timestamp,
    /// In order of admission.
    pub(super) grants: Vec<LeaseRef>,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Requests {
    rows: HashMap<RequestId, Request>,
    by_age: BTreeSet<(Timestamp, RequestId)>,
}

impl Requests {
    pub(super) fn swap(&mut self, id: &RequestId, request: Option<Request>) -> Option<Request> {
        let at = request.as_ref().map(|request| request.at);
        let old = match request {
            Some(request) => self.rows.insert(id.clone(), request),
            None => self.rows.remove(id),
        };
        if let Some(old) = &old {
            self.by_age.remove(&(old.at, id.clone()));
        }
        if let Some(at) = at {
            self.by_age.insert((at, id.clone()));
        }
        old
    }

    pub(super) fn get(&self, id: &RequestId) -> Option<&Request> {
        self.rows.get(id)
    }

    /// Returns the ids of the ticks to forget, earliest first.
    pub(super) fn old(&self, forget: Forget) -> impl Iterator<Item = &RequestId> {
        let surplus = forget.most.map_or(0, |most| self.rows.len().saturating_sub(most));
        let old = self.by_age.iter().enumerate();
        let old = old.take_while(move |(place, (at, _))| *place < surplus || *at < forget.before);
        old.take(forget.limit).map(|(_, (_, id))| id)
    }
}

#[cfg(test)]
impl Requests {
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        self.rows.iter().map(|(id, request)| Write::Request(id.clone(), Some(request.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_noted_again_is_filed_under_its_new_instant_only() {
        let (id, mut requests) = (RequestId::new("tick").unwrap(), Requests::default());
        for at in [3, 9] {
            requests.swap(&id, Some(Request { at: Timestamp::from_micros(at), grants: vec![] }));
        }
        let old = |before| requests.old(Forget::before(Timestamp::from_micros(before), 9)).count();
        assert_eq!([old(9), old(10)], [0, 1]);
        assert_eq!(requests.swap(&id, None).map(|old| old.at), Some(Timestamp::from_micros(9)));
        assert_eq!(requests, Requests::default());
    }
}
