//! Lanes: ready tasks with equal needs, in admission order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;

use super::order::Order;
use super::state::{Filing, State, Write};
use super::undo::Transaction;
use crate::admission::limits::{Families, LimitRecord};
use crate::admission::{
    Behind, Candidate, Cause, Lane, LaneId, LaneKey, LanePage, Mark, OrderKey, Pair, ShareTurn,
};
use crate::id::{LimitKey, QueueName};
use crate::store::awake::{Of, awake, awake_in};
use crate::store::contract::{LanesBehind, Survey, SurveyQuery};

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Lanes {
    rows: BTreeMap<LaneId, LaneRow>,
    by_key: HashMap<Arc<LaneKey>, LaneId>,
    /// The lanes with ready tasks. There may be many more known lanes.
    ready: BTreeSet<LaneId>,
    /// The same by queue. A queue without such lanes has no entry.
    by_queue: HashMap<QueueName, BTreeSet<LaneId>>,
    /// The subset that every tick reads, by queue. Their tasks kept slots, so there are no more such lanes
    /// than slots.
    whole: HashMap<QueueName, BTreeSet<LaneId>>,
    /// The other lanes by their first tasks, and which of them sleep.
    pub(super) order: Order,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
struct LaneRow {
    /// Shared with the records of its tasks.
    key: Arc<LaneKey>,
    /// The number of its tasks that have not ended.
    tasks: u64,
    ready: BTreeSet<OrderKey>,
    /// The ready tasks that still hold slots that they kept.
    keeping: BTreeSet<OrderKey>,
}

impl LaneRow {
    fn new(key: Arc<LaneKey>) -> Self {
        Self { key, tasks: 0, ready: BTreeSet::new(), keeping: BTreeSet::new() }
    }

    /// Returns the ready tasks that are filed under this number of the lane.
    fn under(&self, id: LaneId) -> &BTreeSet<OrderKey> {
        if id.keeps_slots() { &self.keeping } else { &self.ready }
    }

    fn under_mut(&mut self, id: LaneId) -> &mut BTreeSet<OrderKey> {
        if id.keeps_slots() { &mut self.keeping } else { &mut self.ready }
    }
}

impl Lanes {
    pub(super) fn swap(&mut self, id: LaneId, key: Option<Arc<LaneKey>>) -> Option<Arc<LaneKey>> {
        let old = match &key {
            Some(key) => self.rows.insert(id, LaneRow::new(Arc::clone(key))),
            None => self.rows.remove(&id),
        };
        let old = old.map(|row| row.key);
        if let Some(old) = &old {
            self.by_key.remove(old);
            self.order.forget(id);
        }
        if let Some(key) = key {
            self.by_key.insert(key, id);
        }
        old
    }

    pub(super) fn count_task(&mut self, id: LaneId, filing: Filing) {
        if let Some(row) = self.rows.get_mut(&id) {
            match filing {
                Filing::In => row.tasks += 1,
                Filing::Out => row.tasks -= 1,
            }
        }
    }

    pub(super) fn key(&self, id: LaneId) -> Option<&Arc<LaneKey>> {
        self.rows.get(&id).map(|row| &row.key)
    }

    /// Returns the key of a lane if every task in it has ended.
    pub(super) fn deserted(&self, id: LaneId) -> Option<&Arc<LaneKey>> {
        self.rows.get(&id).filter(|row| row.tasks == 0).map(|row| &row.key)
    }

    pub(super) fn add_ready(&mut self, id: LaneId, order: OrderKey) {
        if let Some(row) = self.rows.get_mut(&id.assigned()) {
            let ready = row.under_mut(id);
            if ready.first().is_none_or(|first| order < *first) {
                self.order.changed(id);
            }
            ready.insert(order);
            if self.ready.insert(id) {
                self.by_queue.entry(row.key.queue.clone()).or_default().insert(id);
                if id.keeps_slots() {
                    self.whole.entry(row.key.queue.clone()).or_default().insert(id);
                }
            }
        }
    }

    pub(super) fn remove_ready(&mut self, id: LaneId, order: &OrderKey) {
        if let Some(row) = self.rows.get_mut(&id.assigned()) {
            let ready = row.under_mut(id);
            if ready.first() == Some(order) {
                self.order.changed(id);
            }
            ready.remove(order);
            if ready.is_empty() && self.ready.remove(&id) {
                remove(&mut self.by_queue, &row.key.queue, id);
                if id.keeps_slots() {
                    remove(&mut self.whole, &row.key.queue, id);
                }
            }
        }
    }

    /// Returns the lanes with ready tasks, by number.
    pub(super) fn ready(&self) -> impl Iterator<Item = (LaneId, &Arc<LaneKey>, u64)> {
        self.counted(&self.ready)
    }

    /// Returns the lanes of a queue with ready tasks, by number. Reads no lane of another queue.
    fn ready_of(&self, queue: &QueueName) -> impl Iterator<Item = (LaneId, &Arc<LaneKey>, u64)> {
        self.by_queue.get(queue).into_iter().flat_map(|lanes| self.counted(lanes))
    }

    fn counted<'a>(
        &'a self,
        lanes: &'a BTreeSet<LaneId>,
    ) -> impl Iterator<Item = (LaneId, &'a Arc<LaneKey>, u64)> {
        let rows = lanes.iter().filter_map(|id| Some((*id, self.rows.get(&id.assigned())?)));
        rows.map(|(id, row)| (id, &row.key, row.under(id).len() as u64))
    }

    /// Returns the ready tasks of the wanted lanes that hold no slots, by lane, then in admission order.
    /// Begins with lane `from`, behind `place` in that lane.
    pub(super) fn ready_behind(
        &self,
        from: LaneId,
        place: Option<OrderKey>,
        wants: impl Fn(&LaneKey) -> bool,
    ) -> impl Iterator<Item = (LaneId, OrderKey)> {
        let rows = self.ready.range(from.max(LaneId(0))..).filter_map(|id| Some((*id, self.rows.get(id)?)));
        rows.filter(move |(_, row)| wants(&row.key)).flat_map(move |(id, row)| {
            let place = place.filter(|_| id == from).map_or(Bound::Unbounded, Bound::Excluded);
            row.ready.range((place, Bound::Unbounded)).map(move |order| (id, *order))
        })
    }

    /// Returns the wanted lanes, from this one on.
    pub(super) fn wanted(
        &self,
        from: LaneId,
        wants: impl Fn(&LaneKey) -> bool,
    ) -> impl Iterator<Item = LaneId> {
        self.rows.range(from..).filter(move |(_, row)| wants(&row.key)).map(|(id, _)| *id)
    }

    /// Returns every lane, with the number of its tasks that have not ended and of those that are ready.
    pub(super) fn all(&self) -> impl Iterator<Item = (LaneId, &Arc<LaneKey>, [u64; 2])> {
        let ready = |row: &LaneRow| (row.ready.len() + row.keeping.len()) as u64;
        self.rows.iter().map(move |(id, row)| (*id, &row.key, [row.tasks, ready(row)]))
    }

    /// Returns the candidates of one page.
    pub(super) fn page(&self, page: LanePage) -> impl Iterator<Item = Candidate> {
        let after = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let row = self.rows.get(&page.lane.assigned());
        let orders = row.map(|row| row.under(page.lane).range((after, Bound::Unbounded)));
        orders.into_iter().flatten().take(page.limit).map(move |order| Candidate::new(page.lane, *order))
    }
}

