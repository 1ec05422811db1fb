//! No waiting task is passed over: a tick looks behind the bound of each lane only, and grants all the same what
//! a look at all rows says.
//!
//! `STATIONMASTER_STEPS=1000000` takes as many random steps.

use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::backoff::RetryPolicy;
use stationmaster::lease::LeaseRef;
use stationmaster::ops::{AdmitRequest, Finish, Mark};
use stationmaster::pool::Slots;
use stationmaster::store::PostgresStore;
use stationmaster::task::{LeaseLoss, TaskState};
use stationmaster::{Error, NewTask, Result, TaskKey, Timestamp};

use crate::postgres_server::Plain;
use crate::scratch::{Scratch, url};
use crate::{pool, pool_name};

/// The statement that a tick folds with, so that the test can fold fewer deltas at once.
const FOLD: &str = include_str!("../../src/store/postgres/tx/fold.sql");

const POOLS: [(&str, Option<u32>); 3] = [("narrow", Some(3)), ("wide", Some(40)), ("free", None)];
const LIMITS: [(&str, i64); 2] = [("few", 2), ("many", 30)];

/// How often the counters are compared with what they count.
const AUDITS: u64 = 16;

/// Above this number no more are enqueued.
const MOST_WAITING: usize = 300;

struct World {
    store: PostgresStore,
    scratch: Scratch,
    plain: Plain,
    /// A host that has the rows of these tasks locked.
    host: Plain,
    locked: Vec<i64>,
    random: u64,
    now: i64,
    names: usize,
    granted: usize,
    /// How many tasks the last tick found waiting.
    waiting: usize,
    /// Of how many tasks one carries a key. While none does, ticks grant by a smaller statement.
    one_in: usize,
}

impl World {
    fn new(seed: u64, one_in: usize) -> Self {
        let scratch = Scratch::new();
        let store = scratch.open(|options| options);
        let pools = POOLS.map(|(name, slots)| {
            let mut spec = pool(name, 0);
            spec.slots = slots.map_or(Slots::Unlimited, Slots::Limited);
            spec
        });
        let limits = LIMITS
            .map(|(key, max)| LimitSpec::new(key.try_into().unwrap(), u32::try_from(max).unwrap()).unwrap());
        store
            .write(|tx| {
                tx.define(&pools, IfExists::Replace)?;
                tx.define(&limits, IfExists::Replace)
            })
            .unwrap();
        let (plain, host) = (Plain::connect(&url()), Plain::connect(&url()));
        let locked = Vec::new();
        let (random, now, names, granted, waiting) = (seed, 0, 0, 0, 0);
        Self { store, plain, host, locked, scratch, random, now, names, granted, waiting, one_in }
    }

    /// splitmix64, below this.
    fn below(&mut self, most: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % most as u64).unwrap()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    fn ask(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.plain.ask(&sql.replace("sm.", &format!("\"{}\".", self.scratch.0)))
    }

    fn numbers(&self, sql: &str) -> Vec<Vec<i64>> {
        let number = |value: &Option<String>| value.as_deref().unwrap_or("-1").parse().unwrap();
        self.ask(sql).iter().map(|row| row.iter().map(number).collect()).collect()
    }

    fn key(number: usize) -> TaskKey {
        TaskKey::new("n", "w", "r", number.to_string()).unwrap()
    }

    fn task(&mut self) -> NewTask {
        self.names += 1;
        let retry = RetryPolicy::fixed(Duration::from_micros(5)).max_attempts(4).build().unwrap();
        let mut task = NewTask::new(Self::key(self.names))
            .pool(pool_name(POOLS[self.below(3)].0))
            .pool_slots(1 + u32::try_from(self.below(2)).unwrap())
            .priority(i32::try_from(self.below(7)).unwrap() - 3)
            .logical_date(Timestamp::from_micros(i64::try_from(self.below(5)).unwrap()))
            .lease_loss(LeaseLoss::Requeue { at_most: 2 })
            .retry(retry);
        for (key, _) in LIMITS {
            if self.below(self.one_in) == 0 {
                task = task.limit(key.try_into().unwrap());
            }
        }
        match self.below(4) {
            0 => task.not_before(Timestamp::from_micros(self.now + i64::try_from(self.below(20)).unwrap())),
            _ => task,
        }
    }

