//! The shares of each class, by their turns.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

use super::{Line, Order, refile};
use crate::admission::{LaneId, Pair, ShareTurn, Turn, UnreadOf};
use crate::id::QueueName;

/// The lanes with the same class, share and level.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Contender {
    pub(super) class: i64,
    pair: Arc<Pair>,
    level: i64,
    /// The turn of the share when it was filed.
    turn: ShareTurn,
    /// The number of its groups.
    pub(super) groups: usize,
    /// The groups that do not sleep.
    pub(super) awake: Line<i64>,
    filed: Option<Turn>,
}

impl Order {
    /// Returns the contender of this share and level in a class. Creates it if necessary.
    pub(super) fn contender_of(
        &mut self,
        class: i64,
        pair: Pair,
        level: i64,
        turn: impl Fn(&Pair) -> ShareTurn,
    ) -> i64 {
        let new = self.last + 1;
        let number =
            *self.contenders_of.entry(pair.1.clone()).or_default().entry((class, level)).or_insert(new);
        if number == new {
            self.last = new;
            let (turn, awake) = (turn(&pair), Line::new());
            let new = Contender { class, pair: Arc::new(pair), level, turn, groups: 0, awake, filed: None };
            self.contenders.insert(number, new);
        }
        number
    }

    /// Takes a contender out of its class, and the class out of the turns.
    pub(super) fn take_out_contender(&mut self, number: i64) {
        let Some(contender) = self.contenders.get_mut(&number) else { return };
        let Some(class) = self.classes.get_mut(&contender.class) else { return };
        refile(&mut class.turns, &mut contender.filed, None, number);
        self.turns.refile(&class.key.0, &mut class.filed_turn, None, number);
    }

    /// Takes out the contenders whose turns have changed, and sets their new turns.
    pub(super) fn take_out_changed(&mut self, turn: impl Fn(&Pair) -> ShareTurn) -> Vec<i64> {
        let changed = std::mem::take(&mut self.changed_shares);
        let contenders = changed.iter().filter_map(|share| self.contenders_of.get(share));
        let contenders: Vec<i64> = contenders.flat_map(BTreeMap::values).copied().collect();
        for number in &contenders {
            self.take_out_contender(*number);
            if let Some(contender) = self.contenders.get_mut(number) {
                contender.turn = turn(&contender.pair);
            }
        }
        contenders
    }

    /// Files a contender by its turn and its first task. Forgets an empty contender.
    pub(super) fn refile_contender(&mut self, number: i64) {
        let Some(contender) = self.contenders.get_mut(&number) else { return };
        let (at, pair) = (contender.class, contender.pair.clone());
        let Some(class) = self.classes.get_mut(&at) else { return };
        let due = contender
            .awake
            .first_key_value()
            .map(|(head, _)| Turn::of_share(contender.level, contender.turn, pair.clone(), *head));
        refile(&mut class.turns, &mut contender.filed, due, number);
        if contender.groups == 0 {
            let key = (at, contender.level);
            self.contenders.remove(&number);
            if let Some(contenders) = self.contenders_of.get_mut(&pair.1) {
                contenders.remove(&key);
                if contenders.is_empty() {
                    self.contenders_of.remove(&pair.1);
                }
            }
        }
        self.refile_class(at);
    }

    /// Returns the first contenders of these queues that do not sleep and whose turns are behind this one. If
    /// there are more, also returns the turn behind which they begin.
    pub(in crate::store::memory) fn turns_behind(
        &self,
        queues: Option<&BTreeSet<QueueName>>,
        after: &Turn,
        limit: usize,
    ) -> (Vec<i64>, Option<Turn>) {
        let lines: Vec<&BTreeMap<Turn, i64>> = match queues {
            None => vec![&self.turns.all],
            Some(queues) => queues.iter().filter_map(|queue| self.turns.of(Some(queue))).collect(),
        };
        let mut heap = BinaryHeap::new();
        for (line, classes) in lines.iter().enumerate() {
            let first = classes.first_key_value();
            heap.extend(first.map(|(turn, class)| Reverse((turn, Step::Class { line, class: *class }))));
        }
        let (mut found, mut last) = (Vec::new(), after);
        while let Some(Reverse((turn, step))) = heap.pop() {
            let (class, behind) = match step {
                Step::Class { line, class } => {
                    let beside = next(lines[line], turn);
                    heap.extend(beside.map(|(turn, class)| Reverse((turn, Step::Class { line, class }))));
                    (class, after)
                }
                Step::Contender { class, contender } => {
                    if found.len() >= limit {
                        return (found, Some(last.clone()));
                    }
                    found.push(contender);
                    last = turn;
                    (class, turn)
                }
            };
            let within = self.classes.get(&class).and_then(|class| next(&class.turns, behind));
            heap.extend(
                within.map(|(turn, contender)| Reverse((turn, Step::Contender { class, contender }))),
            );
        }
        (found, None)
    }