fn remove(by_queue: &mut HashMap<QueueName, BTreeSet<LaneId>>, queue: &QueueName, id: LaneId) {
    if let Some(of_queue) = by_queue.get_mut(queue) {
        of_queue.remove(&id);
        if of_queue.is_empty() {
            by_queue.remove(queue);
        }
    }
}

/// Lanes in the order of their first tasks, for stores with many lanes.
impl Lanes {
    /// Files the lanes whose first tasks have changed, and the shares whose turns have changed.
    fn file(&mut self, turn: impl Fn(&Pair) -> ShareTurn) {
        let changed = self.order.take_changed();
        let head = |id: &LaneId| {
            let row = self.rows.get(id)?;
            Some((*row.ready.first()?, &*row.key))
        };
        let changed: Vec<_> = changed.into_iter().map(|id| (id, head(&id))).collect();
        self.order.file(&changed, turn);
    }

    /// Returns true if more than this many lanes of these queues have ready tasks.
    fn are_more_than(&self, queues: Option<&BTreeSet<QueueName>>, lanes: usize) -> bool {
        let of = |queue: &QueueName| self.by_queue.get(queue).map_or(0, BTreeSet::len);
        queues.map_or(self.ready.len(), |queues| queues.iter().map(of).sum()) > lanes
    }

