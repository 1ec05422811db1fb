//! Tests the engine's state against a naive model, with simulated runners and a simulated clock.
//!
//! Threads and tasks are values here. They take one step at a time in any order: look for work, answer, hang,
//! return late. Ticks queue, withdraw, hold back, collect, close the window in which pokes may begin, and close the
//! engine. The model keeps a list of jobs and recomputes everything after each step.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call::{Call, Phase, STUCK};
use super::state::{Setting, State};
use crate::canonical::PokeContext;
use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::sensor::plan::{GroupRef, Job, Outcome};
use crate::service::poker::poke::{AsyncProbe, BoxFuture, How, PokeRequest, Probe};
use crate::time::Timestamp;

const MS: Duration = Duration::from_millis(1);
/// Kind, targets per call, concurrent calls, whether it needs threads.
const KINDS: [(u32, usize, usize, bool); 5] =
    [(1, 1, usize::MAX, true), (2, 1, 2, true), (4, 3, 2, true), (7, 1, 3, false), (9, 4, 2, false)];
const THREADS: usize = 3;
const MAX_HUNG: usize = 4;

/// Pseudorandom numbers: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

struct Runtime;

impl AsyncProbe for Runtime {
    fn look(&self, _: Vec<PokeRequest>) -> BoxFuture<Vec<PokeOutcome>> {
        Box::pin(std::future::pending())
    }
    fn spawn(&self, _: BoxFuture<()>) {}
    fn within(&self, work: &mut dyn FnMut()) {
        work();
    }
}

fn probe(at_most: usize, threads: bool) -> Probe {
    let how = match threads {
        true => How::Threads(Arc::new(|_: &[PokeRequest]| -> Vec<PokeOutcome> { panic!("not called") })),
        false => How::Runtime(Arc::new(Runtime)),
    };
    Probe { at_most, how }
}

/// Kinds are in the order of their numbers.
fn name(kind: u32) -> SensorKind {
    SensorKind::new(format!("k{kind}")).unwrap()
}

fn number(kind: &SensorKind) -> u32 {
    kind.as_str()[1..].parse().unwrap()
}

#[derive(Debug, Clone, PartialEq)]
enum Fate {
    /// It waits in the queue or behind another poke of its call.
    Waits,
    Runs,
    /// Its poke returned in time, with this number.
    Said(u64),
}

struct Asked {
    kind: u32,
    fate: Fate,
    timeout: Duration,
    turn: u64,
}

/// A thread or a task, and its call.
struct Runner {
    on_thread: bool,
    /// `None` while a thread waits.
    call: Option<Arc<Call>>,
    jobs: Vec<u32>,
    began: Instant,
    deadline: Instant,
    /// Its pokes may begin until then.
    until: Option<Instant>,
    knew: u64,
    given_up: bool,
    /// Its future is being dropped.
    drops: bool,
    forgotten: bool,
    /// A task polls its future.
    polls: bool,
}

