//! Lists of tasks and their counts, against a filter over all tasks.

use super::keeping::resume;
use super::random::Random;
use super::steps::Steps;
use super::world::{World, at, limit, pool, rows, sized, to};
use crate::error::{Error, Invalid};
use crate::id::{Holder, Namespace, QueueName, RunId, WorkflowId};
use crate::lease::TaskId;
use crate::store::contract::{GrantBatch, Place, TaskWalk, Walk};
use crate::store::{Inserted, Store};
use crate::task::{NewTask, TaskCount, TaskPage, TaskQuery, TaskRecord, TaskState};
use crate::testing::{RawStoreExt, count_run_reads};
use crate::{Result, TaskKey};

cases!("listing":
    every_list_is_what_a_filter_finds,
    lists_come_in_the_documented_order,
    pages_lose_nothing_that_stays_and_repeat_nothing,
    documented_lists_read_what_they_return,
    a_page_that_passed_many_tasks_ends_and_goes_on,
    counts_are_those_of_a_filter,
    counts_stop_at_their_cap,
    what_cannot_be_listed_is_refused,
);

/// A store with tasks in every state, and the numbers of all.
struct Many<'a> {
    world: World<'a>,
    random: Random,
    ids: Vec<TaskId>,
    now: i64,
}

impl<'a> Many<'a> {
    fn new(store: &'a dyn Store, seed: u64) -> Self {
        let world = World(store);
        world.write(|tx| tx.put_pools(&[sized("a", 10_000), sized("b", 10_000)]));
        Self { world, random: Random::new(seed), ids: Vec::new(), now: 100 }
    }

    fn tasks(&self) -> Vec<TaskRecord> {
        self.world.read(|tx| tx.tasks_by_id(&self.ids)).into_iter().flatten().collect()
    }

    fn insert(&mut self, count: usize) {
        let random = &mut self.random;
        let mut news = Vec::new();
        for _ in 0..count {
            let [namespace, workflow, run] = ["n", "w", "r"].map(|of| format!("{of}{}", random.below(3)));
            let name = format!("t{}", self.ids.len() + news.len());
            let key = TaskKey::new(namespace, workflow, run, name).unwrap();
            let key = if random.once_in(4) { key.mapped(random.below(3) as u32) } else { key };
            let mut new = NewTask::new(key).priority(random.below(3) as i32);
            new.logical_date = Some(at(random.instant(3)));
            new = new.pool(pool(["default_pool", "a", "b"][random.index(3)]));
            new = new.queue(QueueName::new(["default", "q", "r"][random.index(3)]).unwrap());
            if random.once_in(3) {
                new = new.limit(limit(["x", "[\"y"][random.index(2)]));
            }
            if random.once_in(4) {
                let other = if new.pool.as_str() == "a" { "b" } else { "a" };
                new = new.also(pool(other), 2).limit_count(limit("[\"y"), 2);
            }
            if random.once_in(3) {
                new = new.not_before(at(self.now + random.instant(40)));
            }
            news.push(new);
        }
        let inserted = self.world.write(|tx| tx.insert_tasks_if_absent(&rows(&news)));
        self.ids.extend(inserted.into_iter().map(|inserted| match inserted {
            Inserted::New(id) | Inserted::Exists(id) => id,
            refused @ Inserted::Refused { .. } => panic!("{refused}"),
        }));
    }

    /// Changes some tasks, each to a state that it can get to.
    fn change(&mut self, count: usize) {
        self.now += self.random.instant(6);
        let now = at(self.now);
        if self.random.once_in(2) {
            self.world.write(|tx| tx.promote(now, 5));
        }
        for _ in 0..count {
            let id = self.ids[self.random.index(self.ids.len())];
            let Some(task) = self.world.read(|tx| tx.tasks_by_id(&[id])).remove(0) else { continue };
            let lease = task.lease_ref();
            match task.state {
                TaskState::Scheduled if task.due.is_none() => {
                    let holder = Holder::new(["g", "h", "i"][self.random.index(3)]).unwrap();
                    let mut batch =
                        GrantBatch::new(std::slice::from_ref(&id), &holder, now, at(self.now + 500));
                    batch.started = self.random.once_in(2);
                    self.world.write(|tx| tx.grant_if_open(&batch));
                }
                TaskState::Scheduled | TaskState::UpForRetry => {}
                TaskState::Queued if self.random.once_in(2) => {
                    self.world.start(&[lease], now);
                }
                TaskState::Running if self.random.once_in(2) => self.leave(&task),
                TaskState::Sensing if self.random.once_in(4) => {
                    let next = [TaskState::Success, TaskState::Skipped][self.random.index(2)];
                    self.world.write(|tx| tx.end_sensors_if_waiting(&[lease]));
                    self.end(&task, next);
                }
                // Cleared.
                state if state.is_end() && self.random.once_in(6) => {
                    self.world.shift(&[to(lease, TaskState::Scheduled)]);
                }
                _ => {}
            }
        }
    }

