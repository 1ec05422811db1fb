//! The shares of one tick: the contenders of each level, which take turns.
//!
//! A turn changes with each grant, so contenders have heaps of their own. The planner's heap holds one valid
//! entry per contender, for its current turn. Entries of earlier turns are skipped.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use super::heap::Heap;
use super::lane::{Lane, LaneId};
use super::order::OrderKey;
use super::share::{ShareTurn, ShareUse};
use crate::id::{LimitKey, PoolName};

/// A pool, and a share of it.
pub(crate) type Pair = (PoolName, LimitKey);

/// The shares to which the lanes of a tick belong.
#[derive(Debug, Default)]
pub(super) struct Contenders {
    pairs: Vec<PairWork>,
    places: HashMap<Pair, usize>,
    contenders: Vec<Contender>,
    by_level: BTreeMap<(usize, i64), usize>,
    /// Contenders whose turns or first tasks changed since they were last pushed.
    changed: Vec<usize>,
    /// Pairs whose turn is now earlier than when the walk began.
    fallen: BTreeSet<usize>,
    /// The number of grants to tasks of shares, over the store's lifetime and including this tick.
    grants: i64,
    /// `grants` when the tick began.
    began: i64,
}

#[derive(Debug)]
struct PairWork {
    name: Arc<Pair>,
    used: ShareUse,
    /// Whether the store's counts are known.
    is_known: bool,
    /// `None` until the limits have been read.
    weight: Option<u32>,
    /// The number of its tasks that this tick grants.
    starts: u64,
    /// Its turn when the walk began.
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
    /// Its lanes that were not read.
    unread: BTreeMap<OrderKey, UnreadOf>,
    /// Its latest entry in the planner's heap. Older entries are stale.
    entry: u64,
}

/// Lanes of a share that a page left out: the non-sleeping lanes of one class and level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadOf {
    /// One of these lanes that was read.
    pub(crate) lane: LaneId,
    /// The store's number for all of these lanes together.
    pub(crate) number: i64,
    /// Their first tasks are behind this place.
    pub(crate) behind: OrderKey,
    /// How often the planner requested these lanes.
    pub(crate) pages: u32,
}

/// When something is considered: by level, then tasks without a share in their order, then shares by turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// False for tasks that still hold their slots. Under a window these go first, because they are not part
    /// of it.
    pub(super) is_last: bool,
    pub(crate) level: i64,
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A task without a share.
    Alone(OrderKey),
    /// A share: its turn, its pool and key, and its first task.
    Share(ShareTurn, Arc<Pair>, OrderKey),
}

impl Turn {
    /// Comes before every other turn.
    pub(crate) const FIRST: Self = Self::alone(OrderKey::FIRST);

    /// Returns the turn of a task without a share.
    pub(super) const fn alone(head: OrderKey) -> Self {
        Self { is_last: false, level: head.rank, place: Place::Alone(head) }
    }

    /// Returns the turn of the first task of a share at this level.
    pub(crate) fn of_share(level: i64, turn: ShareTurn, pair: Arc<Pair>, head: OrderKey) -> Self {
        Self { is_last: false, level, place: Place::Share(turn, pair, head) }
    }
}

/// The subject of an entry in the planner's heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Next {
    Lane(usize),
    Contender { at: usize, entry: u64 },
}

impl PairWork {
    fn turn(&self) -> ShareTurn {
        self.used.turn(self.weight.unwrap_or(1))
    }

    /// Returns its turn when the walk began. Call this before the turn changes.
    fn first(&mut self) -> ShareTurn {
        let turn = self.turn();
        *self.first.get_or_insert(turn)
    }
}

impl Contender {
    /// Returns its first unread lanes, if they may come before its first known task.
    fn unread(&self) -> Option<&UnreadOf> {
        let (behind, first) = self.unread.first_key_value()?;
        let is_next = self.heads.peek().is_none_or(|Reverse((head, _))| behind < head);
        is_next.then_some(first)
    }
}

impl Contenders {
    /// Records the store's counts of pairs whose counts were not yet known. This tick's tasks may already
    /// have taken slots of them.
    pub(super) fn known(&mut self, shares: &[ShareUse]) {
        for used in shares {
            let pair = self.places.get(&(used.pool.clone(), used.share.clone()));
            if let Some(work) = pair.map(|at| &mut self.pairs[*at]).filter(|work| !work.is_known) {
                let taken = std::mem::replace(&mut work.used, used.clone()).held;
                work.used.held = work.used.held.saturating_add(taken);
                work.is_known = true;
            }
        }
    }

    /// Sets the number of grants that the store has made to tasks of shares. Must be called before anything
    /// else is known.
    pub(super) fn after(&mut self, grants: i64) {
        (self.grants, self.began) = (grants, grants);
        for work in &mut self.pairs {
            work.used.stamp = grants.saturating_mul(2);
        }
    }

    /// Sets the weight of each share.
    pub(super) fn weigh(&mut self, weight: impl Fn(&LimitKey) -> u32) {
        for work in self.pairs.iter_mut().filter(|work| !work.contenders.is_empty()) {
            work.weight.get_or_insert_with(|| weight(&work.used.share));
        }
    }

    /// Returns the index of a pair. A new pair counts as a newcomer until the store's counts are known.
    fn pair(&mut self, pool: &PoolName, share: &LimitKey) -> usize {
        let new = self.pairs.len();
        let at = *self.places.entry((pool.clone(), share.clone())).or_insert(new);
        if at == new {
            self.pairs.push(PairWork {
                name: Arc::new((pool.clone(), share.clone())),
                used: ShareUse::newcomer(pool.clone(), share.clone(), self.began),
                is_known: false,
                weight: None,
                starts: 0,
                first: None,
                contenders: Vec::new(),
            });
        }
        at
    }