    /// As long as few enough wait: each tick is compared with a look at all of them.
    fn enqueue(&mut self) {
        if self.waiting > MOST_WAITING {
            return self.mark(MOST_WAITING);
        }
        let most = if self.below(20) == 0 { 80 } else { 5 };
        let tasks: Vec<NewTask> = (0..1 + self.below(most)).map(|_| self.task()).collect();
        self.store.write(|tx| tx.enqueue(self.now(), &tasks)).unwrap();
    }

    /// What a tick must grant, by reading all rows that are not locked: the first that fits, then the next,
    /// in the order of admission.
    fn plan(&mut self, budget: usize) -> Vec<i64> {
        let number = |value: &Option<String>| value.as_deref().unwrap().parse::<i64>().unwrap();
        let waiting = self.ask(&format!(
            "SELECT task.no, task.slots, task.pool, task.limits FROM (
                 SELECT no FROM sm.ready UNION ALL SELECT no FROM sm.idle WHERE due <= {}
             ) waiting JOIN sm.task USING (no) ORDER BY task.rank, task.logical_date, task.map_index, task.no",
            self.now
        ));
        self.waiting = waiting.len();
        let waiting = waiting.into_iter().filter(|row| !self.locked.contains(&number(&row[0])));
        let held =
            self.ask("SELECT lease.slots, task.pool, task.limits FROM sm.lease JOIN sm.task USING (no)");
        let is_in = |row: &[Option<String>], at: usize, pool: &str| row[at].as_deref() == Some(pool);
        let carries =
            |row: &[Option<String>], at: usize, key: &str| row[at].as_deref().unwrap().contains(key);
        let mut pools = POOLS.map(|(name, slots)| {
            let held: i64 = held.iter().filter(|row| is_in(row, 1, name)).map(|row| number(&row[0])).sum();
            slots.map_or(i64::MAX, |slots| i64::from(slots) - held)
        });
        let mut limits = LIMITS.map(|(key, max)| {
            max - i64::try_from(held.iter().filter(|row| carries(row, 2, key)).count()).unwrap()
        });
        let mut plan = Vec::new();
        for row in waiting {
            let (at, slots) =
                (POOLS.iter().position(|(name, _)| is_in(&row, 2, name)).unwrap(), number(&row[1]));
            let carried: Vec<usize> = (0..2).filter(|key| carries(&row, 3, LIMITS[*key].0)).collect();
            if plan.len() < budget && slots <= pools[at] && carried.iter().all(|key| limits[*key] > 0) {
                pools[at] -= slots;
                carried.iter().for_each(|key| limits[*key] -= 1);
                plan.push(number(&row[0]));
            }
        }
        plan
    }

    /// A tick, and whether it is rolled back.
    fn tick(&mut self, is_undone: bool) {
        let budget = 1 + self.below(30);
        let plan = self.plan(budget);
        let lease = Duration::from_micros(10 + self.below(40) as u64);
        let name = format!("tick {}", self.now);
        let order =
            AdmitRequest::new("h".try_into().unwrap(), name.as_str().try_into().unwrap(), budget, lease);
        let mut granted = Vec::new();
        // Its commit goes along, or is to be undone, or neither.
        let is_last = !is_undone && self.below(2) == 0;
        let done: Result<()> = self.store.write(|tx| {
            let admission = match is_last {
                true => tx.last(|tx| tx.admit(self.now(), &order))?,
                false => tx.admit(self.now(), &order)?,
            };
            granted = admission.granted.iter().map(|task| task.id.0).collect();
            if is_undone { Err(Error::abort("on purpose")) } else { Ok(()) }
        });
        assert_eq!(done.is_err(), is_undone, "{done:?}");
        // A tick that is to be undone may also fail before.
        assert_eq!(granted, plan, "at {}, {budget} at most, locked: {:?}: {done:?}", self.now, self.locked);
        self.granted += granted.len();
    }

    fn some(&mut self, rows: Vec<Vec<i64>>) -> Vec<Vec<i64>> {
        self.some_of(rows, 6)
    }

    fn some_of(&mut self, mut rows: Vec<Vec<i64>>, most: usize) -> Vec<Vec<i64>> {
        let most = 1 + self.below(most);
        let mut some = Vec::new();
        while some.len() < most && !rows.is_empty() {
            let at = self.below(rows.len());
            some.push(rows.swap_remove(at));
        }
        some
    }

    fn finish(&mut self) {
        let leases = self.numbers("SELECT no, epoch, started FROM sm.lease ORDER BY no");
        let ends: Vec<(LeaseRef, bool, usize)> = self
            .some(leases)
            .iter()
            .map(|row| (LeaseRef::new(stationmaster::TaskId(row[0]), row[1]), row[2] == 0, self.below(4)))
            .collect();
        let waiting: Vec<LeaseRef> = ends.iter().filter(|end| end.1).map(|end| end.0).collect();
        let finishes: Vec<Finish> = ends
            .iter()
            .map(|(lease, _, how)| match how {
                0 => Finish::failed(*lease, "again"),
                1 => Finish::given_back(*lease),
                _ => Finish::success(*lease),
            })
            .collect();
        self.store
            .write(|tx| {
                tx.start(self.now(), &waiting)?;
                tx.finish(self.now(), &finishes)
            })
            .unwrap();
    }

    fn keys(&self, sql: &str) -> Vec<Vec<i64>> {
        self.numbers(&format!(
            "SELECT task.task, task.no FROM ({sql}) found JOIN sm.task USING (no) ORDER BY task.no"
        ))
    }

    fn clear(&mut self) {
        let ended = self.keys("SELECT no FROM sm.idle WHERE state >= 6");
        let keys: Vec<TaskKey> =
            self.some(ended).iter().map(|row| Self::key(usize::try_from(row[0]).unwrap())).collect();
        self.store.write(|tx| tx.clear(self.now(), &keys)).unwrap();
    }

    fn mark(&mut self, most: usize) {
        let open = self.keys(
            "SELECT no FROM sm.ready UNION ALL SELECT no FROM sm.idle WHERE state < 6 UNION ALL SELECT no FROM sm.lease",
        );
        let open = open.into_iter().filter(|row| !self.locked.contains(&row[1])).collect();
        let marks: Vec<Mark> = self
            .some_of(open, most)
            .iter()
            .map(|row| Mark::new(Self::key(usize::try_from(row[0]).unwrap()), TaskState::Skipped, "no"))
            .collect();
        self.store.write(|tx| tx.mark(self.now(), &marks)).unwrap();
    }

    /// Some waiting tasks get keys, or lose theirs.
    fn change(&mut self) {
        let waiting =
            self.keys("SELECT no FROM sm.ready UNION ALL SELECT no FROM sm.idle WHERE due IS NOT NULL");
        let waiting = waiting.into_iter().filter(|row| !self.locked.contains(&row[1])).collect();
        let keys: Vec<TaskKey> =
            self.some(waiting).iter().map(|row| Self::key(usize::try_from(row[0]).unwrap())).collect();
        let key = (self.below(self.one_in) < self.one_in.div_ceil(4)).then(|| LIMITS[self.below(2)].0);
        let edit = |task: &mut NewTask| {
            task.limits.clear();
            if let Some(key) = key {
                *task = task.clone().limit(key.try_into().unwrap());
            }
        };
        self.store.write(|tx| tx.change(self.now(), &keys, edit)).unwrap();
    }

    /// A host locks rows of waiting tasks, the first ones or any, or ends its transaction.
    fn lock(&mut self) {
        if !self.locked.is_empty() {
            self.host.ask("ROLLBACK");
            self.locked.clear();
            return;
        }
        let most = [3, 20, 60][self.below(3)];
        let order = ["rank, logical_date, map_index, no", "no"][self.below(2)];
        let waiting = format!(
            "SELECT no FROM (SELECT no, rank, logical_date, map_index FROM sm.ready UNION ALL
                 SELECT no, rank, logical_date, map_index FROM sm.idle WHERE due IS NOT NULL) waiting
             ORDER BY {order} LIMIT {most}"
        );
        self.locked = self.numbers(&waiting).into_iter().map(|row| row[0]).collect();
        let numbers: Vec<String> = self.locked.iter().map(i64::to_string).collect();
        let lock = ["ready", "idle"].map(|table| {
            format!("SELECT FROM sm.{table} WHERE no = ANY ('{{{}}}') FOR UPDATE", numbers.join(","))
        });
        let sql = format!("BEGIN; {}", lock.join(";")).replace("sm.", &format!("\"{}\".", self.scratch.0));
        self.host.ask(&sql);
    }

    /// Forgets some of the tasks that ended, and with the last one of a lane its needs.
    fn forget(&mut self) {
        let keep = Duration::from_micros(self.below(200) as u64);
        self.store.write(|tx| tx.forget_ended(self.now(), keep, 80)).unwrap();
    }

    /// Applies some deltas, as another service may.
    fn fold(&mut self) {
        let most = 1 + self.below(40);
        let rows = self.ask(&FOLD.replace("$1::bigint", &most.to_string()).replace("$2::bigint", "0"));
        assert_eq!(rows[0][2].as_deref(), Some("{}"), "{rows:?}");
    }

    fn step(&mut self) {
        self.now += i64::try_from(self.below(4)).unwrap();
        match self.below(19) {
            0..=3 => self.enqueue(),
            4..=6 => {
                self.now += 1;
                self.tick(false);
            }
            7 => {
                self.now += 1;
                self.tick(true);
            }
            8..=11 => self.finish(),
            12 => self.clear(),
            13 => self.mark(6),
            14 => drop(self.store.write(|tx| tx.reap(self.now(), 100)).unwrap()),
            15 => self.lock(),
            16 => self.forget(),
            17 => self.change(),
            _ => self.fold(),
        }
    }
}

