//! Compares the plan with a naive model of the whole protocol, under a virtual clock.
//!
//! Two workers share a store and its shards. Sensors register, sometimes again, are cancelled, and end.
//! Shards change hands. Pokes begin late, return, pass their deadline, and hang. The store refuses ends, and
//! clocks are set back. The model keeps plain lists and recomputes everything.
#![allow(clippy::panic)]

use std::collections::BTreeSet;

use super::*;
use crate::canonical::PokeContext;
use crate::fingerprint::Fingerprint;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::sensor::{
    EndReason, Load, NewSensor, Outage, OutageRow, SensorState, Settings, Terms, backed_off, give_up,
    interval_at, life, next_poke,
};

const TASKS: u64 = 24;
const TARGETS: u64 = 8;
const SHARDS: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);

fn rules() -> Rules {
    let (codes, shards) = (NonZeroU32::new(8).unwrap(), NonZeroU32::new(SHARDS).unwrap());
    Rules {
        min_interval: SECOND,
        max_pause: SECOND * 60,
        window: SECOND * 200,
        usual_timeout: SECOND * 10,
        max_timeout: SECOND * 30,
        lease: SECOND * 30,
        codes,
        shards,
    }
}

/// Pseudorandom numbers from SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn index(&mut self, length: usize) -> usize {
        self.roll(length as u64) as usize
    }
}

/// Each pair of targets shares one fingerprint.
fn print_of(target: u64) -> Fingerprint {
    Fingerprint(target / 2 * 7)
}

fn shard_of(target: u64) -> u32 {
    let code = code(print_of(target), rules().codes);
    shard::of(code, rules().codes, rules().shards)
}

/// A registration.
#[derive(Clone)]
struct Sensor {
    lease: LeaseRef,
    target: u64,
    terms: Terms,
    /// The turn that read it.
    since: u64,
}

