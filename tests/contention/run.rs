//! Runs the processes, disturbs them, and checks what they wrote down.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::id::LimitKey;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::testing::history::{Event, History, Operation, Rule, Summary};

use crate::Errand;
use crate::place::{Commits, Place};
use crate::respawn::Respawned;
use crate::worker::{Bears, FAMILY, KEY, Line, MEMBERS, Mood, Orders, POOLS, RATES, Random};

/// How long a test runs: what the environment says, or this.
pub fn seconds(default: u64) -> u64 {
    std::env::var("STATIONMASTER_CONTENTION_SECONDS").map_or(default, |text| text.parse().unwrap())
}

/// So often the processes are disturbed for the test's time before one that was granted nothing is called starved.
const ROUNDS: u32 = 5;

/// What happens to the processes.
pub struct Trial<'a> {
    pub place: Place,
    pub processes: usize,
    pub seconds: u64,
    pub mood: Mood,
    pub bears: Bears,
    /// About how long it is from kill to kill in a wild mood, in milliseconds.
    pub pause: u64,
    /// Called before each kill, for trouble of another kind.
    pub disturb: &'a mut dyn FnMut(&mut Random),
}

/// What became of them.
#[derive(Debug, Default)]
pub struct Outcome {
    pub summary: Summary,
    /// Grants by place.
    pub grants: Vec<usize>,
    pub kills: usize,
    /// Calls that returned.
    pub calls: usize,
    pub longest: Duration,
    /// What workers bore, by kind.
    pub errors: BTreeMap<String, usize>,
}

impl Outcome {
    pub fn print(&self, what: &str) {
        let Self { summary, grants, kills, calls, longest, errors } = self;
        println!(
            "{what}, {kills} kills: {summary:?}, {calls} calls, the longest {longest:.1?}, errors {errors:?}, 0 violations"
        );
        let (least, most) = (grants.iter().min().unwrap(), grants.iter().max().unwrap());
        println!("grants {grants:?}: slowest process {:.2} of the fastest", *least as f64 / *most as f64);
        let is_fair = *least > 0 || errors.contains_key("Conflict");
        assert!(is_fair, "a process was starved: {grants:?}");
    }
}

/// The events of one child: a line before a call and none after it means that the child died in it, or that the call failed.
pub fn events(lines: &[String]) -> Vec<Event> {
    let mut calls: HashMap<u64, Event> = HashMap::new();
    for line in lines.iter().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
        match line {
            Line::Call { call, at, returned: false, operation } => {
                calls.insert(call, Event { invoked: at, returned: None, operation });
            }
            Line::Call { call, at, returned: true, operation } => {
                if let Some(event) = calls.get_mut(&call) {
                    event.returned = Some(at);
                    event.operation = operation;
                }
            }
            Line::Errors(_) | Line::Succeeded(_) | Line::Cleared(_) => {}
        }
    }
    calls.into_values().collect()
}

/// What one child bore.
pub fn errors(lines: &[String]) -> BTreeMap<String, usize> {
    let last = lines.iter().rev().find_map(|line| match serde_json::from_str(line) {
        Ok(Line::Errors(errors)) => Some(errors),
        _ => None,
    });
    last.unwrap_or_default()
}

/// An empty history of the pools that every test has.
pub fn history() -> History {
    history_with(RATES.1)
}

/// The same, as if rates allowed this many starts per second.
fn history_with(starts: u32) -> History {
    let members = |family: &'static str| (0..MEMBERS).map(move |n| format!("{family}{n}"));
    let limited: Vec<String> = members(FAMILY.0).collect();
    let limits = limited.iter().map(|key| (key.as_str(), FAMILY.1)).chain([KEY]);
    let mut history = History::new(POOLS.into_iter().chain(limits).map(|(name, most)| (name, Some(most))));
    for key in members(RATES.0) {
        history.rate(&key, starts, 1_000_000, RATES.2);
    }
    history
}

