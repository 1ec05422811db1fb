//! What a transaction knows about the lanes that it plans with: how far each page reached, and so from which
//! place the next tick must look.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::Digest;
use crate::admission::{LaneId, LanePage, OrderKey};
use crate::store::sql::row::map_index_value;

/// How many tasks before its bound a lane remembers individually. The statements for folding and promoting
/// use the same number.
const MOST_EARLY: usize = 32;

/// A place in the order of admission: rank, logical date, map index, number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(pub(super) [i64; 4]);

impl Place {
    /// The lowest place.
    pub(super) const BEGIN: Self = Self([i64::MIN; 4]);

    /// Returns the next higher place. Numbers of tasks do not reach the largest value.
    fn next(self) -> Self {
        let [rank, date, index, no] = self.0;
        Self([rank, date, index, no.saturating_add(1)])
    }

    pub(super) fn of(order: OrderKey) -> Self {
        let index = map_index_value(order.map_index);
        Self([order.rank, order.logical_date.as_micros(), index, order.id.0])
    }

    /// Returns the first place of a page that begins after this task.
    pub(super) fn behind(order: OrderKey) -> Self {
        Self::of(order).next()
    }
}

/// A ready task: its place, and when it became ready.
pub(super) type Ready = (Place, i64);

/// What is known about a lane.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) digest: Digest,
    /// Before it there are no ready tasks except the early ones.
    pub(super) bound: Place,
    /// The numbers of tasks that may be ready before the bound.
    pub(super) early: Vec<i64>,
    /// Whether its tasks carry limit keys or need other pools. Also true if that is unknown.
    pub(super) carries_limits: bool,
    /// Those early tasks that are ready, once they were looked up.
    found: Option<Vec<Ready>>,
    /// All ready tasks between the bound and this place were read.
    until: Place,
    read: BTreeSet<Place>,
    /// The ready tasks from the bound on that were read with the lane, and how many were looked for.
    fetched: Option<(usize, Vec<Ready>)>,
    /// The early tasks that the second plan of a tick found, once they were looked up. That plan reads only
    /// tasks that no other transaction has locked.
    free: Option<Option<Vec<Ready>>>,
}

/// Where a lane's next page begins, and which tasks before that place stay ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Raised {
    pub(super) digest: Digest,
    pub(super) bound: Place,
    pub(super) early: Vec<i64>,
}

impl Reach {
    pub(super) fn new(digest: Digest, bound: Place, early: Vec<i64>) -> Self {
        Self {
            digest,
            bound,
            early,
            carries_limits: true,
            found: None,
            until: bound,
            read: BTreeSet::new(),
            fetched: None,
            free: None,
        }
    }

    /// Notes the first ready tasks, in order, that were read with the lane. `most` were looked for.
    pub(super) fn fetched(&mut self, most: usize, ready: Vec<Ready>) {
        self.fetched = Some((most, ready));
    }

    /// Returns whether its early tasks must still be looked up.
    pub(super) fn asks_for_early(&self) -> bool {
        self.free.as_ref().unwrap_or(&self.found).is_none() && !self.early.is_empty()
    }

    /// Begins the second plan. What the first plan read stays known. The second one does not see tasks that
    /// other transactions have locked, so it must not raise the bound further than the first one read.
    fn again(&mut self) {
        self.fetched = None;
        self.free = Some(None);
    }

    /// Notes which of its early tasks are ready.
    pub(super) fn found_early(&mut self, ready: Vec<Ready>) {
        self.free.as_mut().unwrap_or(&mut self.found).get_or_insert(ready);
    }

    /// Notes the page that begins at `from`. Returns at most `limit` of its tasks and the early ones, from
    /// `at_least` on.
    pub(super) fn page(
        &mut self,
        at_least: Place,
        from: Place,
        mut page: Vec<Ready>,
        limit: usize,
    ) -> Vec<Ready> {
        if self.free.is_none()
            && from <= self.until
            && let Some((last, _)) = page.last()
        {
            self.until = self.until.max(last.next());
        }
        let until = self.until;
        self.read.extend(page.iter().map(|(place, _)| *place).filter(|place| *place < until));
        let early = self.free.as_ref().unwrap_or(&self.found);
        page.extend(early.iter().flatten().filter(|(place, _)| *place >= at_least));
        page.sort_unstable();
        page.dedup_by_key(|(place, _)| *place);
        page.truncate(limit);
        page
    }