    /// Takes a running task to one of the states that follow.
    fn leave(&mut self, task: &TaskRecord) {
        let lease = task.lease_ref();
        match self.random.below(6) {
            0 => {
                let mut retry = to(lease, TaskState::UpForRetry);
                (retry.due, retry.ended_at) =
                    (Some(at(self.now + self.random.instant(20))), Some(task.recorded_at(at(self.now))));
                self.world.shift(&[retry]);
            }
            1 => {
                self.world.shift(&[to(lease, TaskState::Scheduled)]);
            }
            2 => {
                let insert = super::world::sensor(lease, "x").insert(at(self.now));
                self.world.shift(&[to(lease, TaskState::Sensing)]);
                self.world.write(|tx| tx.put_sensors(std::slice::from_ref(&insert)));
            }
            _ => {
                let ends: Vec<_> = TaskState::ALL.into_iter().filter(|state| state.is_end()).collect();
                let end = ends[self.random.index(ends.len())];
                self.end(task, end);
            }
        }
    }

    fn end(&self, task: &TaskRecord, state: TaskState) {
        let mut end = to(task.lease_ref(), state);
        end.ended_at = Some(task.recorded_at(at(self.now)));
        self.world.shift(&[end]);
    }

    fn fill(&mut self, tasks: usize) {
        self.insert(tasks);
        for _ in 0..8 {
            self.change(tasks / 2);
        }
        self.insert(6);
        let last: Vec<TaskRecord> = self.tasks().split_off(tasks);
        let ready: Vec<TaskId> = last.iter().filter(|task| task.is_ready()).map(|task| task.id).collect();
        resume(self.world, &ready[..ready.len() / 2]);
    }
}

/// Queries of every walk, alone and with more filters.
fn queries(random: &mut Random, now: i64) -> Vec<TaskQuery> {
    let name = |prefix: &str, random: &mut Random| format!("{prefix}{}", random.below(4));
    let stages = [
        TaskQuery::all(),
        TaskQuery::waiting(),
        TaskQuery::leased(),
        TaskQuery::sensing(),
        TaskQuery::ended(),
    ];
    let singles = TaskState::ALL.map(|state| TaskQuery::new([state]));
    let pairs = [
        TaskQuery::new([TaskState::Running, TaskState::Scheduled]),
        TaskQuery::new([TaskState::Failed, TaskState::Skipped]),
    ];
    let mut all = Vec::new();
    for query in stages.into_iter().chain(singles).chain(pairs) {
        let namespace = Namespace::new(name("n", random)).unwrap();
        let workflow = WorkflowId::new(name("w", random)).unwrap();
        let in_workflow = query.clone().namespace(namespace.clone()).workflow(workflow.clone());
        let holder = Holder::new(["g", "h", "none"][random.index(3)]).unwrap();
        let wanted_pool = pool(["default_pool", "a", "none"][random.index(3)]);
        let since = at(now - random.instant(30));
        all.extend([
            query.clone().namespace(namespace),
            in_workflow.clone(),
            in_workflow.clone().run(RunId::new(name("r", random)).unwrap()),
            in_workflow.pool(wanted_pool.clone()),
            query.clone().queue(QueueName::new(["default", "q"][random.index(2)]).unwrap()),
            query.clone().pool(wanted_pool.clone()),
            query.clone().limit_key(limit(["x", "[\"y", "y"][random.index(3)])),
            query.clone().pool(wanted_pool).limit_key(limit("x")),
            query.clone().holder(holder.clone()),
            query.clone().holder(holder).pool(pool("a")),
            query.clone().due_before(at(now + random.instant(30))),
            query.clone().due_since(since).due_before(at(now + 5)).queue(QueueName::new("q").unwrap()),
            query.clone().ended_since(since),
            query.clone().ended_since(since).pool(pool("b")),
            query,
        ]);
    }
    // A filter that no task in these states can have is refused, and tried elsewhere.
    all.retain(|query| query.check().is_ok());
    all
}

fn page(store: &dyn Store, query: &TaskQuery) -> TaskPage {
    store.read(|tx| tx.list_tasks(query)).unwrap()
}

