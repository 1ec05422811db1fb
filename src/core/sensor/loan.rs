//! The kinds of sensors that a worker lends to other workers.
//!
//! The holder of a shard pokes the kinds that it serves. If another live worker serves a kind that the holder
//! does not, the holder lends the kind to that worker. It writes a lease on that kind of the shard: the loan.
//! The borrower renews the loan as it renews its shards. It returns the loan once the shard's holder serves
//! the kind.
//!
//! Only the holder of a shard makes loans, in the transaction that renews its lease. It also deletes expired
//! loans. It does not touch a loan that has not expired, even if it serves the kind itself. So a kind of a
//! shard has one worker at a time, as long as leases hold. Workers that serve the same kinds make no loans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::claim::{PokerRow, ShardLease, ShardWrite};
use crate::id::{Holder, SensorKind};
use crate::time::Timestamp;

/// The kinds that a worker pokes, by shard.
pub(crate) type Scopes = BTreeMap<u32, Scope>;

/// The kinds of a shard that a worker pokes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All kinds except those that are lent. The worker holds the shard.
    Except(BTreeSet<SensorKind>),
    /// Only the borrowed kinds. Another worker holds the shard.
    Only(BTreeSet<SensorKind>),
}

impl Scope {
    /// Returns the scope of a worker that holds a shard and lends no kind of it.
    #[cfg(test)]
    pub(crate) fn whole() -> Self {
        Self::Except(BTreeSet::new())
    }

    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Except(lent) if lent.is_empty())
    }

    pub(crate) fn has(&self, kind: &SensorKind) -> bool {
        match self {
            Self::Except(lent) => !lent.contains(kind),
            Self::Only(borrowed) => borrowed.contains(kind),
        }
    }

    /// Returns true if this scope has a kind that the other one does not have.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Except(_), Self::Only(_)) => true,
            (Self::Except(lent), Self::Except(before)) => !before.is_subset(lent),
            (Self::Only(borrowed), _) => borrowed.iter().any(|kind| !other.has(kind)),
        }
    }
}

/// The inputs from which one worker decides what it lends and what it returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lending<'a> {
    pub(crate) me: &'a PokerRow,
    pub(crate) now: Timestamp,
    pub(crate) ttl: Duration,
    /// The live workers, including this one.
    pub(crate) live: &'a [PokerRow],
    /// The leases of shards as they were read.
    pub(crate) leases: &'a [ShardLease],
    pub(crate) loans: &'a [ShardLease],
    /// The shards whose leases this worker has written.
    pub(crate) held: &'a BTreeSet<u32>,
}

impl<'a> Lending<'a> {
    /// Returns the leases to write. A new loan has epoch 1.
    pub(crate) fn writes(&self) -> Vec<ShardWrite> {
        let mut writes = self.of_borrowed();
        let lendable = self.lendable();
        let mut burden = self.burden();
        let mut theirs: BTreeMap<(u32, &SensorKind), &ShardLease> = BTreeMap::new();
        for (loan, kind) in
            self.loans().filter(|(loan, _)| self.held.contains(&loan.shard) && !loan.is_of(&self.me.name))
        {
            theirs.insert((loan.shard, kind), loan);
            if loan.is_free(self.now) && !lendable.contains(kind) {
                writes.push(loan.moved(None, loan.expires_at));
            }
        }
        for shard in self.held {
            for kind in &lendable {
                let known = theirs.get(&(*shard, *kind)).copied();
                if known.is_some_and(|loan| !loan.is_free(self.now)) {
                    continue;
                }
                let Some(to) = self.borrower(kind, &burden) else { continue };
                *burden.entry((Some(*kind), to)).or_default() += 1;
                *burden.entry((None, to)).or_default() += 1;
                // The borrower's life is proven only until then. It extends the loan when it renews.
                let lives =
                    self.live.iter().filter(|worker| &worker.name == to).map(|worker| worker.expires_at);
                let until = lives.fold(self.now + self.ttl, Timestamp::min);
                let first = || ShardLease::new(*shard, Some(to.clone()), 1, until).kind((*kind).clone());
                writes.push(match known {
                    Some(loan) => loan.moved(Some(to), until),
                    None => ShardWrite::new(0, first()),
                });
            }
        }
        writes
    }