impl Sensor {
    fn record(&self, waits: bool) -> SensorRecord {
        let context = PokeContext::from_json(&format!(r#"{{"target":{}}}"#, self.target)).unwrap();
        let kind = "kind".try_into().unwrap();
        let insert = NewSensor::new(self.lease, kind, context, self.terms.settings);
        let key = TaskKey::new("ns", "w", "r", self.lease.id.0.to_string()).unwrap();
        let mut record = SensorRecord::registered(insert.insert(self.terms.registered_at), key, 1, 1, 1);
        record.fingerprint = print_of(self.target);
        record.state = if waits { SensorState::Waiting } else { SensorState::Ended };
        record
    }
}

/// What the model knows about a target that has sensors, or whose poke has not returned.
#[derive(Default)]
struct Target {
    asked: Option<Timestamp>,
    hangs: bool,
    /// True if it may be due for a sensor that has left.
    left: bool,
    joined: bool,
    looked_at: Option<Timestamp>,
    outage: Option<Outage>,
    due: Option<Timestamp>,
}

#[derive(Default)]
struct Naive {
    sensors: Vec<Sensor>,
    targets: BTreeMap<u64, Target>,
    endings: BTreeMap<LeaseRef, EndReason>,
    /// The ongoing outages in the store, and when one of the worker's own pokes found each to be over.
    stored: BTreeMap<Fingerprint, (Timestamp, Option<Timestamp>)>,
    /// When targets whose last sensor has left were last poked.
    looks: BTreeMap<Fingerprint, Timestamp>,
}

impl Naive {
    fn of(&self, target: u64) -> impl Iterator<Item = &Sensor> {
        self.sensors.iter().filter(move |sensor| sensor.target == target)
    }

    fn interval(&self, target: u64, now: Timestamp) -> Duration {
        let of = |sensor: &Sensor| {
            interval_at(&sensor.terms.settings, now.saturating_duration_since(sensor.terms.registered_at))
        };
        let interval = self.of(target).map(of).min().unwrap().max(rules().min_interval);
        let outage = self.targets[&target].outage;
        outage.map_or(interval, |outage| backed_off(interval, outage.age(now), rules().max_pause))
    }

    /// When the target's first sensor times out, and when the first has tolerated the outage for long enough.
    fn ends(&self, target: u64) -> Vec<Timestamp> {
        let outage = self.targets[&target].outage;
        let timeouts = self.of(target).map(|sensor| sensor.terms.times_out_at);
        let borne = |outage: Outage| {
            self.of(target).map(|sensor| outage.since.max(sensor.terms.registered_at) + rules().window).min()
        };
        timeouts.min().into_iter().chain(outage.and_then(borne)).collect()
    }

    /// When a member needs a poke if the last poke was at `since`. No last poke comes before `soonest`.
    fn wanted(&self, target: u64, since: Timestamp, soonest: Timestamp, now: Timestamp) -> Timestamp {
        let found = &self.targets[&target];
        let mut all = vec![next_poke(print_of(target), self.interval(target, now), since)];
        if found.outage.is_none() {
            match found.looked_at {
                None => all.push(now),
                Some(looked) if found.joined => all.push(looked + rules().min_interval),
                Some(_) => {}
            }
        }
        all.extend(self.ends(target).into_iter().map(|end| end.max(soonest)));
        all.into_iter().min().unwrap()
    }

    fn learn(&mut self, sensor: Sensor, left_at: Option<Timestamp>, now: Timestamp) {
        if self.sensors.iter().any(|known| known.lease == sensor.lease) {
            return;
        }
        self.forget(sensor.lease.id);
        let registered_at = sensor.terms.registered_at;
        let taken_over = left_at.filter(|left| registered_at < *left && now >= registered_at + rules().lease);
        let (target, terms) = (sensor.target, sensor.terms);
        let is_first = self.of(target).next().is_none();
        self.sensors.push(sensor);
        let found = self.targets.entry(target).or_default();
        if let (true, Some(looked)) = (is_first, self.looks.get(&print_of(target))) {
            found.looked_at = Some(*looked).filter(|looked| now < *looked + rules().min_interval);
        }
        let unwatched = left_at.filter(|left| now.saturating_duration_since(*left) * 4 > rules().lease * 3);
        if let (true, Some(left), Some((_, over))) =
            (is_first, unwatched, self.stored.get_mut(&print_of(target)))
        {
            *over = Some(left);
        }
        if let Some((since, None)) = self.stored.get(&print_of(target)).filter(|_| is_first) {
            found.outage = Some(Outage { since: *since });
        }
        found.looked_at = found.looked_at.max(taken_over);
        found.joined |= taken_over.is_none();
        if found.asked.is_some() {
            return;
        }
        let interval = interval_at(&terms.settings, now.saturating_duration_since(terms.registered_at));
        let interval = interval.max(rules().min_interval);
        let own = match (found.looked_at, found.outage) {
            (None, _) => now,
            (Some(looked), Some(outage)) => {
                let pause = backed_off(interval, outage.age(now), rules().max_pause);
                next_poke(print_of(target), pause, looked)
                    .min(outage.since.max(terms.registered_at) + rules().window)
            }
            (Some(looked), None) if taken_over.is_some() => {
                let mut missed = vec![next_poke(print_of(target), interval, looked)];
                while missed.len() < 3 && missed[missed.len() - 1] <= now {
                    missed.push(next_poke(print_of(target), interval, missed[missed.len() - 1]));
                }
                // One missed due time is made up for, and no more.
                if missed.len() == 3 { next_poke(print_of(target), interval, now) } else { missed[0] }
            }
            (Some(looked), None) => looked + rules().min_interval,
        };
        let soonest = found.looked_at.map_or(terms.times_out_at, |looked| looked + rules().min_interval);
        let own = own.max(now).min(terms.times_out_at.max(soonest));
        found.due = Some(found.due.map_or(own, |due| due.min(own)));
    }

    fn forget(&mut self, id: TaskId) {
        let Some(at) = self.sensors.iter().position(|sensor| sensor.lease.id == id) else { return };
        let target = self.sensors.remove(at).target;
        let empty = self.of(target).next().is_none();
        let found = self.targets.get_mut(&target).unwrap();
        found.left = !empty;
        if empty {
            let asked = found.asked;
            if let Some(looked) = found.looked_at {
                let known = self.looks.entry(print_of(target)).or_insert(looked);
                *known = looked.max(*known);
            }
            *found = Target { asked, hangs: found.hangs, ..Target::default() };
            if asked.is_none() && !found.hangs {
                self.targets.remove(&target);
            }
        }
    }

    fn keep(&mut self, mine: impl Fn(u64) -> bool) {
        let lost: Vec<TaskId> =
            self.sensors.iter().filter(|sensor| !mine(sensor.target)).map(|sensor| sensor.lease.id).collect();
        lost.into_iter().for_each(|id| self.forget(id));
    }

    /// The targets that are due, each with whether it hangs.
    fn due(&mut self, now: Timestamp) -> BTreeMap<u64, bool> {
        let mut all = BTreeMap::new();
        for target in self.targets.keys().copied().collect::<Vec<_>>() {
            let found = &self.targets[&target];
            let Some(due) = found.due.filter(|due| *due <= now) else { continue };
            if found.left {
                let since = found.looked_at.unwrap_or(now);
                let past = self.ends(target).iter().any(|end| *end <= now);
                let next = if past { due } else { self.wanted(target, since, due, now).max(due) };
                let found = self.targets.get_mut(&target).unwrap();
                (found.left, found.due) = (false, Some(next));
                if next > now {
                    continue;
                }
            }
            let found = self.targets.get_mut(&target).unwrap();
            (found.due, found.looked_at, found.joined) = (None, Some(now), false);
            if !found.hangs {
                found.asked = Some(now);
            }
            all.insert(target, found.hangs);
        }
        all
    }

    /// The outages to record.
    fn outages_to_store(&self, now: Timestamp) -> Vec<OutageRow> {
        let mut rows = Vec::new();
        for target in (0..TARGETS).step_by(2) {
            let fingerprint = print_of(target);
            let of = |target: u64| self.targets.get(&target)?.outage.map(|outage| outage.since);
            let (known, since) =
                (self.stored.get(&fingerprint), [target, target + 1].into_iter().filter_map(of));
            let since = since.min();
            if let Some((known, over)) = known.filter(|(known, _)| Some(*known) != since) {
                rows.push(OutageRow {
                    fingerprint,
                    since: *known,
                    until: Some(over.unwrap_or(now).max(*known)),
                });
            }
            if let Some(since) = since.filter(|since| known.is_none_or(|(known, _)| known != since)) {
                rows.push(OutageRow { fingerprint, since, until: None });
            }
        }
        rows
    }

    fn rest(&mut self, target: u64, now: Timestamp) {
        let empty = self.of(target).next().is_none();
        let Some(found) = self.targets.get_mut(&target) else { return };
        found.asked = None;
        found.left = false;
        if empty {
            if !found.hangs {
                self.targets.remove(&target);
            }
            return;
        }
        let due = self.wanted(target, now, now + rules().min_interval, now);
        self.targets.get_mut(&target).unwrap().due = Some(due);
    }

    /// Applies the outcome of a poke that began after turn `knew`, or the outcome for a group that was not
    /// poked.
    fn answered(&mut self, target: u64, knew: u64, poked: &PokeOutcome, hangs: bool, now: Timestamp) {
        let empty = self.of(target).next().is_none();
        if let Some(found) = self.targets.get_mut(&target).filter(|_| !empty) {
            let before = found.outage;
            let outage = Outage::after(before, poked, now);
            found.outage = outage;
            if let Some((_, over)) = self.stored.get_mut(&print_of(target))
                && before.is_some()
                && outage.is_none()
            {
                *over = Some(now);
            }
            for sensor in self.sensors.iter().filter(|sensor| sensor.target == target && sensor.since <= knew)
            {
                let given_up = match (poked, &outage) {
                    (PokeOutcome::Unreachable(text), Some(outage)) => {
                        give_up(&sensor.terms, outage, text, rules().window, now)
                    }
                    _ => None,
                };
                if let Some(ending) = settle(&sensor.terms, poked, now).or(given_up) {
                    self.endings.entry(sensor.lease).or_insert(ending.reason);
                }
            }
        }
        if let Some(found) = self.targets.get_mut(&target) {
            found.hangs |= hangs;
        }
        self.rest(target, now);
    }

    fn returned(&mut self, target: u64) {
        let empty = self.of(target).next().is_none();
        let Some(found) = self.targets.get_mut(&target) else { return };
        found.hangs = false;
        if empty {
            self.targets.remove(&target);
        }
    }

    fn end_overdue(&mut self, now: Timestamp) {
        let before = now - rules().usual_timeout;
        for sensor in &self.sensors {
            let late = self.targets[&sensor.target].asked.is_some_and(|asked| asked <= before);
            if late && sensor.terms.times_out_at <= before {
                let ending = settle(&sensor.terms, &PokeOutcome::NotYet, now).unwrap();
                self.endings.entry(sensor.lease).or_insert(ending.reason);
            }
        }
    }
}

/// A poke in progress.
struct Call {
    group: GroupRef,
    target: u64,
    turn: u64,
    /// The last turn that had read the store when the poke began.
    knew: Option<u64>,
    hangs: bool,
}

#[derive(Default)]
struct Worker {
    plan: Plan,
    naive: Naive,
    calls: Vec<Call>,
    /// The number of changes that it has read.
    cursor: usize,
    skew: Duration,
}

struct World {
    dice: Dice,
    clock: Timestamp,
    /// The waiting sensors in the store.
    store: BTreeMap<TaskId, Sensor>,
    /// Registrations and ended sensors, as changes.
    changes: Vec<Sensor>,
    epoch: i64,
    /// The outages in the store, each with its end.
    outages: BTreeMap<(Fingerprint, Timestamp), Option<Timestamp>>,
    workers: [Worker; 2],
    /// The events that happened, so that a run in which nothing happens is noticed.
    seen: BTreeSet<&'static str>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            dice: Dice(seed),
            clock: Timestamp::UNIX_EPOCH + SECOND * 1_000_000,
            store: BTreeMap::new(),
            changes: Vec::new(),
            epoch: 0,
            outages: BTreeMap::new(),
            workers: Default::default(),
            seen: BTreeSet::new(),
        };
        for (at, worker) in world.workers.iter_mut().enumerate() {
            worker.plan.rules = rules();
            let mine = (0..SHARDS).filter(|shard| *shard as usize % 2 == at);
            worker.plan.hold(mine.map(|shard| (shard, Scope::whole())).collect());
        }
        world
    }