    /// Returns the first lanes of these queues by number, and those of the other lanes that every tick reads.
    fn first(&self, queues: Option<&BTreeSet<QueueName>>, lanes: usize) -> Vec<Lane> {
        let whole: Vec<LaneId> = match queues {
            None => self.whole.values().flatten().copied().collect(),
            Some(queues) => {
                queues.iter().filter_map(|queue| self.whole.get(queue)).flatten().copied().collect()
            }
        };
        let mut first: Vec<LaneId> = match queues {
            None => self.ready.iter().take(lanes).copied().collect(),
            Some(queues) => {
                let of_queues = queues.iter().filter_map(|queue| self.by_queue.get(queue));
                of_queues.flat_map(|of_queue| of_queue.iter().take(lanes)).copied().collect()
            }
        };
        first.sort_unstable();
        first.truncate(lanes);
        first.extend(whole);
        first.sort_unstable();
        first.dedup();
        first.into_iter().filter_map(|id| self.lane(id)).collect()
    }

    fn lane(&self, id: LaneId) -> Option<Lane> {
        let row = self.rows.get(&id.assigned())?;
        let ready = row.under(id);
        let lane = Lane::new(id, Arc::clone(&row.key), ready.len() as u64).keeps_slots(id.keeps_slots());
        Some(lane.sleeps(self.order.sleeps(id)))
    }

    /// Returns the lanes that are in a group whose cause does not apply to them.
    pub(super) fn strays(&self) -> impl Iterator<Item = (LaneId, &Cause)> {
        self.order.causes().filter(|(id, cause)| {
            let row = self.rows.get(id);
            !row.is_some_and(|row| match cause {
                Cause::Paused(subject) => subject.concerns(&row.key),
                Cause::Reached(key, needs) => row.key.counted().any(|counted| counted == (key, *needs)),
                Cause::Spent(key) => row.key.limits.contains(key),
            })
        })
    }

    fn mark(&mut self, mark: &Mark, turn: impl Fn(&Pair) -> ShareTurn) {
        let (Mark::Class { lane, .. } | Mark::Group { lane, .. }) = mark;
        if let Some(row) = self.rows.get(lane) {
            self.order.mark(mark, &row.key, turn);
        }
    }
}