    /// Renews this worker's loans. Ends those that are no longer useful or that exceed its share.
    fn of_borrowed(&self) -> Vec<ShardWrite> {
        let live: BTreeMap<&Holder, &PokerRow> =
            self.live.iter().map(|worker| (&worker.name, worker)).collect();
        let held = self.leases.iter().filter(|lease| !lease.is_free(self.now));
        let lender = held.filter_map(|lease| Some((lease.shard, *live.get(lease.holder.as_ref()?)?)));
        let lenders: BTreeMap<u32, &PokerRow> = lender.collect();
        let mut left: BTreeMap<&SensorKind, usize> = BTreeMap::new();
        let mut writes = Vec::new();
        for (loan, kind) in self.loans().filter(|(loan, _)| loan.is_of(&self.me.name)) {
            let left = left.entry(kind).or_insert_with(|| self.quota(kind));
            let is_of_use = self.me.serves(kind)
                && !loan.is_free(self.now)
                && !self.held.contains(&loan.shard)
                && lenders.get(&loan.shard).is_none_or(|lender| !lender.serves(kind));
            writes.push(match left.checked_sub(1).filter(|_| is_of_use) {
                None => loan.moved(None, loan.expires_at),
                Some(rest) => {
                    *left = rest;
                    loan.renewed(self.now + self.ttl)
                }
            });
        }
        writes
    }

    /// Returns the kinds that this worker pokes, by shard, given which of the writes took effect.
    pub(crate) fn scopes(&self, writes: &[ShardWrite], written: &[bool]) -> Scopes {
        let mut lent: BTreeMap<u32, BTreeSet<SensorKind>> = BTreeMap::new();
        for (loan, kind) in self.loans() {
            lent.entry(loan.shard).or_default().insert(kind.clone());
        }
        let mut scopes = Scopes::new();
        // If the end of a loan did not take effect, its borrower may have renewed it.
        for (write, written) in writes.iter().zip(written) {
            let Some(kind) = &write.lease.kind else { continue };
            let (shard, is_mine) = (write.lease.shard, write.lease.is_of(&self.me.name));
            if write.lease.holder.is_none() && *written {
                lent.entry(shard).or_default().remove(kind);
            } else if is_mine && *written && !self.held.contains(&shard) {
                let scope = scopes.entry(shard).or_insert_with(|| Scope::Only(BTreeSet::new()));
                if let Scope::Only(borrowed) = scope {
                    borrowed.insert(kind.clone());
                }
            } else {
                lent.entry(shard).or_default().insert(kind.clone());
            }
        }
        for shard in self.held {
            scopes.insert(*shard, Scope::Except(lent.remove(shard).unwrap_or_default()));
        }
        scopes
    }

    fn loans(&self) -> impl Iterator<Item = (&'a ShardLease, &'a SensorKind)> {
        self.loans.iter().filter_map(|loan| Some((loan, loan.kind.as_ref()?)))
    }