#[test]
fn ticks_grant_what_a_look_at_all_rows_says() {
    let steps = std::env::var("STATIONMASTER_STEPS").map_or(1_500, |steps| steps.parse().expect("a number"));
    for one_in in [4, 1_000] {
        takes_steps(World::new(steps, one_in), steps.div_ceil(2));
    }
}

fn takes_steps(mut world: World, steps: u64) {
    for step in 0..steps {
        world.step();
        if step % AUDITS == 0 {
            assert_eq!(world.store.read(|tx| tx.audit()).unwrap(), [], "after {step} steps");
        }
    }
    world.now += 1_000;
    world.locked.push(0);
    world.lock();
    world.tick(false);
    assert_eq!(world.store.read(|tx| tx.audit()).unwrap(), []);
    let early =
        world.numbers("SELECT coalesce(sum(cardinality(early)), 0), nextval('sm.version') FROM sm.lane_use");
    println!("{} grants, {} early tasks at the end, {} versions", world.granted, early[0][0], early[0][1]);
    assert!(world.granted > 20, "the steps grant something");
}

/// A tick, and how many it granted and when the next one is due.
fn admit(store: &PostgresStore, now: i64, name: &str) -> (usize, Option<Timestamp>) {
    let order =
        AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 9, Duration::from_secs(1));
    let admission = store.write(|tx| tx.admit(Timestamp::from_micros(now), &order)).unwrap();
    (admission.granted.len(), admission.next_due)
}