    fn now(&self, at: usize) -> Timestamp {
        self.clock - self.workers[at].skew
    }

    fn step(&mut self) {
        let at = self.dice.index(2);
        match self.dice.roll(40) {
            0..=6 => self.register(),
            7 => self.cancel(),
            8..=17 => self.turn(at),
            18..=20 => self.begin(at),
            21..=28 => self.answer(at),
            29 => self.overrun(at),
            30 => self.come_back(at),
            31..=34 => self.settle(at),
            35 => self.hand_over(),
            36 => self.renew(at),
            37 if self.dice.roll(20) == 0 => self.set_back(at),
            38 if self.dice.roll(4) == 0 => self.read_again(at),
            _ => {
                let units = [1, 1_000, 1_000_000, 20_000_000];
                let unit = units[self.dice.index(units.len())];
                self.clock += Duration::from_micros(self.dice.roll(9) * unit);
            }
        }
        (0..2).for_each(|at| self.check(at));
    }

    fn register(&mut self) {
        self.epoch += 1;
        let (id, target) = (TaskId(self.dice.roll(TASKS) as i64), self.dice.roll(TARGETS));
        let (interval, timeout) = (self.dice.roll(40) + 1, self.dice.roll(600) + 1);
        let interval = SECOND * interval as u32;
        let mut settings = Settings::new(interval, SECOND * timeout as u32).unwrap();
        if self.dice.roll(3) == 0 {
            settings = settings.max_interval(interval * 8).unwrap();
        }
        let terms = Terms::new(settings, self.clock);
        let sensor = Sensor { lease: LeaseRef::new(id, self.epoch), target, terms, since: 0 };
        if let Some(before) = self.store.insert(id, sensor.clone()) {
            self.changes.push(before);
        }
        self.changes.push(sensor);
    }

