//! Which of a store's connections are reserved, and for what.
//!
//! A host's closure may hold a connection for as long as it likes. A renewal that waits for it would lose a
//! lease, and a service that waits for it would stop. So one connection is reserved for each of the two.

/// What a transaction does with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A host's reads and writes.
    Ordinary,
    /// The work of one of the crate's services, or of the store itself.
    Service,
    /// A transaction that renews first.
    Renewal,
    /// A transaction inside another one of the same thread. If it waited, the outer one would never end.
    Inner,
}

/// With fewer connections than this, none is reserved.
const LEAST: usize = 3;

/// How many connections are in use, by purpose.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: usize,
    renewals: usize,
    services: usize,
    others: usize,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        Self { all, ..Self::default() }
    }

    fn used(&self) -> usize {
        self.renewals + self.services + self.others
    }

    /// Returns true if a transaction with this purpose may take a connection. One must be left for each
    /// reserved purpose that has none in use.
    pub(super) fn admits(&self, purpose: Purpose) -> bool {
        let (no_renewal, no_service) = (usize::from(self.renewals == 0), usize::from(self.services == 0));
        let kept = match purpose {
            _ if self.all < LEAST => 0,
            Purpose::Ordinary => no_renewal + no_service,
            Purpose::Service if self.services > 0 => no_renewal,
            Purpose::Renewal if self.renewals > 0 => no_service,
            Purpose::Service | Purpose::Renewal | Purpose::Inner => 0,
        };
        self.used() + kept < self.all
    }

    pub(super) fn enter(&mut self, purpose: Purpose) {
        *self.count(purpose) += 1;
    }

    pub(super) fn leave(&mut self, purpose: Purpose) {
        let count = self.count(purpose);
        *count = count.saturating_sub(1);
    }

    fn count(&mut self, purpose: Purpose) -> &mut usize {
        match purpose {
            Purpose::Renewal => &mut self.renewals,
            Purpose::Service => &mut self.services,
            Purpose::Ordinary | Purpose::Inner => &mut self.others,
        }
    }

    /// Returns how many connections hosts' transactions may use at a time.
    pub(super) fn ordinary(&self) -> usize {
        if self.all < LEAST { self.all } else { self.all - 2 }
    }

    /// Returns true if a connection can be used for something other than transactions, and some remain.
    pub(super) fn can_spare(&self) -> bool {
        self.all > 1
    }

    /// Removes a connection that is not in use. Returns false if all are in use.
    pub(super) fn take_away(&mut self) -> bool {
        let is_free = self.used() < self.all;
        self.all -= usize::from(is_free);
        is_free
    }

    pub(super) fn give_back(&mut self) {
        self.all += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::Purpose::{Inner, Ordinary, Renewal, Service};
    use super::*;

    /// Returns how many of this purpose get in, one after the other.
    fn fill(places: &mut Places, purpose: Purpose) -> usize {
        (0..)
            .take_while(|_| {
                let admits = places.admits(purpose);
                if admits {
                    places.enter(purpose);
                }
                admits
            })
            .count()
    }

    #[test]
    fn whatever_hosts_hold_a_renewal_and_a_service_get_in() {
        for all in 3..9 {
            let mut places = Places::new(all);
            assert_eq!(fill(&mut places, Ordinary), all - 2, "{all} connections");
            assert!(places.admits(Renewal) && places.admits(Service));
            assert_eq!(fill(&mut places, Service), 1);
            assert_eq!(fill(&mut places, Renewal), 1);
            places.leave(Ordinary);
            assert!(places.admits(Ordinary), "one of each is served, so none is kept");
        }
    }

    #[test]
    fn renewals_and_services_use_what_is_free_but_leave_one_for_each_other() {
        let mut places = Places::new(4);
        assert_eq!(fill(&mut places, Renewal), 3);
        assert_eq!(fill(&mut places, Service), 1);
        let mut places = Places::new(4);
        assert_eq!(fill(&mut places, Service), 3);
        assert!(!places.admits(Ordinary));
        assert_eq!(fill(&mut places, Renewal), 1);
    }

    #[test]
    fn few_connections_are_shared() {
        for all in 1..3 {
            for purpose in [Ordinary, Service, Renewal, Inner] {
                assert_eq!(fill(&mut Places::new(all), purpose), all, "{purpose:?}");
            }
        }
    }

    #[test]
    fn an_inner_transaction_may_use_what_is_kept() {
        let mut places = Places::new(4);
        assert_eq!(fill(&mut places, Ordinary), 2);
        assert_eq!(fill(&mut places, Inner), 2);
    }

    #[test]
    fn one_that_was_taken_away_is_not_there() {
        let mut places = Places::new(3);
        assert!(places.can_spare() && places.take_away());
        assert_eq!(fill(&mut places, Ordinary), 2, "two are shared");
        assert!(!places.take_away(), "both are in use");
        places.give_back();
        assert!(!places.admits(Ordinary), "the third one is kept");
        assert!(places.admits(Renewal) && places.admits(Service), "for whoever comes first");
    }
}