/// What the last fold saw is of the other server, and may be ahead of this one.
#[test]
fn a_schema_that_was_restored_is_searched_as_a_whole() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[crate::task("a")])).unwrap();
    let ahead = "UPDATE sm.tick SET seen = '9000000000000:9000000000000:'";
    crate::scratch::query(&ahead.replace("sm.", &format!("\"{}\".", scratch.0)));
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    assert_eq!(admit(&store, 1, "first").0, 1);
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[crate::task("b")])).unwrap();
    assert_eq!(admit(&store, 2, "second").0, 1);
}

/// The other server was ahead by a little, and no tick ran until this one had caught up.
#[test]
fn a_schema_that_was_restored_is_searched_as_a_whole_when_the_server_has_caught_up() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let ask = |sql: &str| crate::scratch::rows(&sql.replace("sm.", &format!("\"{}\".", scratch.0)));
    let ahead =
        "UPDATE sm.tick SET seen = format('%1$s:%1$s:', txid_current() + 2000)::txid_snapshot RETURNING 1";
    assert_eq!(ask(ahead).len(), 1);
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[crate::task("a")])).unwrap();
    crate::scratch::query("DO 'BEGIN FOR n IN 1..2500 LOOP PERFORM txid_current(); COMMIT; END LOOP; END'");
    let is_passed = "SELECT delta.xid < txid_snapshot_xmax(seen) AND \
         txid_snapshot_xmax(seen) <= txid_snapshot_xmax(txid_current_snapshot()) FROM sm.delta, sm.tick";
    assert!(ask(is_passed)[0].get::<_, bool>(0));
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    assert_eq!(admit(&store, 1, "first").0, 1);
}