struct World {
    state: State,
    dice: Dice,
    now: Instant,
    /// Jobs without an outcome that a tick took.
    asked: BTreeMap<u32, Asked>,
    queued: u32,
    runners: Vec<Runner>,
    /// Groups of calls that hung and ended, and were not collected yet.
    returned: BTreeSet<u32>,
    /// How often other kinds were served while this one could have begun.
    passed: BTreeMap<u32, usize>,
    notified: bool,
    said: u64,
    turn: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut state = State::default();
        for (kind, at_most, at_once, threads) in KINDS {
            state.serve(name(kind), probe(at_most, threads), at_once);
        }
        Self {
            state,
            dice: Dice(seed),
            now: Instant::now() + Duration::from_secs(3_600),
            asked: BTreeMap::new(),
            queued: 0,
            runners: Vec::new(),
            returned: BTreeSet::new(),
            passed: BTreeMap::new(),
            notified: false,
            said: 0,
            turn: 0,
        }
    }

    fn set(&mut self, until: Option<Instant>) {
        self.turn += 1;
        let setting = Setting { threads: THREADS, max_hung: MAX_HUNG, knew: self.turn, until };
        self.state.setting = setting;
        self.start();
    }

    // What the model knows about kinds.

    fn hung(&self, kind: u32) -> usize {
        self.calls(kind).filter(|runner| runner.given_up && !runner.drops && !runner.forgotten).count()
    }

    fn calls(&self, kind: u32) -> impl Iterator<Item = &Runner> {
        self.runners
            .iter()
            .filter(move |runner| runner.call.as_ref().is_some_and(|call| call.kind == name(kind)))
    }

    fn hung_threads(&self) -> usize {
        self.runners.iter().filter(|runner| runner.on_thread && runner.given_up).count()
    }

    /// How many threads there may be.
    fn allowed(&self) -> usize {
        THREADS.saturating_sub(self.hung_threads().saturating_sub(MAX_HUNG))
    }

    fn is_held_back(&self, kind: u32) -> bool {
        let hung = self.hung(kind);
        hung > 0 && (hung >= MAX_HUNG / 2 || self.hung_threads() >= MAX_HUNG)
    }

    fn queued(&self, kind: u32) -> usize {
        let behind: usize = self.calls(kind).map(|it| it.call.as_ref().unwrap().work.lock().todo.len()).sum();
        self.asked.values().filter(|job| job.kind == kind && job.fate == Fate::Waits).count() - behind
    }

    fn could_begin(&self, (kind, _, at_once, _): (u32, usize, usize, bool)) -> bool {
        let running = self.calls(kind).filter(|runner| !runner.given_up || runner.drops).count();
        let open = self.state.setting.until.is_some_and(|until| self.now < until);
        open && running < at_once && self.queued(kind) > 0 && !self.is_held_back(kind)
    }

    fn work(&self, on_thread: bool) -> BTreeSet<u32> {
        let kinds = KINDS.into_iter().filter(|(.., threads)| *threads == on_thread);
        kinds.filter(|kind| self.could_begin(*kind)).map(|(kind, ..)| kind).collect()
    }

    // The part of the engine around the state.

    fn wake(&mut self) {
        self.state.call_threads(self.now);
        self.notified |= std::mem::take(&mut self.state.unnotified);
    }

    fn start(&mut self) {
        self.wake();
        let hired = self.state.hire(self.now);
        assert!(hired == 0 || self.state.threads <= self.allowed(), "{} threads", self.state.threads);
        for _ in 0..hired {
            self.runners.push(self.runner(true));
            self.look_for_work(self.runners.len() - 1);
        }
        while let Some(call) = self.begin(false) {
            call.work.lock().future = Some(Box::pin(std::future::pending()));
            self.runners.push(self.runner(false));
            let last = self.runners.len() - 1;
            self.has(last, call);
        }
        self.wake();
    }

    fn runner(&self, on_thread: bool) -> Runner {
        Runner {
            on_thread,
            call: None,
            jobs: Vec::new(),
            began: self.now,
            deadline: self.now,
            until: None,
            knew: 0,
            given_up: false,
            drops: false,
            forgotten: false,
            polls: false,
        }
    }

    fn begin(&mut self, on_thread: bool) -> Option<Arc<Call>> {
        let work = self.work(on_thread);
        let call = self.state.begin(on_thread, self.now);
        assert_eq!(call.is_some(), !work.is_empty(), "what may begin begins: {work:?}");
        let kind = number(&call.as_ref()?.kind);
        assert!(work.contains(&kind), "a call of kind {kind} must not begin");
        self.passed.insert(kind, 0);
        for other in work.into_iter().filter(|other| *other != kind) {
            let passed = self.passed.entry(other).or_default();
            *passed += 1;
            assert!(*passed < KINDS.len(), "kind {other} does not get its turn");
        }
        call
    }

    /// Gives a thread without a call a new one, or lets it wait.
    fn look_for_work(&mut self, at: usize) {
        if self.state.closing {
            self.state.threads -= 1;
            self.state.note();
            self.runners.swap_remove(at);
            return;
        }
        match self.begin(true) {
            Some(call) => self.has(at, call),
            None => self.state.idle += 1,
        }
    }

    /// A runner gets a call, and makes its first poke.
    fn has(&mut self, at: usize, call: Arc<Call>) {
        (self.runners[at].knew, self.runners[at].until) = (self.state.setting.knew, self.state.setting.until);
        self.runners[at].call = Some(call);
        self.asks(at);
    }

    fn asks(&mut self, at: usize) {
        let requests = self.runners[at].call.as_ref().unwrap().requests();
        let number = |request: &PokeRequest| request.context.to_value()["n"].as_u64().unwrap() as u32;
        let jobs: Vec<u32> = requests.iter().map(number).collect();
        assert!(!jobs.is_empty());
        for job in &jobs {
            let asked = self.asked.get_mut(job).unwrap();
            assert_eq!(asked.fate, Fate::Waits, "job {job} is poked twice");
            asked.fate = Fate::Runs;
        }
        let timeout = jobs.iter().map(|job| self.asked[job].timeout).min().unwrap();
        let runner = &mut self.runners[at];
        assert!(runner.until.is_some_and(|until| self.now < until), "it begins when leases are about to end");
        (runner.began, runner.deadline, runner.jobs) = (self.now, self.now + timeout, jobs);
    }

    /// The poke of a runner returns.
    fn answers(&mut self, at: usize) {
        let runner = &mut self.runners[at];
        let call = runner.call.clone().unwrap();
        let mut outcomes = Vec::new();
        for job in &runner.jobs {
            self.said += 1;
            outcomes.push(PokeOutcome::Landed(Some(self.said.to_string())));
            if !runner.given_up {
                self.asked.get_mut(job).unwrap().fate = Fate::Said(self.said);
            }
        }
        if call.answered(outcomes, self.now) {
            assert!(runner.on_thread && !runner.given_up);
            return self.asks(at);
        }
        if runner.given_up && !runner.forgotten {
            self.returned.extend(runner.jobs.iter().copied());
        }
        let (given_up, on_thread) = (runner.given_up, runner.on_thread);
        assert_eq!(self.state.end(&call, self.now), !given_up);
        self.runners[at].call = None;
        if given_up || !on_thread {
            self.runners.swap_remove(at);
        } else {
            self.look_for_work(at);
        }
        self.wake();
        assert!(self.notified, "the tick is notified of what it can collect");
        self.start();
    }

    // The steps of ticks.

    fn queue(&mut self) {
        let (kind, ..) = KINDS[self.dice.roll(KINDS.len())];
        let many = 1 + self.dice.roll(9);
        let mut jobs = Vec::new();
        for _ in 0..many.min(self.state.room(&name(kind))) {
            let n = self.queued;
            self.queued += 1;
            let timeout = MS * [5, 30, 30, 100][self.dice.roll(4)];
            jobs.push(Job {
                group: GroupRef::numbered(n),
                context: PokeContext::from_json(&format!(r#"{{"n":{n}}}"#)).unwrap(),
                sensors: 1,
                now: Timestamp::UNIX_EPOCH,
                timeout,
                useful_for: MS * 1_000,
                turn: self.turn,
            });
            self.asked.insert(n, Asked { kind, fate: Fate::Waits, timeout, turn: self.turn });
        }
        self.state.queue(&name(kind), jobs);
        self.start();
    }

    fn take_back(&mut self, groups: Vec<GroupRef>) {
        for group in groups {
            let asked = self.asked.remove(&group.number()).unwrap();
            assert_eq!(asked.fate, Fate::Waits, "{group:?} is taken back");
        }
    }

    fn hold_back(&mut self) {
        for (kind, ..) in KINDS {
            let held_back = self.state.hold_back(&name(kind));
            assert_eq!(held_back.is_some(), self.is_held_back(kind));
            self.take_back(held_back.into_iter().flatten().map(|job| job.group).collect());
        }
    }

    fn collect(&mut self) {
        let abandoned = self.state.check(self.now);
        let collected = self.state.collect();
        self.notified = false;
        for answer in collected.answers {
            let job = answer.group.number();
            let runner = self.runners.iter().position(|runner| runner.jobs.contains(&job));
            let asked = self.asked.remove(&job).unwrap();
            assert_eq!(answer.turn, asked.turn);
            match (answer.outcome, asked.fate) {
                (Outcome::Answered(PokeOutcome::Landed(said)), Fate::Said(expected)) => {
                    assert_eq!(said.unwrap(), expected.to_string());
                }
                (Outcome::Overran { timeout, hangs }, Fate::Runs) => {
                    let runner = &mut self.runners[runner.unwrap()];
                    assert!(runner.deadline <= self.now && runner.began + timeout == runner.deadline);
                    assert_eq!(hangs, runner.on_thread || runner.polls, "whether job {job} hangs");
                    assert_eq!(answer.knew, runner.knew);
                    (runner.given_up, runner.drops) = (true, !hangs);
                }
                (outcome, fate) => panic!("job {job} was {fate:?}: {outcome:?}"),
            }
        }
        let returned: BTreeSet<u32> = collected.returned.iter().map(|group| group.number()).collect();
        assert_eq!(returned, std::mem::take(&mut self.returned), "groups whose poke has returned");
        // Another runner may look for work before the futures are dropped.
        self.start();
        self.drop_futures(abandoned);
        for runner in self.runners.iter().filter(|runner| runner.call.is_some() && !runner.given_up) {
            assert!(runner.deadline > self.now, "a deadline passed unnoticed: {:?}", runner.jobs);
            let behind = runner.call.as_ref().unwrap().work.lock().todo.len();
            assert!(runner.began + STUCK > self.now || behind == 0, "jobs wait behind a slow one");
        }
        let said = self.asked.values().filter(|asked| matches!(asked.fate, Fate::Said(_))).count();
        let in_calls: usize =
            self.runners.iter().filter_map(|it| it.call.as_ref()).map(|it| it.work.lock().done.len()).sum();
        assert_eq!(said, in_calls, "an answer was lost");
        self.start();
    }

    /// A future that was not being polled is dropped, and its task ends when it is polled next.
    fn drop_futures(&mut self, abandoned: Vec<Arc<Call>>) {
        for call in abandoned {
            let number = call.number;
            let at =
                self.runners.iter().position(|it| it.call.as_ref().is_some_and(|it| it.number == number));
            let at = at.unwrap();
            assert!(call.work.lock().future.take().is_some() && !self.runners[at].polls);
            let runner = self.runners.swap_remove(at);
            assert!(!self.state.end(&runner.call.unwrap(), self.now));
        }
    }

    fn close(&mut self) {
        let abandoned = self.state.close();
        self.asked.retain(|_, asked| asked.fate != Fate::Waits);
        for runner in self.runners.iter_mut().filter(|it| !it.on_thread) {
            for job in runner.jobs.drain(..) {
                self.asked.remove(&job);
            }
            (runner.given_up, runner.drops) = (true, !runner.polls);
        }
        self.drop_futures(abandoned);
        while let Some(at) = self.runners.iter().position(|it| it.on_thread && it.call.is_none()) {
            self.state.idle -= 1;
            self.look_for_work(at);
        }
        self.state.called = 0;
        self.collect();
        while self.state.threads > 0 {
            match self.runners.iter().position(|it| it.on_thread && !it.given_up) {
                Some(at) if self.dice.roll(2) == 0 => self.answers(at),
                _ => self.now += MS * 20,
            }
            self.collect();
        }
        self.state.closed();
        self.returned.clear();
        self.runners.iter_mut().for_each(|runner| runner.forgotten = true);
    }

    fn step(&mut self) {
        let at = self.dice.roll(self.runners.len().max(1));
        let runner = self.runners.get(at).map(|it| (it.on_thread, it.call.is_some(), it.polls));
        match self.dice.roll(12) {
            0 | 1 => self.queue(),
            2 => self.now += MS * [1, 1, 4, 25][self.dice.roll(4)],
            3 => self.collect(),
            4 if self.dice.roll(4) == 0 => {
                self.hold_back();
                self.start();
            }
            5 if self.dice.roll(4) == 0 => {
                let odd = |job: &Job| job.context.as_str().len().is_multiple_of(2);
                let groups = self.state.withdraw(odd);
                self.take_back(groups);
            }
            6 => {
                let until = [None, Some(self.now + MS * 10), Some(self.now + MS * 500)];
                let until = until[self.dice.roll(8).min(2)];
                self.set(until);
            }
            7 if self.dice.roll(60) == 0 => self.close(),
            // A thread that was called wakes.
            8 | 9 => match runner {
                Some((true, false, _)) if self.state.called > 0 => {
                    (self.state.called, self.state.idle) = (self.state.called - 1, self.state.idle - 1);
                    self.look_for_work(at);
                    self.wake();
                }
                Some((false, true, false)) => {
                    let call = self.runners[at].call.clone().unwrap();
                    assert!(call.work.lock().future.take().is_some());
                    self.runners[at].polls = true;
                }
                _ => {}
            },
            _ => match runner {
                Some((true, true, _)) => self.answers(at),
                Some((false, true, true)) if self.dice.roll(2) == 0 || self.runners[at].given_up => {
                    self.answers(at)
                }
                Some((false, true, true)) => {
                    let call = self.runners[at].call.clone().unwrap();
                    assert_eq!(call.work.lock().phase, Phase::Runs);
                    call.work.lock().future = Some(Box::pin(std::future::pending()));
                    self.runners[at].polls = false;
                }
                _ => {}
            },
        }
        self.check();
    }

    /// Checks the invariants after each step.
    fn check(&self) {
        let standing = self.state.standing();
        let hung = self.runners.iter().filter(|it| it.given_up && (it.on_thread || !it.forgotten)).count();
        assert_eq!((standing.hung, standing.threads), (hung, self.allowed()), "calls that hang");
        assert_eq!(standing.queued, KINDS.iter().map(|(kind, ..)| self.queued(*kind)).sum::<usize>());
        let threads = self.runners.iter().filter(|it| it.on_thread && !it.given_up).count();
        assert_eq!(self.state.threads, threads, "threads that do not hang");
        let work = self.work(true).len();
        assert!(self.state.called >= work.min(self.state.idle), "a thread is not called to its work");
        assert!(self.work(false).is_empty(), "a future is not launched");
        let busy = self.runners.iter().any(|it| it.call.is_some() && !it.given_up);
        assert!(busy || standing.running == 0, "places are not given back: {}", standing.running);
        let has_said = self.asked.values().any(|asked| matches!(asked.fate, Fate::Said(_)));
        assert!(standing.running > 0 || standing.news || !has_said, "a tick would end without an outcome");
    }
}

/// `STATIONMASTER_ENGINE_STEPS=1000000` sets the number of steps.
#[test]
fn the_engine_is_as_the_model_says() {
    let steps: u64 =
        std::env::var("STATIONMASTER_ENGINE_STEPS").map_or(90_000, |steps| steps.parse().unwrap());
    for seed in 0..steps / 1_500 {
        let mut world = World::new(seed);
        world.set(Some(world.now + MS * 500));
        for _ in 0..1_500 {
            world.step();
        }
        // Every hung call returns, and every poke is answered.
        for _ in 0..10_000 {
            world.set(Some(world.now + MS * 500));
            world.hold_back();
            match world.runners.iter().position(|it| it.call.is_some()) {
                Some(at) => world.answers(at),
                None if world.state.called > 0 => {
                    let at = world.runners.iter().position(|it| it.call.is_none()).unwrap();
                    (world.state.called, world.state.idle) = (world.state.called - 1, world.state.idle - 1);
                    world.look_for_work(at);
                }
                None => break,
            }
            world.collect();
        }
        assert!(world.asked.is_empty(), "seed {seed}");
        let standing = world.state.standing();
        assert_eq!((standing.running, standing.hung, standing.queued, standing.check_at), (0, 0, 0, None));
    }
}