impl Transaction<'_> {
    /// Returns the first lanes of a survey, and the place behind which lanes were left out.
    pub(super) fn first_lanes(&mut self, query: &SurveyQuery) -> (Vec<Lane>, Option<OrderKey>) {
        let queues = query.queues.as_ref();
        match query.first.filter(|first| self.state.lanes.are_more_than(queues, first.lanes)) {
            Some(first) => {
                self.file_lanes(&[]);
                (self.state.lanes.first(queues, first.lanes), Some(OrderKey::FIRST))
            }
            None => (self.lanes_with_ready_tasks(queues), None),
        }
    }

    /// Files lanes by their first tasks and by the turns of their shares, then makes marks.
    pub(super) fn file_lanes(&mut self, marks: &[Mark]) {
        let State { lanes, shares, limits, rules, last, .. } = &mut *self.state;
        let weights = std::cell::OnceCell::new();
        let weight = |share: &LimitKey| {
            let mut limit = limits.record(share).unwrap_or_else(|| LimitRecord::new(share.clone(), None, 0));
            weights.get_or_init(|| Families::new(rules.families.values())).apply(&mut limit);
            limit.weight.unwrap_or(1)
        };
        let turn = |pair: &Pair| shares.turn(pair, last.grants, weight(&pair.1));
        lanes.file(turn);
        for mark in marks {
            lanes.mark(mark, turn);
        }
    }

    /// Returns a page of lanes that do not sleep, and the place behind which there are others.
    pub(super) fn awake_lanes(&mut self, page: &LanesBehind<'_>) -> Survey {
        self.file_lanes(&[]);
        let (lanes, mut survey) = (&self.state.lanes, Survey::default());
        let next = |of: Of<'_>, behind| Ok::<_, Infallible>(lanes.order.next(of, behind));
        let found = if let Some(Behind::Turn(turn)) = page.of {
            let (found, unread) = lanes.order.turns_behind(page.queues, turn, page.limit);
            survey.unread_shares = unread;
            let first = found.into_iter().filter_map(|number| lanes.order.first_lane_of(number));
            let (first, left): (_, Vec<_>) = first.unzip();
            survey.unread_of = left.into_iter().flatten().collect();
            first
        } else {
            let Ok((found, unread)) = match page.of {
                Some(Behind::Of(of)) => awake_in(of.number, page.after, page.limit, next),
                _ => awake(page.queues, page.after, page.limit, next),
            };
            survey.unread = unread;
            found
        };
        survey.lanes = found.into_iter().filter_map(|id| lanes.lane(id)).collect();
        survey
    }

    /// Returns the number of the lane with this key, and the key as the lane's tasks share it. Creates the lane
    /// if necessary.
    pub(super) fn lane_with(&mut self, key: &Arc<LaneKey>) -> (LaneId, Arc<LaneKey>) {
        if let Some((key, id)) = self.state.lanes.by_key.get_key_value(key) {
            return (*id, Arc::clone(key));
        }
        let key = Arc::clone(key);
        self.state.last.lane += 1;
        let id = LaneId(self.state.last.lane);
        self.write(Write::Lane(id, Some(Arc::clone(&key))));
        self.count_lane_of_share(&key, 1);
        (id, key)
    }

    /// Forgets a lane if every task in it has ended, and those of its limit keys that are no longer used.
    pub(super) fn leave_lane(&mut self, id: LaneId) {
        let Some(key) = self.state.lanes.deserted(id).cloned() else { return };
        self.write(Write::Lane(id, None));
        self.count_lane_of_share(&key, -1);
        for limit in &key.limits {
            self.forget_limit_if_unused(limit);
        }
    }

    /// Returns the lanes with ready tasks, of these queues or of all, by number.
    pub(super) fn lanes_with_ready_tasks(&self, queues: Option<&BTreeSet<QueueName>>) -> Vec<Lane> {
        let lanes = &self.state.lanes;
        let lane = |(id, key, ready): (LaneId, &Arc<LaneKey>, u64)| {
            Lane::new(id, Arc::clone(key), ready).keeps_slots(id.keeps_slots())
        };
        let Some(queues) = queues else { return lanes.ready().map(lane).collect() };
        let mut asked: Vec<Lane> = queues.iter().flat_map(|queue| lanes.ready_of(queue)).map(lane).collect();
        asked.sort_unstable_by_key(|lane| lane.id);
        asked
    }
}

#[cfg(test)]
impl Lanes {
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        self.rows.iter().map(|(id, row)| Write::Lane(*id, Some(Arc::clone(&row.key))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PoolName;
    use crate::lease::TaskId;
    use crate::time::Timestamp;

    fn order(rank: i64, id: i64) -> OrderKey {
        OrderKey::new(rank, Timestamp::UNIX_EPOCH, None, TaskId(id))
    }

    #[test]
    fn pages_go_on_where_the_last_one_ended() {
        let mut lanes = Lanes::default();
        lanes.swap(LaneId(1), Some(LaneKey::new(PoolName::default_pool(), 1, vec![]).into()));
        for entry in [order(0, 1), order(-5, 2), order(0, 3)] {
            lanes.add_ready(LaneId(1), entry);
        }
        let ids = |after, limit| -> Vec<i64> {
            lanes.page(LanePage::new(LaneId(1), after, limit)).map(|task| task.order.id.0).collect()
        };
        assert_eq!(ids(None, 2), [2, 1]);
        assert_eq!(ids(Some(order(0, 1)), 2), [3]);
        assert_eq!(lanes.page(LanePage::new(LaneId(9), None, 2)).count(), 0, "an unknown lane is empty");
    }

    #[test]
    fn an_emptied_lane_is_known_but_not_listed() {
        let mut lanes = Lanes::default();
        lanes.swap(LaneId(1), Some(LaneKey::new(PoolName::default_pool(), 1, vec![]).into()));
        lanes.add_ready(LaneId(1), order(0, 1));
        assert_eq!(lanes.ready().count(), 1);
        lanes.remove_ready(LaneId(1), &order(0, 1));
        assert_eq!((lanes.ready().count(), lanes.all().count()), (0, 1));
    }
}