    /// Returns the kinds that other workers serve and this worker does not.
    fn lendable(&self) -> BTreeSet<&'a SensorKind> {
        let of_others = self.live.iter().filter_map(|worker| worker.kinds.as_ref()).flatten();
        of_others.filter(|kind| !self.me.serves(kind)).collect()
    }

    /// Returns the most loans of a kind that one worker keeps. The limit spreads the loans over all workers
    /// that serve the kind.
    fn quota(&self, kind: &SensorKind) -> usize {
        let loans = self.loans().filter(|(loan, of)| *of == kind && !loan.is_free(self.now)).count();
        let workers = self.live.iter().filter(|worker| worker.serves(kind)).count();
        loans.div_ceil(workers.max(1))
    }

    /// Returns the number of loans of each kind that each worker has, and its number of leases and loans in
    /// total.
    fn burden(&self) -> BTreeMap<(Option<&'a SensorKind>, &'a Holder), usize> {
        let mut burden = BTreeMap::new();
        for lease in self.leases.iter().chain(self.loans).filter(|lease| !lease.is_free(self.now)) {
            let Some(holder) = lease.holder.as_ref() else { continue };
            *burden.entry((None, holder)).or_default() += 1;
            if lease.kind.is_some() {
                *burden.entry((lease.kind.as_ref(), holder)).or_default() += 1;
            }
        }
        burden
    }

    /// Chooses the borrower of a kind: the worker with the fewest loans of it, then with the fewest leases
    /// and loans.
    fn borrower(
        &self,
        kind: &SensorKind,
        burden: &BTreeMap<(Option<&SensorKind>, &Holder), usize>,
    ) -> Option<&'a Holder> {
        let has = |kind, name| burden.get(&(kind, name)).copied().unwrap_or(0);
        let able = self.live.iter().filter(|worker| worker.serves(kind)).map(|worker| &worker.name);
        able.min_by_key(|name| (has(Some(kind), name), has(None, name), *name))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::super::claim::{Claim, Left};
    use super::*;
    use crate::shard::DEFAULT_CODES;

    const TTL: Duration = Duration::from_micros(30);
    const SHARDS: u32 = 6;
    const KINDS: [&str; 4] = ["a", "b", "c", "d"];

    fn kind(at: usize) -> SensorKind {
        SensorKind::new(KINDS[at]).unwrap()
    }

    /// A worker and what it pokes, until its lease ends.
    struct Process {
        row: PokerRow,
        until: Timestamp,
        scopes: Scopes,
    }

    impl Process {
        fn pokes(&self, now: Timestamp, shard: u32, kind: &SensorKind) -> bool {
            let has = self.scopes.get(&shard).is_some_and(|scope| scope.has(kind));
            now < self.until && has && self.row.serves(kind)
        }
    }

    /// The leases, and the live processes. Only leases remain of a process that died.
    struct World {
        now: Timestamp,
        state: BTreeMap<(u32, Option<SensorKind>), ShardLease>,
        processes: BTreeMap<u8, Process>,
        left: BTreeMap<u8, Left>,
        writes: usize,
    }

    impl World {
        fn write(&mut self, write: &ShardWrite) -> bool {
            let of = (write.lease.shard, write.lease.kind.clone());
            let known = self.state.get(&of);
            if !write.replaces(known) {
                return false;
            }
            self.writes += usize::from(known.map(|lease| &lease.holder) != Some(&write.lease.holder));
            match write.lease.kind.is_some() && write.lease.holder.is_none() {
                true => self.state.remove(&of),
                false => self.state.insert(of, write.lease.clone()),
            };
            true
        }

        /// Runs one transaction, as the poker does.
        fn renew(&mut self, name: u8) {
            let (now, until) = (self.now, self.now + TTL);
            let Some(process) = self.processes.get_mut(&name) else { return };
            process.row.expires_at = until;
            let me = process.row.clone();
            let live = self.processes.values().map(|process| &process.row);
            let live: Vec<PokerRow> = live.filter(|row| now < row.expires_at).cloned().collect();
            let (loans, leases): (Vec<_>, Vec<_>) =
                self.state.values().cloned().partition(|lease| lease.kind.is_some());
            let (loads, left) = (&Default::default(), self.left.entry(name).or_default());
            let claim = Claim { me: &me, now, ttl: TTL, comeback: None, loads, left: &*left };
            let (writes, next) = claim.writes(&leases, &live);
            *left = next;
            let held = writes.iter().filter(|write| self.write(write));
            let held = held.filter(|write| write.lease.holder.as_ref() == Some(&me.name));
            let held: BTreeSet<u32> = held.map(|write| write.lease.shard).collect();
            let lending =
                Lending { me: &me, now, ttl: TTL, live: &live, leases: &leases, loans: &loans, held: &held };
            let writes = lending.writes();
            let written: Vec<bool> = writes.iter().map(|write| self.write(write)).collect();
            let scopes = lending.scopes(&writes, &written);
            if let Some(process) = self.processes.get_mut(&name) {
                (process.scopes, process.until) = (scopes, until);
            }
            self.check();
        }

        /// Checks that no kind of a shard is poked by two workers.
        fn check(&self) {
            for shard in 0..SHARDS {
                for kind in (0..KINDS.len()).map(kind) {
                    let pokes = |process: &&Process| process.pokes(self.now, shard, &kind);
                    let all: Vec<&Holder> =
                        self.processes.values().filter(pokes).map(|process| &process.row.name).collect();
                    assert!(all.len() < 2, "{all:?} poke {kind} of shard {shard}");
                }
            }
        }

        /// Lets each worker renew `rounds` times, a third of a lease apart, in this order.
        fn settle(&mut self, order: &[u8], rounds: usize) {
            for _ in 0..rounds {
                for name in order {
                    self.renew(*name);
                }
                self.now += TTL / 3;
                self.check();
            }
        }
    }

    proptest! {
        /// Workers that serve some of the kinds join, leave and die in any order. No kind of a shard ever has
        /// two workers. Two thirds of a lease after a dead worker's last lease ended, each kind of each shard
        /// is poked by a worker that serves it, if one is alive. After that nothing moves. Between equal
        /// workers nothing is lent.
        #[test]
        fn each_kind_is_poked_by_a_worker_that_serves_it(
            steps in proptest::collection::vec((0_u8..5, 0_u8..4, 0_u8..16, any::<u8>()), 1..25),
            order in Just((0_u8..5).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut world =
                World { now: Timestamp::UNIX_EPOCH, state: BTreeMap::new(), processes: BTreeMap::new(), left: BTreeMap::new(), writes: 0 };
            for (name, step, kinds, some) in steps {
                match step {
                    0 | 1 => {
                        let kinds = (0..KINDS.len()).filter(|at| kinds >> at & 1 == 1).map(kind).collect();
                        let split = NonZeroU32::new(SHARDS).unwrap();
                        let row = PokerRow::new(Holder::new(format!("w{name}")).unwrap(), DEFAULT_CODES, split, world.now);
                        let process = Process { row: row.kinds(kinds), until: world.now, scopes: Scopes::new() };
                        // A restarted worker waits until its predecessor's lease has ended.
                        if !world.processes.contains_key(&name) && world.state.values().all(|lease| lease.holder.as_ref() != Some(&process.row.name) || lease.is_free(world.now)) {
                            world.processes.insert(name, process);
                        }
                    }
                    // The worker dies and leaves its leases behind.
                    2 => {
                        world.processes.remove(&name);
                    }
                    _ => world.now += TTL / 3,
                }
                for name in order.iter().filter(|name| some >> *name & 1 == 1) {
                    world.renew(*name);
                }
                // All live workers renew in time.
                let late = |process: &&Process| process.until < world.now + TTL / 3;
                let late: Vec<u8> = world.processes.iter().filter(|(_, process)| late(process)).map(|(name, _)| *name).collect();
                late.into_iter().for_each(|name| world.renew(name));
            }
            world.settle(&order, 8);
            world.writes = 0;
            world.settle(&order, 3);
            prop_assert_eq!(world.writes, 0, "nothing changes hands");
            let live: Vec<&Process> = world.processes.values().collect();
            for kind in (0..KINDS.len()).map(kind) {
                let is_served = live.iter().any(|process| process.row.serves(&kind));
                for shard in 0..SHARDS {
                    let poked = live.iter().filter(|process| process.pokes(world.now, shard, &kind)).count();
                    prop_assert_eq!(poked, usize::from(is_served), "{} of shard {}", &kind, shard);
                    let seen = live.iter().filter(|process| process.scopes.get(&shard).is_some_and(|scope| scope.has(&kind)));
                    prop_assert_eq!(seen.count(), usize::from(!live.is_empty()), "someone ends its sensors");
                }
            }
            let is_equal = live.windows(2).all(|two| two[0].row.kinds == two[1].row.kinds);
            if is_equal && !live.is_empty() {
                prop_assert!(world.state.values().all(|lease| lease.kind.is_none()), "nothing is lent");
            }
        }
    }

    /// A borrower that dies renews neither its lease nor its loan.
    #[test]
    fn a_loan_ends_no_later_than_the_lease_of_its_borrower() {
        let now = Timestamp::from_micros(100);
        let worker = |name: &str, at, until| {
            let split = NonZeroU32::new(SHARDS).unwrap();
            PokerRow::new(Holder::new(name).unwrap(), DEFAULT_CODES, split, until).kinds([kind(at)].into())
        };
        for (lives, ends) in [(7, 7), (30, 30), (45, 30)] {
            let live = [worker("a", 0, now + TTL), worker("b", 1, now + Duration::from_micros(lives))];
            let (leases, loans, held) = (&[], &[], &BTreeSet::from([3]));
            let lending = Lending { me: &live[0], now, ttl: TTL, live: &live, leases, loans, held };
            let writes = lending.writes();
            assert_eq!((writes.len(), &writes[0].lease.holder), (1, &Some(live[1].name.clone())));
            assert_eq!(writes[0].lease.expires_at, now + Duration::from_micros(ends));
        }
    }

    #[test]
    fn a_scope_exceeds_another_by_the_kinds_that_it_has_more() {
        let all = |not: &[usize]| Scope::Except(not.iter().copied().map(kind).collect());
        let only = |kinds: &[usize]| Scope::Only(kinds.iter().copied().map(kind).collect());
        let scopes = [all(&[]), all(&[1]), all(&[1, 2]), only(&[]), only(&[1]), only(&[1, 2])];
        for one in &scopes {
            for other in &scopes {
                // No scope names the last of the three kinds.
                let exceeds = (1..4).map(kind).any(|kind| one.has(&kind) && !other.has(&kind));
                assert_eq!(one.exceeds(other), exceeds, "{one:?} {other:?}");
            }
        }
    }
}