/// Who folds may have ended a task before, and others may have come and gone since.
#[test]
fn a_fold_by_a_transaction_that_wrote_before_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let other = scratch.open(|options| options);
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[crate::task("a"), crate::task("b")])).unwrap();
    let order = |name: &str| {
        AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1, Duration::from_secs(1))
    };
    let held = store.write(|tx| tx.admit(Timestamp::from_micros(1), &order("first"))).unwrap().granted;
    let lease = held[0].lease_ref();
    store
        .write(|tx| {
            tx.finish(Timestamp::from_micros(2), &[stationmaster::ops::Finish::success(lease)])?;
            for name in ["c", "d"] {
                other.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[crate::task(name)]))?;
            }
            tx.admit(Timestamp::from_micros(3), &order("second"))
        })
        .unwrap();
    let ahead = format!(
        "SELECT (xmin::text::bigint - txid_snapshot_xmax(seen)) & 4294967295 < 1000000 FROM \"{}\".tick",
        scratch.0
    );
    assert!(crate::scratch::rows(&ahead)[0].get::<_, bool>(0), "it is known as of this server");
    other.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[crate::task("e")])).unwrap();
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    assert_eq!(admit(&store, 4, "third").0, 3);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// Otherwise the next tick would be due at once, for as long as the host is open.
#[test]
fn a_tick_is_not_due_for_what_a_host_has_locked() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let due = |name: &str, at| crate::task(name).not_before(Timestamp::from_micros(at));
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[due("locked", 5), due("later", 90)])).unwrap();
    let host = Plain::connect(&url());
    let lock = "BEGIN; SELECT FROM sm.idle WHERE due = 5 FOR UPDATE";
    host.ask(&lock.replace("sm.", &format!("\"{}\".", scratch.0)));
    let later = Some(Timestamp::from_micros(90));
    assert_eq!(admit(&store, 10, "first"), (0, later));
    assert_eq!(admit(&store, 11, "second"), (0, later), "it is remembered by its number now");
    host.ask("ROLLBACK");
    assert_eq!(admit(&store, 12, "third"), (1, later));
}

/// It has budget left, and does not wait for the host.
#[test]
fn what_a_host_has_locked_is_reported_as_busy() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &["a", "b", "c"].map(crate::task))).unwrap();
    let host = Plain::connect(&url());
    let lock = "BEGIN; SELECT FROM sm.ready ORDER BY no LIMIT 2 FOR UPDATE";
    host.ask(&lock.replace("sm.", &format!("\"{}\".", scratch.0)));
    let admit = |name: &str| {
        let lease = Duration::from_secs(60);
        let order = AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 9, lease);
        let admission = store.write(|tx| tx.admit(Timestamp::from_micros(1), &order)).unwrap();
        (admission.granted.len(), admission.refused_by_reason())
    };
    assert_eq!(admit("first"), (1, [("busy", 2)].into()));
    assert_eq!(admit("second"), (0, [("busy", 2)].into()));
    host.ask("ROLLBACK");
    assert_eq!(admit("third"), (2, [].into()));
}

/// However many changes there are to add up, a tick holds its lock only for a limited number, and still
/// grants.
#[test]
fn a_tick_folds_so_many_deltas_and_is_due_again_at_once() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    // One lane each.
    let task = |n: i32| crate::task(&n.to_string()).limit(format!("l{n}").as_str().try_into().unwrap());
    let tasks: Vec<NewTask> = (0..10_100).map(task).collect();
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
    let left = || -> i64 {
        crate::scratch::rows(&format!("SELECT count(*) FROM \"{}\".delta", scratch.0))[0].get(0)
    };
    assert_eq!(left(), 10_100);
    assert_eq!(admit(&store, 7, "first"), (9, Some(Timestamp::from_micros(7))));
    assert_eq!(left(), 100);
    // There are more lanes than it reads.
    assert_eq!(admit(&store, 8, "second"), (9, Some(Timestamp::from_micros(8))));
    assert_eq!(left(), 0);
}
