//! The shares of one tick: the contenders of each level, who take turns.
//!
//! A turn changes with each grant, so contenders have heaps of their own: the planner's heap holds one valid entry of
//! each contender, by its turn as it is now, and entries of turns that have changed are passed over.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::lane::Lane;
use super::order::OrderKey;
use super::share::{ShareTurn, ShareUse};
use crate::id::{LimitKey, PoolName};

/// A pool, and a share of it.
type Pair = (PoolName, LimitKey);

/// The shares that the lanes of a tick belong to.
#[derive(Debug, Default)]
pub(super) struct Contenders {
    /// By pool, then by share: their places are the last part of turns.
    pairs: Vec<PairWork>,
    places: BTreeMap<Pair, usize>,
    contenders: Vec<Contender>,
    by_level: BTreeMap<(usize, i64), usize>,
    /// Those whose turns or first tasks have changed since they were last pushed.
    changed: Vec<usize>,
    /// The number of grants to tasks of shares that the store has made, this tick's included.
    grants: i64,
}

#[derive(Debug)]
struct PairWork {
    used: ShareUse,
    weight: u32,
    /// How many of its tasks this tick grants.
    starts: u64,
    /// The turn that it had when the walk began.
    first: Option<ShareTurn>,
    contenders: Vec<usize>,
}

/// The tasks of one share, pool and level.
#[derive(Debug)]
struct Contender {
    pair: usize,
    level: i64,
    /// The first tasks of its lanes.
    heads: BinaryHeap<Reverse<(OrderKey, usize)>>,
    /// Its latest entry in the planner's heap. Older ones do not count.
    entry: u64,
}

/// When something is considered: by level, then tasks without a share in the order, then shares by turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    /// In a window those come first that miss no slots: they are in no window.
    pub(super) is_last: bool,
    pub(super) level: i64,
    pub(super) place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A task without a share.
    Alone(OrderKey),
    /// A share's turn, its place among the pairs, and its first task.
    Share(ShareTurn, usize, OrderKey),
}

/// What an entry of the planner's heap stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Next {
    Lane(usize),
    Contender { at: usize, entry: u64 },
}

/// What the planner's heap holds.
pub(super) type Heap = BinaryHeap<Reverse<(Turn, Next)>>;

impl Contenders {
    pub(super) fn new(lanes: &[Lane]) -> Self {
        let shared = |lane: &Lane| lane.key.share.clone().map(|share| (lane.key.pool.clone(), share));
        let mut new = Self::default();
        let pairs: BTreeSet<Pair> = lanes.iter().filter_map(shared).collect();
        for (at, (pool, share)) in pairs.into_iter().enumerate() {
            new.places.insert((pool.clone(), share.clone()), at);
            let used = ShareUse::newcomer(pool, share, 0);
            new.pairs.push(PairWork { used, weight: 1, starts: 0, first: None, contenders: Vec::new() });
        }
        new
    }

    /// Takes over what the store counts.
    pub(super) fn known(&mut self, shares: &[ShareUse], grants: i64) {
        self.grants = grants;
        for work in &mut self.pairs {
            let (pool, share) = (work.used.pool.clone(), work.used.share.clone());
            work.used = ShareUse::newcomer(pool, share, grants);
        }
        for used in shares {
            let pair = self.places.get(&(used.pool.clone(), used.share.clone()));
            if let Some(work) = pair.map(|at| &mut self.pairs[*at]) {
                work.used = used.clone();
            }
        }
    }

    /// Gives each share its weight.
    pub(super) fn weigh(&mut self, weight: impl Fn(&LimitKey) -> u32) {
        for work in &mut self.pairs {
            work.weight = weight(&work.used.share);
        }
    }

    /// Returns the contender of a lane, if it is of a share.
    pub(super) fn of(&mut self, lane: &Lane) -> Option<usize> {
        let share = lane.key.share.clone()?;
        let pair = *self.places.get(&(lane.key.pool.clone(), share))?;
        let level = lane.key.level();
        let new = self.contenders.len();
        let at = *self.by_level.entry((pair, level)).or_insert(new);
        if at == new {
            self.contenders.push(Contender { pair, level, heads: BinaryHeap::new(), entry: 0 });
            self.pairs[pair].contenders.push(at);
        }
        Some(at)
    }

    /// Returns the pairs of which the tasks of a lane take slots, with how many each takes.
    pub(super) fn taken_by(&self, lane: &Lane) -> Vec<(usize, u32)> {
        let Some(share) = lane.key.share.as_ref().filter(|_| !lane.keeps_slots) else { return Vec::new() };
        let pair = |pool: &PoolName| self.places.get(&(pool.clone(), share.clone())).copied();
        lane.key.pools().filter_map(|(pool, slots)| Some((pair(pool)?, slots))).collect()
    }

    /// Notes the first task of a lane.
    pub(super) fn push(&mut self, contender: usize, head: OrderKey, lane: usize) {
        self.contenders[contender].heads.push(Reverse((head, lane)));
        self.changed.push(contender);
    }

    /// Returns when a task that another admitter is to admit is considered, as if nothing had been admitted
    /// before it.
    pub(super) fn first_turn(&mut self, contender: usize, head: OrderKey) -> Turn {
        let Contender { pair, level, .. } = self.contenders[contender];
        let work = &mut self.pairs[pair];
        let turn = *work.first.get_or_insert_with(|| work.used.turn(work.weight));
        Turn { is_last: false, level, place: Place::Share(turn, pair, head) }
    }

    /// Pushes the contenders that have changed.
    pub(super) fn push_changed(&mut self, heap: &mut Heap) {
        // Of many lanes, and of several pools, the contender is the same.
        self.changed.sort_unstable();
        self.changed.dedup();
        for at in self.changed.drain(..) {
            let contender = &mut self.contenders[at];
            contender.entry += 1;
            let work = &self.pairs[contender.pair];
            if let Some(Reverse((head, _))) = contender.heads.peek() {
                let place = Place::Share(work.used.turn(work.weight), contender.pair, *head);
                let turn = Turn { is_last: false, level: contender.level, place };
                heap.push(Reverse((turn, Next::Contender { at, entry: contender.entry })));
            }
        }
    }

    /// Takes the first task of a contender, and returns its lane. Returns `None` for an entry that does not count.
    pub(super) fn take(&mut self, contender: usize, entry: u64) -> Option<usize> {
        let work = self.contenders.get_mut(contender).filter(|work| work.entry == entry)?;
        let Reverse((_, lane)) = work.heads.pop()?;
        self.changed.push(contender);
        Some(lane)
    }

    /// Counts one more start of a task of this contender, which takes these slots.
    pub(super) fn start(&mut self, contender: usize, taken: &[(usize, u32)]) {
        let own = self.contenders[contender].pair;
        self.grants = self.grants.saturating_add(1);
        // A task that kept its slots takes none, and has its turn all the same.
        self.pairs[own].used.start(self.grants);
        self.pairs[own].starts += 1;
        for &(pair, slots) in taken {
            self.pairs[pair].used.hold(slots.into(), self.grants);
        }
        for pair in taken.iter().map(|(pair, _)| *pair).chain([own]) {
            self.changed.extend(&self.pairs[pair].contenders);
        }
    }

    /// Returns the shares that had turns.
    pub(super) fn started(&self) -> impl Iterator<Item = &ShareUse> {
        self.pairs.iter().filter(|work| work.starts > 0).map(|work| &work.used)
    }
}