fn in_pages(store: &dyn Store, query: &TaskQuery, size: usize) -> Vec<TaskRecord> {
    let (mut query, mut found) = (query.clone().limit(size), Vec::new());
    loop {
        let page = page(store, &query);
        assert!(page.tasks.len() <= size, "{query:?}");
        found.extend(page.tasks);
        let Some(next) = page.next else { return found };
        query = query.after(next);
    }
}

fn by_id(tasks: impl IntoIterator<Item = TaskRecord>) -> Vec<TaskRecord> {
    let mut tasks: Vec<TaskRecord> = tasks.into_iter().collect();
    tasks.sort_by_key(|task| task.id);
    tasks
}

fn every_list_is_what_a_filter_finds(store: &dyn Store) {
    let mut many = Many::new(store, 11);
    many.fill(80);
    let tasks = many.tasks();
    for state in TaskState::ALL {
        assert!(tasks.iter().any(|task| task.state == state), "the world has no task that is {state}");
    }
    assert!(tasks.iter().any(TaskRecord::keeps_slots), "the world has no task that kept its slots");
    let now = many.now;
    let queries = queries(&mut many.random, now);
    let mut hits = 0;
    for query in &queries {
        let expected = by_id(tasks.iter().filter(|task| query.wants(task)).cloned());
        hits += usize::from(!expected.is_empty());
        let whole = in_pages(store, query, TaskQuery::MOST);
        assert_eq!(by_id(whole.clone()), expected, "{query:?}");
        for size in [1, 3, 10].into_iter().filter(|size| *size * 12 > whole.len()) {
            assert_eq!(in_pages(store, query, size), whole, "pages of {size} of {query:?}");
        }
    }
    assert!(hits * 2 > queries.len(), "{hits} of {} lists have a task", queries.len());
}

fn lists_come_in_the_documented_order(store: &dyn Store) {
    let mut many = Many::new(store, 12);
    many.fill(80);
    let list = |query: TaskQuery| in_pages(store, &query, 7);
    let sorted = |query: TaskQuery, is: &dyn Fn(&TaskRecord, &TaskRecord) -> bool| {
        let list = list(query.clone());
        assert!(list.len() > 1, "{query:?}");
        assert!(list.windows(2).all(|pair| is(&pair[0], &pair[1])), "{query:?}");
    };
    sorted(TaskQuery::all(), &|a, b| a.id > b.id);
    sorted(TaskQuery::all().namespace(Namespace::new("n1").unwrap()), &|a, b| a.key < b.key);
    sorted(TaskQuery::leased(), &|a, b| {
        let holder = |task: &TaskRecord| task.lease.as_ref().map(|lease| lease.holder.clone());
        (holder(a), a.id) < (holder(b), b.id)
    });
    sorted(TaskQuery::ended(), &|a, b| (a.ended_at, a.id) > (b.ended_at, b.id));
    sorted(TaskQuery::new([TaskState::Failed]), &|a, b| (a.ended_at, a.id) > (b.ended_at, b.id));
    sorted(TaskQuery::waiting().due_since(at(0)), &|a, b| (a.due, a.order()) < (b.due, b.order()));
    // What waits for an instant or kept its slots, then what is ready, each lane's together, the ready ones in the order of
    // admission.
    let part = |task: &TaskRecord| match task.state {
        TaskState::UpForRetry => 0,
        _ if task.due.is_some() || task.keeps_slots() => 1,
        _ => 2,
    };
    sorted(TaskQuery::waiting(), &|a, b| match (part(a), part(b)) {
        (of, same) if of != same => of < same,
        _ if a.lane != b.lane => true,
        (2, _) => a.order() < b.order(),
        _ => a.id < b.id,
    });
    sorted(TaskQuery::sensing(), &|a, b| a.lane != b.lane || a.id < b.id);
    let ready = list(TaskQuery::new([TaskState::Scheduled])).into_iter().filter(TaskRecord::is_ready);
    let mut lanes: Vec<_> = ready.map(|task| task.lane).collect();
    lanes.dedup();
    let mut distinct = lanes.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(lanes.len(), distinct.len(), "the tasks of a lane stand together");
}