/// The limits that tasks of a wild mood meet.
fn limits() -> [LimitSpec; 3] {
    let key = |text: &str| LimitKey::new(text).unwrap();
    let rate = Rate::new(RATES.1, Duration::from_secs(1)).unwrap().burst(RATES.2).unwrap();
    let family = |text: &str| LimitSpec::of(key(text)).family();
    let mut each = family(FAMILY.0);
    each.max = Some(FAMILY.1);
    [LimitSpec::new(key(KEY.0), KEY.1).unwrap(), each, family(RATES.0).rate(rate)]
}

/// Runs the processes for the test's time. In a wild mood, kills one at random every now and then and puts another in
/// its place, and does all that again while one of the places was granted nothing, in at most [`ROUNDS`] rounds.
pub fn run(trial: Trial<'_>) -> Outcome {
    let Trial { place, processes, seconds, mood, bears, pause, disturb } = trial;
    let store = place.open(Commits::Quick);
    let pools = POOLS.map(|(name, slots)| PoolSpec::new(name, Slots::Limited(slots)).unwrap());
    // Definitions are refused in a host's transaction above READ COMMITTED, and ticks in each.
    let definer = place.try_open_to_tick(&store, Commits::Quick).unwrap();
    definer
        .write(|tx| {
            tx.define(&pools, IfExists::Replace)?;
            tx.define(limits(), IfExists::Replace)
        })
        .unwrap();

    let length = Duration::from_secs(seconds);
    let mut spawned = 0;
    let mut spawn = |left: Duration| {
        spawned += 1;
        let orders = Orders {
            name: format!("p{spawned}"),
            place: place.clone(),
            seed: spawned,
            micros: left.as_micros() as u64,
            mood,
            bears,
        };
        Respawned::new("child", &serde_json::to_string(&Errand::Work(orders)).unwrap())
    };
    let mut said: Vec<Vec<Vec<String>>> = (0..processes).map(|_| Vec::new()).collect();
    let mut random = Random(u64::from(std::process::id()));
    let mut outcome = Outcome { grants: vec![0; processes], ..Outcome::default() };
    for _ in 0..ROUNDS {
        let end = Instant::now() + length;
        let mut places: Vec<Respawned> = (0..processes).map(|_| spawn(length)).collect();
        while mood == Mood::Wild && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(pause / 4 + random.below(pause * 3 / 2)));
            disturb(&mut random);
            let place = random.below(processes as u64) as usize;
            let next = spawn(end.saturating_duration_since(Instant::now()));
            said[place].push(std::mem::replace(&mut places[place], next).kill());
            outcome.kills += 1;
        }
        for (place, child) in places.into_iter().enumerate() {
            said[place].push(child.join());
        }
        let was_granted = |lives: &Vec<Vec<String>>| {
            lives
                .iter()
                .flat_map(|lines| events(lines))
                .any(|event| matches!(&event.operation, Operation::Admit(granted) if !granted.is_empty()))
        };
        // On a slow machine, a process that is killed again and again may be granted nothing in one round.
        if mood == Mood::Calm || said.iter().all(was_granted) {
            break;
        }
    }

    let (mut history, mut slower) = (history(), history_with(RATES.1 / 2));
    for (place, lives) in said.iter().enumerate() {
        for (kind, count) in lives.iter().flat_map(|lines| errors(lines)) {
            *outcome.errors.entry(kind).or_default() += count;
        }
        for event in lives.iter().flat_map(|lines| events(lines)) {
            if let Operation::Admit(granted) = &event.operation {
                outcome.grants[place] += granted.len();
            }
            if let Some(returned) = event.returned {
                let took = Duration::from_micros(returned.saturating_sub(event.invoked));
                outcome.calls += 1;
                outcome.longest = outcome.longest.max(took);
            }
            slower.push(event.clone());
            history.push(event);
        }
    }
    outcome.summary = history.check().unwrap();
    if mood == Mood::Wild && seconds >= 10 {
        let used_up = slower.check().map_err(|violation| violation.rule);
        assert_eq!(
            used_up.err(),
            Some(Rule::Tokens),
            "the rates were not used to the full: nothing was checked"
        );
    }
    let found = store.read(|tx| tx.audit()).unwrap();
    assert!(found.is_empty(), "{found:?}");
    outcome
}