    fn cancel(&mut self) {
        let id = TaskId(self.dice.roll(TASKS) as i64);
        if let Some(sensor) = self.store.remove(&id) {
            self.seen.insert("cancelled");
            self.changes.push(sensor);
        }
    }

    fn learn(&mut self, at: usize, sensor: &Sensor, waits: bool, left_at: Option<Timestamp>) {
        let (now, worker) = (self.now(at), &mut self.workers[at]);
        if !worker.plan.held().contains_key(&shard_of(sensor.target)) {
            return;
        }
        let whole = sensor.lease.epoch % 2 == 0;
        let arrival = Arrival { sensor: sensor.record(waits), left_at, whole, served: true };
        worker.plan.learn(arrival, now);
        match waits {
            true => {
                let since = worker.plan.turn();
                worker.naive.learn(Sensor { since, ..sensor.clone() }, left_at, now);
            }
            false => worker.naive.forget(sensor.lease.id),
        }
    }

    /// Lets a worker read the changes.
    fn follow(&mut self, at: usize) {
        let news = self.changes[self.workers[at].cursor..].to_vec();
        self.workers[at].cursor = self.changes.len();
        for sensor in news {
            // A row has only one state: the latest.
            match self.store.get(&sensor.lease.id).cloned() {
                Some(last) => self.learn(at, &last, true, None),
                None => self.learn(at, &sensor, false, None),
            }
        }
    }