    /// Returns how far the bound rises when these tasks are granted: to just after the last of them that
    /// leaves few enough tasks before it to remember individually. `None` if none of them was read here.
    fn raised(&self, granted: &HashSet<i64>) -> Option<Raised> {
        let is_granted = |no: i64| granted.contains(&no);
        let mut early: Vec<i64> = match &self.found {
            None => self.early.clone(),
            Some(found) => {
                found.iter().filter(|(place, _)| *place < self.bound).map(|(place, _)| place.0[3]).collect()
            }
        };
        let before = early.len();
        early.retain(|no| !is_granted(*no));
        let mut is_changed = early.len() < before;
        let (mut bound, mut passed) = (self.bound, Vec::new());
        for place in &self.read {
            let no = place.0[3];
            if !is_granted(no) {
                passed.push(no);
            } else if early.len() + passed.len() <= MOST_EARLY {
                is_changed = true;
                bound = place.next();
                early.append(&mut passed);
            } else {
                break;
            }
        }
        is_changed.then(|| {
            early.sort_unstable();
            early.dedup();
            Raised { digest: self.digest, bound, early }
        })
    }
}

/// The lanes that the transaction met, by the numbers that it received.
#[derive(Debug, Default)]
pub(in super::super) struct Reaches {
    lanes: HashMap<LaneId, Reach>,
    /// All of them, including those about which nothing is known any more.
    digests: HashMap<LaneId, Digest>,
    /// Whether the transaction folded, and has appended nothing since.
    pub(super) is_folded: bool,
    /// Whether the transaction holds the tick lock.
    pub(in super::super) holds_lock: bool,
    /// Whether the first plan could not be granted as a whole.
    is_second: bool,
    /// Whether lanes are filed, as the transaction's last fold found.
    pub(in super::super) files_lanes: bool,
    /// The lanes that the transaction marked since it began to plan.
    pub(super) marked: Vec<Digest>,
}

impl Reaches {
    /// Forgets how far pages reached, because the transaction is about to change something.
    pub(in super::super) fn forget(&mut self) {
        self.begin();
        self.is_folded = false;
    }

    /// Like [`Self::forget`], for changes of the counters themselves.
    pub(super) fn begin(&mut self) {
        self.lanes.clear();
        self.marked.clear();
        self.is_second = false;
    }

    /// Begins the second plan of a tick, with the lanes of the first one.
    pub(super) fn again(&mut self) {
        self.is_second = true;
        self.lanes.values_mut().for_each(Reach::again);
    }

    /// Returns whether a tick is planning for the second time.
    pub(super) fn is_second(&self) -> bool {
        self.is_second
    }

    /// Notes that the transaction folded.
    pub(in super::super) fn set_folded(&mut self) {
        self.is_folded = true;
    }

    pub(super) fn put(&mut self, id: LaneId, reach: Reach) {
        self.digests.insert(id, reach.digest);
        self.lanes.insert(id, reach);
    }

    /// Adds a lane that the transaction did not know.
    pub(super) fn put_new(&mut self, id: LaneId, mut reach: Reach) {
        if self.is_second {
            reach.again();
        }
        self.put(id, reach);
    }

    /// Returns the tasks that were read with the lanes of these pages, if they are enough for all pages.
    pub(super) fn take_fetched(&mut self, pages: &[LanePage]) -> Option<Vec<Vec<Ready>>> {
        let take = |page: &LanePage| {
            let fetched = self.lanes.get_mut(&page.lane).filter(|_| page.after.is_none())?.fetched.take();
            fetched.filter(|(most, _)| page.limit <= *most).map(|(_, ready)| ready)
        };
        pages.iter().map(take).collect()
    }

    /// Returns the lane and the place of each of these tasks, if all were read here.
    pub(super) fn places(&self, tasks: &[i64]) -> Option<Vec<(Digest, Place)>> {
        let places = self.lanes.values().flat_map(|lane| {
            let early = lane.found.iter().flatten().map(|(place, _)| place);
            lane.read.iter().chain(early).map(|place| (place.0[3], (lane.digest, *place)))
        });
        let places: HashMap<i64, (Digest, Place)> = places.collect();
        tasks.iter().map(|no| places.get(no).copied()).collect()
    }

    /// Returns those of these tasks that kept their slots when they were read.
    pub(super) fn keeping(&self, tasks: &[i64]) -> Vec<i64> {
        let keeping = self.lanes.iter().filter(|(id, _)| id.keeps_slots());
        let read: HashSet<i64> =
            keeping.flat_map(|(_, lane)| lane.read.iter().map(|place| place.0[3])).collect();
        if read.is_empty() {
            Vec::new()
        } else {
            tasks.iter().copied().filter(|no| read.contains(no)).collect()
        }
    }

    /// Returns true if the tasks of a lane may carry limits.
    pub(super) fn carry_limits(&self) -> bool {
        self.lanes.values().any(|lane| lane.carries_limits)
    }

    pub(super) fn digest(&self, id: LaneId) -> Option<Digest> {
        self.digests.get(&id).copied()
    }

    pub(super) fn get(&self, id: LaneId) -> Option<&Reach> {
        self.lanes.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: LaneId) -> Option<&mut Reach> {
        self.lanes.get_mut(&id)
    }