    /// Returns the first lane of a contender that does not sleep, and where its other lanes begin if there
    /// are any.
    pub(in crate::store::memory) fn first_lane_of(&self, number: i64) -> Option<(LaneId, Option<UnreadOf>)> {
        let awake = &self.contenders.get(&number)?.awake;
        let (head, group) = awake.first_key_value()?;
        let lanes = &self.groups.get(group)?.lanes;
        let lane = LaneId(*lanes.get(head)?);
        let unread = UnreadOf { lane, number, behind: *head, pages: 0 };
        Some((lane, (awake.len() > 1 || lanes.len() > 1).then_some(unread)))
    }
}

fn next<'a>(line: &'a BTreeMap<Turn, i64>, turn: &Turn) -> Option<(&'a Turn, i64)> {
    let next = line.range((Bound::Excluded(turn), Bound::Unbounded)).next();
    next.map(|(turn, number)| (turn, *number))
}

/// What the walk looks at next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Class { line: usize, class: i64 },
    Contender { class: i64, contender: i64 },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admission::limits::LimitSpec;
    use crate::admission::{Behind, IfExists};
    use crate::id::{LimitKey, TaskKey};
    use crate::ops::{AdmitRequest, Finish};
    use crate::store::MemoryStore;
    use crate::store::contract::{LanesBehind, Survey, SurveyQuery};
    use crate::time::Timestamp;
    use crate::{NewTask, Result};

    const AT: Timestamp = Timestamp::UNIX_EPOCH;

    /// Three tasks of each of 40 shares, each in its own lane.
    fn forty_shares() -> MemoryStore {
        let store = MemoryStore::new();
        let task = |n: usize| {
            let share = LimitKey::new(format!("share-{:02}", n % 40)).unwrap();
            let task = NewTask::new(TaskKey::new("n", "w", "r", format!("{n:03}")).unwrap()).share(share);
            task.limit(LimitKey::new(format!("own-{n}")).unwrap())
        };
        store.write(|tx| tx.enqueue(AT, &(0..120).map(task).collect::<Vec<_>>())).unwrap();
        store
    }

    fn page(store: &MemoryStore, of: &Behind, limit: usize) -> Survey {
        let read = |tx: &mut crate::store::Tx<'_>| -> Result<Survey> {
            tx.raw().lanes_behind(&LanesBehind::of(of, limit, None)).map_err(crate::Error::from)
        };
        store.write(read).unwrap()
    }

    fn numbers(survey: &Survey) -> Vec<i64> {
        survey.lanes.iter().map(|lane| lane.id.0).collect()
    }

    /// A change of needs moves the first task of one lane to another lane that was already filed.
    #[test]
    fn a_task_that_goes_to_another_class_is_found_there() {
        let store = MemoryStore::new();
        let share = LimitKey::new("share").unwrap();
        let task = |name: &str, slots: u32| {
            NewTask::new(TaskKey::new("n", "w", "r", name).unwrap()).share(share.clone()).pool_slots(slots)
        };
        let first = Behind::Turn(Turn::FIRST);
        let goes = task("goes", 1).logical_date(AT);
        let later = task("later", 2).logical_date(AT + Duration::from_secs(1));
        store.write(|tx| tx.enqueue(AT, std::slice::from_ref(&later))).unwrap();
        assert_eq!(numbers(&page(&store, &first, 9)), [1]);
        store.write(|tx| tx.enqueue(AT, std::slice::from_ref(&goes))).unwrap();
        assert_eq!(numbers(&page(&store, &first, 9)), [2, 1]);
        store.write(|tx| tx.change(AT, std::slice::from_ref(&goes.key), |task| task.pool_slots = 2)).unwrap();
        assert_eq!(numbers(&page(&store, &first, 9)), [1]);
    }

    /// Defining a weight changes the order of shares, even of those that nothing else has changed.
    #[test]
    fn a_new_weight_changes_the_order() {
        let store = forty_shares();
        let limit = |n: usize, weight: u32| {
            let spec = LimitSpec::of(LimitKey::new(format!("share-{n:02}")).unwrap());
            LimitSpec { weight: Some(weight), ..spec }
        };
        let order =
            AdmitRequest::new("h".try_into().unwrap(), "t".try_into().unwrap(), 40, Duration::from_secs(9));
        assert_eq!(store.write(|tx| tx.admit(AT, &order)).unwrap().granted.len(), 40);
        let first = Behind::Turn(Turn::FIRST);
        assert_eq!(numbers(&page(&store, &first, 2)), [41, 42], "each holds one slot: by stamp");
        store.write(|tx| tx.define([limit(7, 2)], IfExists::Replace)).unwrap();
        assert_eq!(numbers(&page(&store, &first, 2)), [48, 41]);
        let mut family = LimitSpec::of(LimitKey::new("share-3").unwrap()).family();
        family.weight = Some(3);
        store.write(|tx| tx.define([family.clone()], IfExists::Replace)).unwrap();
        assert_eq!(numbers(&page(&store, &first, 2)), [71, 72], "ten shares of a family");
    }

    /// A share moves back when it takes a slot, and forward when it gives it back, even if its next lane stays first.
    #[test]
    fn a_grant_and_an_end_change_the_order() {
        let store = forty_shares();
        let order = |request: &str| {
            let (holder, request) = ("h".try_into().unwrap(), request.try_into().unwrap());
            AdmitRequest::new(holder, request, 20, Duration::from_secs(9)).started()
        };
        let first = Behind::Turn(Turn::FIRST);
        let granted = store.write(|tx| tx.admit(AT, &order("t"))).unwrap().granted;
        assert_eq!(numbers(&page(&store, &first, 2)), [21, 22], "these hold nothing");
        store.write(|tx| tx.admit(AT, &order("u"))).unwrap();
        assert_eq!(numbers(&page(&store, &first, 2)), [41, 42], "each holds one slot: by stamp");
        store.write(|tx| tx.finish(AT, &[Finish::success(granted[7].lease_ref())])).unwrap();
        assert_eq!(numbers(&page(&store, &first, 2)), [48, 41]);
    }

    #[test]
    fn a_page_has_the_first_lane_of_each_share_by_turns() {
        let store = forty_shares();
        let query = SurveyQuery::new().first(5, AT, 9);
        let survey = store.write(|tx| Ok::<_, crate::Error>(tx.raw().survey(&query)?)).unwrap();
        assert_eq!((numbers(&survey), survey.unread_shares), (vec![1, 2, 3, 4, 5], Some(Turn::FIRST)));

        let first = page(&store, &Behind::Turn(Turn::FIRST), 30);
        assert_eq!(numbers(&first), (1..=30).collect::<Vec<_>>(), "none of them holds anything: by name");
        assert_eq!((first.unread_of.len(), first.shares.len()), (30, 30));
        let rest = page(&store, &Behind::Turn(first.unread_shares.unwrap()), 30);
        assert_eq!((numbers(&rest), rest.unread_shares), ((31..=40).collect::<Vec<_>>(), None));

        let of = first.unread_of[6].clone();
        let second = page(&store, &Behind::Of(of.clone()), 1);
        assert_eq!(numbers(&second), [47]);
        let third = page(&store, &Behind::Of(UnreadOf { behind: second.unread.unwrap(), ..of }), 1);
        assert_eq!((numbers(&third), third.unread), (vec![87], None));
    }
}