fn pages_lose_nothing_that_stays_and_repeat_nothing(store: &dyn Store) {
    let mut many = Many::new(store, 13);
    many.fill(50);
    let now = many.now;
    let queries = queries(&mut many.random, now);
    for (at, query) in queries.iter().enumerate().filter(|(at, _)| at % 4 == 0) {
        let mut query = query.clone().limit(3);
        let mut stayed: Vec<TaskRecord> = many.tasks().into_iter().filter(|task| query.wants(task)).collect();
        let mut seen: Vec<(TaskId, TaskState, Option<crate::Timestamp>, i64)> = Vec::new();
        loop {
            let page = page(store, &query);
            for task in &page.tasks {
                assert!(query.wants(task), "{at}: {query:?}");
                seen.push((task.id, task.state, task.due, task.epoch));
            }
            let Some(next) = page.next else { break };
            query = query.after(next);
            many.change(3);
            many.insert(1);
            // Only tasks that matched at every look.
            let tasks = many.tasks();
            stayed.retain(|stays| tasks.iter().any(|task| task.id == stays.id && query.wants(task)));
            stayed.retain(|stays| tasks.iter().any(|task| task.id == stays.id && is_same_stay(stays, task)));
        }
        for task in &stayed {
            assert!(seen.iter().any(|(id, ..)| *id == task.id), "{at}: {query:?} lost {task:?}");
        }
        let is_once = query.namespace.is_some() || query.states.len() == TaskState::ALL.len();
        if is_once && query.holder.is_none() && query.due_before.is_none() {
            let mut ids: Vec<TaskId> = seen.iter().map(|(id, ..)| *id).collect();
            ids.sort_unstable();
            assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{at}: {query:?} showed a task twice");
        }
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all, "{at}: {query:?} showed a task twice");
    }
}

/// Whether nothing granted the task or moved it out of an end since: it may have become ready.
fn is_same_stay(before: &TaskRecord, now: &TaskRecord) -> bool {
    let end = |task: &TaskRecord| task.ended_at.filter(|_| task.state.is_end());
    before.epoch == now.epoch && end(before) == end(now) && before.lease.is_some() == now.lease.is_some()
}

fn documented_lists_read_what_they_return(store: &dyn Store) {
    let mut many = Many::new(store, 15);
    many.fill(80);
    let (now, a, q) = (many.now, pool("a"), QueueName::new("q").unwrap());
    let namespace = TaskQuery::all().namespace(Namespace::new("n1").unwrap());
    let workflow = namespace.clone().workflow(WorkflowId::new("w1").unwrap());
    for query in [
        TaskQuery::all(),
        namespace,
        workflow.clone(),
        workflow.run(RunId::new("r1").unwrap()),
        TaskQuery::waiting(),
        TaskQuery::waiting().due_since(at(now - 5)).due_before(at(now + 20)),
        TaskQuery::waiting().pool(a.clone()),
        TaskQuery::waiting().queue(q.clone()).limit_key(limit("x")),
        TaskQuery::new([TaskState::Scheduled]),
        TaskQuery::leased(),
        TaskQuery::leased().holder(Holder::new("h").unwrap()),
        TaskQuery::sensing(),
        TaskQuery::sensing().queue(q),
        TaskQuery::ended(),
        TaskQuery::ended().ended_since(at(now - 10)),
    ] {
        for size in [2, 5, 1000] {
            let mut query = query.clone().limit(size);
            loop {
                let (page, reads) = count_run_reads(|| page(store, &query));
                // The ends of each state come from indexes of their own, whose first entries are compared.
                let lines = 2 * query.possible().filter(|state| state.is_end()).count();
                let most = 2 * page.tasks.len() + if query == TaskQuery::all() { 1 } else { lines.max(1) };
                assert!(reads.rows <= most, "{} of {query:?} read {}", page.tasks.len(), reads.rows);
                let Some(next) = page.next else { break };
                query = query.after(next);
            }
        }
    }
}

fn a_page_that_passed_many_tasks_ends_and_goes_on(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..12).map(|n| format!("{n:02}")).collect();
    let ids = world.plain(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let leases = world.run(&[ids[0], ids[11]]);
    let query = TaskQuery::new([TaskState::Running, TaskState::Sensing]);
    let (mut place, mut found, mut steps): (Option<Place>, Vec<TaskId>, usize) = (None, Vec::new(), 0);
    loop {
        let mut walk = TaskWalk::new(&query, Walk::Numbers, place.as_ref(), 2);
        walk.most_read = 4;
        let walked = world.read(|tx| tx.walk_tasks(&walk));
        found.extend(walked.found);
        steps += 1;
        place = walked.next;
        if place.is_none() {
            break;
        }
    }
    assert_eq!(found, [leases[1].id, leases[0].id]);
    assert!((3..=4).contains(&steps), "{steps} steps of four tasks each");
}