    /// Runs one cycle of a worker: it reads the changes and requests what is due.
    fn turn(&mut self, at: usize) {
        let now = self.now(at);
        assert!(self.workers[at].plan.begin(now));
        self.follow(at);
        let worker = &mut self.workers[at];
        let expected = worker.naive.due(now);
        let mut found = BTreeMap::new();
        let mut hung = Vec::new();
        while let Some(Due { group, hangs }) = worker.plan.due(now) {
            let context = worker.plan.groups.get(group).unwrap().context.clone();
            let target =
                (0..TARGETS).find(|target| context.as_str() == format!(r#"{{"target":{target}}}"#)).unwrap();
            assert_eq!(found.insert(target, hangs), None, "a group is due once");
            if hangs {
                hung.push((group, target));
                continue;
            }
            assert!(worker.calls.iter().all(|call| call.target != target), "it is poked once at a time");
            let job = worker.plan.job(group, now).unwrap();
            let last = worker.naive.of(target).map(|sensor| sensor.terms.times_out_at).max().unwrap();
            assert!(now + job.useful_for >= last.max(now) + rules().usual_timeout);
            assert_eq!(
                (job.sensors as usize, job.turn),
                (worker.naive.of(target).count(), worker.plan.turn())
            );
            worker.calls.push(Call { group, target, turn: job.turn, knew: None, hangs: false });
        }
        assert_eq!(found, expected, "what is due");
        for (group, target) in hung {
            self.seen.insert("due while it hangs");
            let answer = Answer::without_poke(group, Outcome::StillHangs);
            self.workers[at].apply(answer, target, now);
        }
        // Most pokes return within their tick.
        for _ in 0..self.dice.roll(12) {
            self.begin(at);
            match self.dice.roll(8) {
                0..=3 => self.answer(at),
                4 => self.overrun(at),
                5 => self.come_back(at),
                6 => self.settle(at),
                _ => {
                    self.register();
                    self.follow(at);
                }
            }
        }
        let worker = &mut self.workers[at];
        worker.plan.end_overdue(now);
        worker.naive.end_overdue(now);
    }

    /// Begins a poke that waited for a thread, as the engine does.
    fn begin(&mut self, at: usize) {
        let (dice, worker) = (&mut self.dice, &mut self.workers[at]);
        let turn = worker.plan.turn();
        let mut waiting: Vec<&mut Call> =
            worker.calls.iter_mut().filter(|call| call.knew.is_none()).collect();
        if waiting.is_empty() {
            return;
        }
        let place = dice.index(waiting.len());
        waiting[place].knew = Some(turn);
    }

    fn take_call(&mut self, at: usize, hangs: bool) -> Option<Call> {
        let worker = &mut self.workers[at];
        let fit = |call: &Call| call.hangs == hangs && call.knew.is_some();
        let fits: Vec<usize> = (0..worker.calls.len()).filter(|at| fit(&worker.calls[*at])).collect();
        (!fits.is_empty()).then(|| worker.calls.remove(fits[self.dice.index(fits.len())]))
    }

    fn answer(&mut self, at: usize) {
        let Some(call) = self.take_call(at, false) else { return };
        let (outcome, word) = match self.dice.roll(12) {
            0 => (PokeOutcome::Landed(Some("here".into())), "landed"),
            1 => (PokeOutcome::Failed("never".into()), "failed"),
            2..=6 => (PokeOutcome::Unreachable("no route".into()), "unreachable"),
            _ => (PokeOutcome::NotYet, "not yet"),
        };
        self.seen.insert(word);
        self.seen.extend((call.knew > Some(call.turn)).then_some("began late"));
        let now = self.now(at);
        let knew = call.knew.unwrap();
        let outcome = Outcome::Answered(outcome);
        let answer = Answer { group: call.group, turn: call.turn, knew, outcome, took: None };
        self.workers[at].apply(answer, call.target, now);
    }

    fn overrun(&mut self, at: usize) {
        let Some(call) = self.take_call(at, false) else { return };
        let (now, hangs, knew) = (self.now(at), self.dice.roll(3) > 0, call.knew.unwrap());
        let outcome = Outcome::Overran { timeout: SECOND, hangs };
        let answer = Answer { group: call.group, turn: call.turn, knew, outcome, took: None };
        self.workers[at].apply(answer, call.target, now);
        if hangs {
            self.seen.insert("hangs");
            self.workers[at].calls.push(Call { hangs: true, ..call });
        }
    }

    fn come_back(&mut self, at: usize) {
        let Some(call) = self.take_call(at, true) else { return };
        self.seen.insert("returned");
        self.workers[at].plan.returned(call.group);
        self.workers[at].naive.returned(call.target);
    }

    /// Lets the worker record ends. The store refuses some, and other transactions hold the tasks of some.
    fn settle(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        worker
            .naive
            .endings
            .retain(|lease, _| worker.naive.sensors.iter().any(|known| known.lease == *lease));
        let ends = worker.plan.ends(None);
        let found: BTreeMap<LeaseRef, EndReason> =
            ends.iter().map(|(lease, ending)| (*lease, ending.reason)).collect();
        assert_eq!(found, worker.naive.endings, "who ends, and why");
        assert_eq!(worker.plan.ends(ends.last().map(|(lease, _)| *lease)), []);
        if self.dice.roll(5) == 0 {
            self.seen.insert("refused");
            return;
        }
        for (lease, ending) in ends {
            if self.dice.roll(6) == 0 {
                self.seen.insert("passed over");
                continue;
            }
            self.seen.insert(ending.reason.as_str());
            let worker = &mut self.workers[at];
            worker.plan.forget(lease);
            worker.naive.forget(lease.id);
            worker.naive.endings.remove(&lease);
            if self.store.get(&lease.id).is_some_and(|sensor| sensor.lease == lease) {
                let sensor = self.store.remove(&lease.id).unwrap();
                self.changes.push(sensor);
            }
        }
    }

    /// Lets the worker renew its shards and record outages. No other outage of a target is known.
    fn renew(&mut self, at: usize) {
        let now = self.now(at);
        let worker = &mut self.workers[at];
        let rows = worker.plan.outages_to_store(now);
        assert_eq!(rows, worker.naive.outages_to_store(now));
        if self.dice.roll(5) == 0 {
            return;
        }
        worker.plan.outages_stored(&rows);
        for row in rows {
            self.seen.insert(if row.until.is_some() { "outage ended" } else { "outage stored" });
            self.outages.insert((row.fingerprint, row.since), row.until);
            match row.until {
                Some(_) => worker.naive.stored.remove(&row.fingerprint),
                None => worker.naive.stored.insert(row.fingerprint, (row.since, None)),
            };
        }
        assert_eq!(worker.plan.outages_to_store(now), [], "it is reported once");
    }

    /// Reads what a worker reads with the shards that it gains.
    fn learn_outages(&mut self, at: usize, mine: impl Fn(u64) -> bool) {
        let mut rows = Vec::new();
        for target in (0..TARGETS).step_by(2).filter(|target| mine(*target)) {
            let fingerprint = print_of(target);
            let open =
                self.outages.iter().filter(|((print, _), until)| *print == fingerprint && until.is_none());
            for ((_, since), _) in open {
                rows.push(OutageRow { fingerprint, since: *since, until: None });
                self.seen.insert("outage taken over");
                self.workers[at].naive.stored.insert(fingerprint, (*since, None));
            }
        }
        assert!(
            rows.windows(2).all(|rows| rows[0].fingerprint < rows[1].fingerprint),
            "one goes on per target"
        );
        self.workers[at].plan.learn_outages(&rows);
    }

    /// Moves a shard to the other worker: the lease ends, and the other worker claims the shard.
    fn hand_over(&mut self) {
        let shard = self.dice.roll(u64::from(SHARDS)) as u32;
        let from = usize::from(!self.workers[0].plan.held().contains_key(&shard));
        let (giver, taker) = (from, 1 - from);
        if self.dice.roll(2) == 0 {
            self.renew(giver);
        }
        let mut held = self.workers[giver].plan.held().clone();
        held.remove(&shard);
        let worker = &mut self.workers[giver];
        worker.plan.hold(held);
        worker.naive.keep(|target| shard_of(target) != shard);
        let lost = |print: &Fingerprint| {
            (0..TARGETS).any(|target| print_of(target) == *print && shard_of(target) == shard)
        };
        worker.naive.stored.retain(|print, _| !lost(print));
        self.check(giver);
        let mut held = self.workers[taker].plan.held().clone();
        held.insert(shard, Scope::whole());
        self.workers[taker].plan.hold(held);
        let longest = [20, 20, 20, 500][self.dice.index(4)];
        let since = self.now(taker) - SECOND * self.dice.roll(longest) as u32;
        // The store is slow: the shard was released after the taker's tick had begun.
        let since =
            if self.dice.roll(8) == 0 { self.now(taker) + SECOND * self.dice.roll(20) as u32 } else { since };
        self.learn_outages(taker, |target| shard_of(target) == shard);
        for sensor in
            self.store.values().filter(|sensor| shard_of(sensor.target) == shard).cloned().collect::<Vec<_>>()
        {
            self.learn(taker, &sensor, true, Some(since));
        }
    }

    /// Lets the worker read all its waiting sensors again, as if it may have missed ends. What it knows about
    /// them stays.
    fn read_again(&mut self, at: usize) {
        let now = self.now(at);
        assert!(self.workers[at].plan.begin(now));
        self.workers[at].cursor = self.changes.len();
        self.workers[at].plan.doubt(|_| true);
        for sensor in self.store.values().cloned().collect::<Vec<_>>() {
            self.learn(at, &sensor, true, None);
        }
        let worker = &mut self.workers[at];
        let gone =
            |sensor: &&Sensor| self.store.get(&sensor.lease.id).is_none_or(|is| is.lease != sensor.lease);
        let gone: BTreeSet<LeaseRef> =
            worker.naive.sensors.iter().filter(gone).map(|sensor| sensor.lease).collect();
        let doubted = worker.plan.doubted(|_| true);
        assert_eq!(doubted.iter().copied().collect::<BTreeSet<_>>(), gone, "who waits no more");
        for lease in doubted {
            self.seen.insert("missed");
            worker.plan.forget(lease);
            worker.naive.forget(lease.id);
            worker.naive.endings.remove(&lease);
        }
    }

    /// Sets the worker's clock back. The worker starts again, as after a restart.
    fn set_back(&mut self, at: usize) {
        let Some(last) = self.workers[at].plan.now() else { return };
        self.seen.insert("set back");
        let (held, worker) = (self.workers[at].plan.held().clone(), &mut self.workers[at]);
        worker.skew = self.clock.saturating_duration_since(last) + SECOND * (self.dice.roll(300) + 1) as u32;
        let now = self.now(at);
        let worker = &mut self.workers[at];
        assert!(!worker.plan.begin(now) && worker.plan.held().is_empty());
        worker.naive.keep(|_| false);
        worker.naive.endings.clear();
        worker.naive.stored.clear();
        worker.naive.looks.clear();
        self.check(at);
        let worker = &mut self.workers[at];
        worker.plan.hold(held.clone());
        worker.cursor = self.changes.len();
        self.learn_outages(at, |target| held.contains_key(&shard_of(target)));
        for sensor in self.store.values().cloned().collect::<Vec<_>>() {
            self.learn(at, &sensor, true, Some(now));
        }
    }

    /// Checks what must hold between two calls.
    fn check(&self, at: usize) {
        let (now, Worker { plan, naive, .. }) = (self.now(at), &self.workers[at]);
        assert_eq!(plan.sensors(), naive.sensors.len());
        let with = naive.targets.keys().filter(|target| naive.of(**target).next().is_some()).count();
        assert_eq!((plan.groups(), plan.groups.slab.len()), (with, naive.targets.len()));
        let unwanted =
            |(target, found): (&u64, &Target)| found.asked.is_some() && naive.of(*target).next().is_none();
        assert_eq!(plan.has_unwanted(), naive.targets.iter().any(unwanted));
        let count = plan.by_kind().get("kind").copied().unwrap_or_default();
        assert_eq!(count, (naive.sensors.len(), with));
        let outages = naive.targets.values().filter(|target| target.outage.is_some()).count();
        assert_eq!(plan.outages(), outages);
        assert_eq!(plan.outages_to_store(now), naive.outages_to_store(now));
        let due = naive.targets.values().filter_map(|target| target.due).min();
        assert_eq!(plan.groups.earliest(), due, "when something is due");
        // If a last poke does not return, its sensors end after the usual time.
        let end = |sensor: &Sensor| {
            let asked =
                naive.targets[&sensor.target].asked.filter(|_| !naive.endings.contains_key(&sensor.lease))?;
            Some(asked.max(sensor.terms.times_out_at) + rules().usual_timeout)
        };
        let end = naive.sensors.iter().filter_map(end).min();
        assert!(end.is_none_or(|end| plan.next_due(now).is_some_and(|next| next <= end)));
    }
}

impl Worker {
    fn apply(&mut self, answer: Answer, target: u64, now: Timestamp) {
        let (knew, hangs) = (answer.knew, matches!(answer.outcome, Outcome::Overran { hangs: true, .. }));
        let poked = match &answer.outcome {
            Outcome::Answered(poked) => poked.clone(),
            _ => PokeOutcome::Unreachable("late".into()),
        };
        let whole = |sensor: &&Sensor| sensor.since <= knew && sensor.lease.epoch % 2 == 0;
        let mut logged: BTreeSet<LeaseRef> =
            self.naive.of(target).filter(whole).map(|sensor| sensor.lease).collect();
        let sensors = self.naive.of(target).count();
        let before = self.naive.targets.get(&target).and_then(|found| found.outage);
        let turns = match (before, matches!(poked, PokeOutcome::Unreachable(_))) {
            (None, true) => Some(life::OUTAGE_BEGAN.to_owned()),
            (Some(outage), false) => Some(life::outage_ended(outage.since, now)),
            _ => None,
        };
        assert_eq!(self.plan.target(answer.group).map_or(0, |(_, sensors)| sensors), sensors);
        let unreachable = self.plan.answered(
            answer,
            now,
            Some(&mut |sensor, _, turn| {
                assert!(logged.remove(&sensor.lease_ref()), "only the sensors concerned are logged");
                assert_eq!(turn, turns.as_deref());
            }),
        );
        assert!(logged.is_empty());
        assert_eq!(unreachable, matches!(poked, PokeOutcome::Unreachable(_)));
        self.naive.answered(target, knew, &poked, hangs, now);
    }
}

/// `STATIONMASTER_PLAN_STEPS=1000000` runs that many steps.
#[test]
fn does_what_a_naive_model_does() {
    let steps: u64 = std::env::var("STATIONMASTER_PLAN_STEPS").map_or(30_000, |steps| steps.parse().unwrap());
    let (mut seen, runs) = (BTreeSet::new(), steps / 1_000);
    for seed in 0..runs {
        let mut world = World::new(seed);
        (0..1_000).for_each(|_| world.step());
        // At the end all pokes return and all sensors leave, and nothing is kept.
        for at in 0..2 {
            while let Some(call) = world.workers[at].calls.pop() {
                match call.hangs {
                    true => world.workers[at].plan.returned(call.group),
                    false => world.workers[at].plan.put_back(call.group),
                }
            }
            let plan = &mut world.workers[at].plan;
            plan.hold(BTreeMap::new());
            assert_eq!((plan.groups(), plan.has_unwanted(), plan.sensors()), (0, false, 0), "seed {seed}");
        }
        seen.append(&mut world.seen);
    }
    let all = [
        "began late",
        "cancelled",
        "due while it hangs",
        "failed",
        "hangs",
        "landed",
        "missed",
        "not yet",
        "outage ended",
        "outage stored",
        "outage taken over",
        "passed over",
        "refused",
        "returned",
        "set back",
        "timed_out",
        "unreachable",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

/// If part of a shard is lent, an outage without a known sensor may belong to the borrower, which ends it
/// without this worker's knowledge. When the kind is returned, the outage must not go on.
#[test]
fn an_outage_of_what_is_lent_does_not_go_on_when_it_comes_back() {
    let at = |seconds: u32| Timestamp::UNIX_EPOCH + SECOND * seconds;
    for (lent, goes_on) in [(vec!["kind"], false), (vec![], true)] {
        let mut plan = Plan { rules: rules(), ..Plan::default() };
        plan.begin(at(10));
        let lent = Scope::Except(lent.into_iter().map(|kind| kind.try_into().unwrap()).collect());
        plan.hold(BTreeMap::from([(shard_of(0), lent)]));
        plan.learn_outages(&[OutageRow::new(print_of(0), at(1), None)]);
        plan.forget_outages_of_others();
        plan.hold(BTreeMap::from([(shard_of(0), Scope::whole())]));
        let terms = Terms::new(Settings::new(SECOND, SECOND * 500).unwrap(), at(5));
        let sensor = Sensor { lease: LeaseRef::new(TaskId(1), 1), target: 0, terms, since: 0 };
        let (sensor, left_at) = (sensor.record(true), Some(at(9)));
        plan.learn(Arrival { sensor, left_at, whole: false, served: true }, at(10));
        assert_eq!(plan.outages(), usize::from(goes_on));
    }
}

#[test]
fn a_load_is_what_pokes_take_in_a_second_and_one_that_takes_long_is_not_begun_again() {
    let at = |seconds: u32| Timestamp::UNIX_EPOCH + SECOND * seconds;
    let millis = Duration::from_millis;
    let cases = [(1, millis(5), 5_100), (10, SECOND * 5, 500_010), (1, SECOND * 300, 999_900)];
    for (interval, took, known) in cases {
        let mut plan = Plan { rules: rules(), ..Plan::default() };
        plan.begin(at(10));
        plan.hold(BTreeMap::from([(shard_of(0), Scope::whole())]));
        let terms = Terms::new(Settings::new(SECOND * interval, SECOND * 500).unwrap(), at(5));
        let sensor = Sensor { lease: LeaseRef::new(TaskId(1), 1), target: 0, terms, since: 0 };
        let (sensor, left_at) = (sensor.record(true), None);
        plan.learn(Arrival { sensor, left_at, whole: false, served: true }, at(10));
        let load = |plan: &Plan, serves| plan.loads(at(10), |_| serves)[&shard_of(0)];
        assert_eq!(load(&plan, true), Load { known: 0, pokes: (0, 1_000_000 / u64::from(interval)) });
        let Some(Due { group, .. }) = plan.due(at(10)) else { panic!("nothing is due") };
        plan.note_cost(group, took);
        assert_eq!(load(&plan, true).known, known, "{interval} s, {took:?}");
        assert_eq!(load(&plan, false), Load::default(), "of a kind that it does not serve");
    }
}