    /// Returns the lanes that change when these tasks are granted: their bound rises, or they remember fewer
    /// tasks.
    pub(super) fn raised(&self, granted: &[i64]) -> Vec<Raised> {
        let granted = granted.iter().copied().collect();
        // Tasks that keep their slots are in no lane's order of ready tasks, and have no bound.
        let lanes = self.lanes.iter().filter(|(id, _)| !id.keeps_slots());
        lanes.filter_map(|(_, lane)| lane.raised(&granted)).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::types::{FromSql, Type};

    use super::*;

    const LANE: LaneId = LaneId(1);

    fn digest() -> Digest {
        Digest::from_sql(&Type::UUID, &[7; 16]).unwrap()
    }

    fn place(no: i64) -> Place {
        Place([0, 0, -1, no])
    }

    fn ready(numbers: impl IntoIterator<Item = i64>) -> Vec<Ready> {
        numbers.into_iter().map(|no| (place(no), 0)).collect()
    }

    fn numbers(page: Vec<Ready>) -> Vec<i64> {
        page.into_iter().map(|(place, _)| place.0[3]).collect()
    }

    /// A lane whose bound is task 10, with these early tasks and these after the bound.
    fn lane(early: &[i64], read: impl IntoIterator<Item = i64>) -> Reach {
        let mut lane = Reach::new(digest(), place(10), early.to_vec());
        lane.found_early(ready(early.iter().copied()));
        lane.page(Place::BEGIN, place(10), ready(read), 1_000);
        lane
    }

    fn raised(lane: Reach, granted: &[i64]) -> Option<(i64, Vec<i64>)> {
        let mut lanes = Reaches::default();
        lanes.put(LANE, lane);
        lanes.raised(granted).pop().map(|raised| (raised.bound.0[3], raised.early))
    }

    #[test]
    fn a_bound_rises_over_what_was_granted_from_it_on() {
        assert_eq!(raised(lane(&[], 10..20), &[10, 11, 12]), Some((13, vec![])));
        assert_eq!(raised(lane(&[], [14, 17]), &[14, 17]), Some((18, vec![])));
        assert_eq!(raised(lane(&[], 10..20), &[]), None);
        assert_eq!(raised(lane(&[], 10..20), &[99]), None, "a task of another lane");
    }

    #[test]
    fn what_it_passes_over_is_remembered() {
        assert_eq!(raised(lane(&[3], 10..20), &[11, 13]), Some((14, vec![3, 10, 12])));
        let most = MOST_EARLY as i64;
        assert_eq!(raised(lane(&[], 10..99), &[10 + most]), Some((11 + most, (10..10 + most).collect())));
        assert_eq!(raised(lane(&[], 10..99), &[10, 12 + most]), Some((11, vec![])), "too many of them");
        assert_eq!(raised(lane(&[3], 10..99), &[10 + most]), None, "too many with those that were early");
    }

    #[test]
    fn early_tasks_that_were_granted_or_are_gone_are_forgotten() {
        assert_eq!(raised(lane(&[3, 4], 10..20), &[3]), Some((10, vec![4])));
        let mut gone = Reach::new(digest(), place(10), vec![3, 4, 5]);
        assert!(gone.asks_for_early());
        gone.found_early(ready([5]));
        gone.page(Place::BEGIN, place(10), ready(10..12), 9);
        assert_eq!(raised(gone, &[10]), Some((11, vec![5])));
    }

    #[test]
    fn a_page_has_the_early_tasks_in_their_order_and_each_once() {
        let mut lane = lane(&[3, 12], 10..13);
        assert_eq!(numbers(lane.page(Place::BEGIN, place(10), ready(10..13), 4)), [3, 10, 11, 12]);
        assert_eq!(numbers(lane.page(Place::BEGIN, place(10), ready(10..13), 2)), [3, 10]);
        assert_eq!(numbers(lane.page(place(4), place(10), ready(10..13), 9)), [10, 11, 12]);
    }

    #[test]
    fn a_second_plan_remembers_what_was_locked_and_raises_no_bound_over_the_unread() {
        let mut lane = lane(&[3, 4], 10..14);
        lane.again();
        assert!(lane.asks_for_early());
        lane.found_early(ready([4]));
        let page = lane.page(Place::BEGIN, place(10), ready([11, 13, 16, 17]), 4);
        assert_eq!(numbers(page), [4, 11, 13, 16], "without those that are locked");
        assert_eq!(raised(lane, &[4, 11, 13, 16]), Some((14, vec![3, 10, 12])), "15 may be locked");
    }

    #[test]
    fn a_page_that_leaves_a_gap_raises_no_bound() {
        let mut lane = lane(&[], 10..12);
        lane.page(place(15), place(15), ready(15..18), 9);
        assert_eq!(raised(lane, &[10, 11, 15, 16]), Some((12, vec![])));
    }
}