fn count(counts: &[TaskCount], state: TaskState) -> (u64, bool) {
    let of: Vec<&TaskCount> = counts.iter().filter(|count| count.state == state).collect();
    assert_eq!(of.len(), 1, "{state} is counted once");
    (of[0].tasks, of[0].is_at_least)
}

fn counts_are_those_of_a_filter(store: &dyn Store) {
    let mut many = Many::new(store, 14);
    let none = store.read(|tx| tx.count_tasks(5)).unwrap();
    assert!(none.iter().map(|count| count.state).eq(TaskState::ALL));
    assert!(none.iter().all(|count| count.tasks == 0 && !count.is_at_least));
    for _ in 0..4 {
        many.fill(30);
        let tasks = many.tasks();
        let counts = store.read(|tx| tx.count_tasks(10_000)).unwrap();
        for state in TaskState::ALL {
            let expected = tasks.iter().filter(|task| task.state == state).count() as u64;
            assert_eq!(count(&counts, state), (expected, false), "{state}");
        }
    }
}

fn counts_stop_at_their_cap(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..14).map(|n| format!("{n:02}")).collect();
    let ids = world.plain(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let leases = world.run(&ids[..12]);
    let ends = leases.iter().enumerate().map(|(n, lease)| {
        let state = [TaskState::Success, TaskState::Failed, TaskState::UpForRetry][n / 4];
        let mut end = to(*lease, state);
        (end.ended_at, end.due) = (Some(at(30)), (state == TaskState::UpForRetry).then(|| at(90)));
        end
    });
    world.shift(&ends.collect::<Vec<_>>());
    let of = |cap: usize| store.read(|tx| tx.count_tasks(cap)).unwrap();
    let exact = of(8);
    for (state, tasks) in [
        (TaskState::Success, 4),
        (TaskState::Failed, 4),
        (TaskState::UpForRetry, 4),
        (TaskState::Scheduled, 2),
    ] {
        assert_eq!(count(&exact, state), (tasks, false), "{state}");
    }
    let capped = of(3);
    assert_eq!(count(&capped, TaskState::Failed), (3, true));
    assert_eq!(count(&capped, TaskState::UpForRetry), (3, true));
    assert_eq!(count(&capped, TaskState::Scheduled), (2, true), "at least the ready ones");
    assert_eq!(count(&capped, TaskState::Success), (3, true));
}

fn what_cannot_be_listed_is_refused(store: &dyn Store) {
    let world = World(store);
    world.plain(&["a", "b", "c"]);
    let next = page(store, &TaskQuery::waiting().limit(1)).next.expect("there is more");
    let name = || WorkflowId::new("w").unwrap();
    let namespace = || Namespace::new("n").unwrap();
    for bad in [
        TaskQuery::new([]),
        TaskQuery::all().limit(0),
        TaskQuery::all().limit(TaskQuery::MOST + 1),
        TaskQuery::all().workflow(name()),
        TaskQuery::all().namespace(namespace()).run(RunId::new("r").unwrap()),
        TaskQuery::waiting().holder(Holder::new("h").unwrap()),
        TaskQuery::leased().due_before(at(5)),
        TaskQuery::sensing().ended_since(at(5)),
        TaskQuery::all().ended_since(at(5)).due_since(at(5)),
        TaskQuery::waiting().after(""),
        TaskQuery::waiting().after("next"),
        TaskQuery::all().after(&next),
        TaskQuery::waiting().pool(pool("a")).after(&next),
    ] {
        let refused = store.read(|tx| tx.list_tasks(&bad));
        assert!(matches!(refused, Err(Error::Invalid(Invalid::TaskQuery { .. }))), "{bad:?}: {refused:?}");
    }
    assert_eq!(page(store, &TaskQuery::waiting().limit(9).after(&next)).tasks.len(), 2, "of any length");
    for cap in [0, usize::MAX] {
        let refused: Result<_> = store.read(|tx| tx.count_tasks(cap));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{cap}: {refused:?}");
    }
    // A place that the store did not make.
    let query = TaskQuery::all();
    let place = Place::new([1, 2, 3], ["x".to_owned()]);
    for walk in [Walk::Numbers, Walk::Keys, Walk::Due, Walk::Ready, Walk::Leases, Walk::Sensing, Walk::Ends] {
        let walk = TaskWalk::new(&query, walk, Some(&place), 1);
        let refused = store.read_raw(|tx| tx.walk_tasks(&walk).map_err(Into::into));
        assert!(matches!(refused, Err(Error::Store(_))), "{walk:?}: {refused:?}");
    }
}
