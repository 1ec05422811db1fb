//! What each tick granted, so that a tick whose commit had an unknown end can be asked for again.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};

#[cfg(test)]
use super::state::Write;
use crate::id::RequestId;
use crate::lease::LeaseRef;

/// What one tick granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// For retention.
    pub(super) at: DateTime<Utc>,
    /// In order of admission.
    pub(super) grants: Vec<LeaseRef>,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Requests {
    rows: HashMap<RequestId, Request>,
    by_age: BTreeSet<(DateTime<Utc>, RequestId)>,
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

    /// The ids of ticks noted before this instant, earliest first.
    pub(super) fn before(&self, before: DateTime<Utc>) -> impl Iterator<Item = &RequestId> {
        self.by_age.iter().take_while(move |(at, _)| *at < before).map(|(_, id)| id)
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
    use crate::time::from_micros;

    #[test]
    fn a_request_noted_again_is_filed_under_its_new_instant_only() {
        let (id, mut requests) = (RequestId::new("tick").unwrap(), Requests::default());
        for at in [3, 9] {
            requests.swap(&id, Some(Request { at: from_micros(at), grants: vec![] }));
        }
        assert_eq!(requests.before(from_micros(9)).count(), 0);
        assert_eq!(requests.before(from_micros(10)).count(), 1);
        assert_eq!(requests.swap(&id, None).map(|old| old.at), Some(from_micros(9)));
        assert_eq!(requests, Requests::default());
    }
}