    /// Returns the contender of a lane; `None` if the lane has no share.
    pub(super) fn of(&mut self, lane: &Lane) -> Option<usize> {
        let pair = self.pair(&lane.key.pool, lane.key.share.as_ref()?);
        let level = lane.key.level();
        let new = self.contenders.len();
        let at = *self.by_level.entry((pair, level)).or_insert(new);
        if at == new {
            let (heads, unread) = (BinaryHeap::new(), BTreeMap::new());
            self.contenders.push(Contender { pair, level, heads, unread, entry: 0 });
            self.pairs[pair].contenders.push(at);
        }
        Some(at)
    }

    /// Returns the pairs whose slots the tasks of a lane take, and how many slots each task takes.
    pub(super) fn taken_by(&mut self, lane: &Lane) -> Vec<(usize, u32)> {
        let Some(share) = lane.key.share.as_ref().filter(|_| !lane.keeps_slots) else { return Vec::new() };
        lane.key.pools().map(|(pool, slots)| (self.pair(pool, share), slots)).collect()
    }

    /// Records the first task of a lane.
    pub(super) fn push(&mut self, contender: usize, head: OrderKey, lane: usize) {
        self.contenders[contender].heads.push(Reverse((head, lane)));
        self.changed.push(contender);
    }

    /// Returns the turn of a task that another admitter is to admit, as if nothing had been admitted before
    /// it.
    pub(super) fn first_turn(&mut self, contender: usize, head: OrderKey) -> Turn {
        let Contender { pair, level, .. } = self.contenders[contender];
        let work = &mut self.pairs[pair];
        Turn::of_share(level, work.first(), work.name.clone(), head)
    }

    /// Pushes the contenders that have changed onto the planner's heap.
    pub(super) fn push_changed(&mut self, heap: &mut Heap) {
        // Several lanes and several pools may have marked the same contender.
        self.changed.sort_unstable();
        self.changed.dedup();
        for at in self.changed.drain(..) {
            let contender = &mut self.contenders[at];
            contender.entry += 1;
            let work = &self.pairs[contender.pair];
            let unread = contender.unread().map(|unread| unread.behind);
            if let Some(head) = unread.or_else(|| contender.heads.peek().map(|Reverse((head, _))| *head)) {
                let turn = Turn::of_share(contender.level, work.turn(), work.name.clone(), head);
                heap.push(turn, Next::Contender { at, entry: contender.entry });
            }
        }
    }

    /// Takes the first task of a contender and returns its lane. Returns `None` for a stale entry.
    pub(super) fn take(&mut self, contender: usize, entry: u64) -> Option<usize> {
        let work = self.contenders.get_mut(contender).filter(|work| work.entry == entry)?;
        let Reverse((_, lane)) = work.heads.pop()?;
        self.changed.push(contender);
        Some(lane)
    }

    /// Records lanes of a contender that were not read.
    pub(super) fn leave_out(&mut self, contender: usize, unread: UnreadOf) {
        self.contenders[contender].unread.insert(unread.behind, unread);
        self.changed.push(contender);
    }

    /// Records that the lanes behind this place were read.
    pub(super) fn read(&mut self, contender: usize, behind: OrderKey) {
        self.contenders[contender].unread.remove(&behind);
        self.changed.push(contender);
    }

    /// Returns the unread lanes of the contender behind this entry of the planner's heap, if they may come
    /// next.
    pub(super) fn hidden(&self, next: &Next) -> Option<&UnreadOf> {
        let Next::Contender { at, entry } = *next else { return None };
        self.contenders.get(at).filter(|contender| contender.entry == entry)?.unread()
    }

    /// Returns true if lanes were left out.
    pub(super) fn are_cut(&self) -> bool {
        self.contenders.iter().any(|contender| !contender.unread.is_empty())
    }

    /// Returns true if a share may come before `turn`, although its place when the walk began was not before
    /// `bound`. Starting a task that kept its slots changes only the dither, so its share may move forward.
    pub(super) fn falls_before(&self, turn: &Turn, bound: &Turn) -> bool {
        turn.level == bound.level
            && self.fallen.iter().map(|pair| &self.pairs[*pair]).any(|work| {
                let Place::Share(read, ..) = &bound.place else { return true };
                let is_unread = work.first.is_none_or(|first| first >= *read);
                is_unread && matches!(&turn.place, Place::Share(turn, ..) if work.turn() <= *turn)
            })
    }

    /// Counts one more start of a task of this contender, which takes these slots.
    pub(super) fn start(&mut self, contender: usize, taken: &[(usize, u32)]) {
        let own = self.contenders[contender].pair;
        let first = self.pairs[own].first();
        self.grants = self.grants.saturating_add(1);
        // A task that kept its slots takes none, but still uses a turn.
        self.pairs[own].used.start(self.grants);
        self.pairs[own].starts += 1;
        for &(pair, slots) in taken {
            self.pairs[pair].used.hold(slots.into(), self.grants);
        }
        if self.pairs[own].turn() < first {
            self.fallen.insert(own);
        } else {
            self.fallen.remove(&own);
        }
        for pair in taken.iter().map(|(pair, _)| *pair).chain([own]) {
            self.changed.extend(&self.pairs[pair].contenders);
        }
    }

    /// Returns the shares that had turns, sorted by pool and key, because the reading order of lanes means
    /// nothing.
    pub(super) fn started(&self) -> Vec<ShareUse> {
        let started = self.pairs.iter().filter(|work| work.starts > 0);
        let mut started: Vec<ShareUse> = started.map(|work| work.used.clone()).collect();
        started.sort_unstable_by(|a, b| (&a.pool, &a.share).cmp(&(&b.pool, &b.share)));
        started
    }
}
