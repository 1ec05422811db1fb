//! Asks a kind of sensors through a poker.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stationmaster::canonical::PokeContext;
use stationmaster::id::SensorKind;
use stationmaster::ops::Mark;
use stationmaster::sensor::{NewSensor, PokeOutcome, SensorRecord, Settings};
use stationmaster::service::{Admitter, PokeLog, Poker, Service};
use stationmaster::store::Store;
use stationmaster::testing::raw;
use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<PokeOutcome>>>);

impl PokeLog for Answers {
    fn poked(&self, _: &SensorRecord, _: Timestamp, answer: &PokeOutcome) {
        self.0.lock().unwrap().push(answer.clone());
    }
}

/// What the first poke of a sensor of this kind answers, in a tick of this instant, by a poker that was
/// taught its kinds.
pub fn answer(
    store: &Arc<dyn Store>,
    kind: &str,
    context: PokeContext,
    now: Timestamp,
    teach: impl FnOnce(Poker) -> Poker,
) -> PokeOutcome {
    let name = format!("t{}", store.read(|tx| Ok(raw(tx).sensor_changes()?.last)).unwrap());
    let key = TaskKey::new("ns", "w", "sensors", &name).unwrap();
    store.write(|tx| tx.enqueue(now, &[NewTask::new(key.clone())])).unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let granted = admitter.tick(now).unwrap().granted;
    let lease = granted.iter().find(|task| task.key == key).unwrap().lease_ref();
    let settings = Settings::new(secs(1), secs(1_000_000)).unwrap();
    let sensor = NewSensor::new(lease, SensorKind::new(kind).unwrap(), context, settings);
    store
        .write(|tx| {
            tx.start(now, &[lease])?;
            tx.register(now, std::slice::from_ref(&sensor))
        })
        .unwrap();
    let log = Answers::default();
    let poker = Poker::new(store.clone(), "p".try_into().unwrap());
    let mut poker = teach(poker).log(log.clone());
    let began = Instant::now();
    while log.0.lock().unwrap().is_empty() {
        assert!(began.elapsed() < secs(60), "the poke never answered");
        poker.tick(now).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    poker.leave().unwrap();
    // Out of the way of the next.
    store.write(|tx| tx.mark(now, &[Mark::new(key.clone(), TaskState::Skipped, "asked")])).unwrap();
    log.0.lock().unwrap().remove(0)
}

pub fn unreachable(answer: &PokeOutcome, part: &str) -> bool {
    matches!(answer, PokeOutcome::Unreachable(why) if why.contains(part))
}
