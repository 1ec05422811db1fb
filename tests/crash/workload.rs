//! What a process does until it is killed: everything a task can go through, one acknowledged transaction after another.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::admission::IfExists;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Error, Result, StoreErrorKind};
use stationmaster::id::LimitKey;
use stationmaster::ops::{Finish, Finished, Outcome, Registered};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{Admitter, PokeRequest, Poker, Service, Upkeep};
use stationmaster::store::{Inserted, Store};
use stationmaster::task::LeaseLoss;
use stationmaster::{LeaseRef, NewTask, TaskKey};

use crate::respawn::say;

/// Leases of a killed process expire this soon.
const LEASE: Duration = Duration::from_millis(40);

/// Whether the workload goes on when the connection to the store was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LostConnection {
    Ends,
    IsBorne,
}

struct Workload {
    name: String,
    store: Arc<dyn Store>,
    admitter: Admitter,
    upkeep: Upkeep,
    poker: Poker,
    retry: RetryPolicy,
    database: LimitKey,
}

/// Works until it is killed. Says what was acknowledged.
pub fn work(store: Arc<dyn Store>, name: &str, lost: LostConnection) {
    let mut workload = Workload::new(store, name);
    say("ready");
    for round in 0_u32.. {
        let Err(error) = workload.round(round) else { continue };
        let kind = match &error {
            Error::Store(error) => error.kind(),
            _ => panic!("{error:?}"),
        };
        let is_lost = matches!(kind, StoreErrorKind::Io | StoreErrorKind::Indeterminate);
        assert!(lost == LostConnection::IsBorne && is_lost, "{error:?}");
        say(&format!("bore {kind:?}"));
    }
}

impl Workload {
    fn new(store: Arc<dyn Store>, name: &str) -> Self {
        let pools = [
            PoolSpec::new("narrow", Slots::Limited(7)).unwrap(),
            PoolSpec::new("wide", Slots::Limited(64)).unwrap(),
        ];
        let database = LimitKey::new("database").unwrap();
        let limit = LimitSpec::new(database.clone(), 9).unwrap();
        store
            .write(|tx| Ok((tx.define(&pools, IfExists::Replace)?, tx.define([&limit], IfExists::Replace)?)))
            .unwrap();

        let admitter = Admitter::new(store.clone(), format!("child-{name}").try_into().unwrap()).lease(LEASE);
        let upkeep = Upkeep::new(store.clone()).grace(Duration::ZERO);
        let poker = Poker::new(store.clone(), format!("poker-{name}").try_into().unwrap())
            .lease(LEASE)
            .shards(NonZeroU32::new(4).unwrap())
            .threads(1)
            .kind("coin".try_into().unwrap(), |request: &PokeRequest| {
                match request.context.as_str().len() % 3 {
                    0 => PokeOutcome::NotYet,
                    1 => PokeOutcome::Landed(Some("heads".into())),
                    _ => PokeOutcome::Failed("tails".into()),
                }
            });
        let retry = RetryPolicy::fixed(Duration::from_millis(3)).max_attempts(3).build().unwrap();
        Self { name: name.to_owned(), store, admitter, upkeep, poker, retry, database }
    }

    fn round(&mut self, round: u32) -> Result<()> {
        let Self { name, store, admitter, upkeep, poker, retry, database } = self;
        let tasks: Vec<NewTask> = (0..12)
            .map(|n| {
                let key = TaskKey::new("crash", "w", format!("{name}-{round}"), format!("t{n}")).unwrap();
                let task = NewTask::new(key)
                    .pool(["narrow", "wide"][n % 2].try_into().unwrap())
                    .pool_slots(1 + n as u32 % 3)
                    .retry(retry.clone())
                    .lease_loss(LeaseLoss::Requeue { at_most: 1000 })
                    .attempts_as_runs(true);
                if n % 4 == 0 { task.limit(database.clone()) } else { task }
            })
            .collect();
        let inserted = store.write(|tx| tx.enqueue(SystemClock.now(), &tasks))?;
        for inserted in inserted {
            let Inserted::New(id) = inserted else { panic!("a key of this process was there already") };
            say(&format!("enqueued {}", id.0));
        }
        upkeep.tick(SystemClock.now())?;
        let granted = admitter.tick(SystemClock.now())?.granted;
        let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
        for lease in &leases {
            say(&format!("admitted {} {}", lease.id.0, lease.epoch));
        }
        let started = store.write(|tx| tx.start(SystemClock.now(), &leases))?;
        let running: Vec<LeaseRef> =
            leases.iter().zip(started).filter(|(_, moved)| *moved).map(|(lease, _)| *lease).collect();
        for lease in &running {
            say(&format!("started {} {}", lease.id.0, lease.epoch));
        }
        let (sensing, finishing): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|lease| lease.id.0 % 4 == 1);
        let sensors: Vec<NewSensor> = sensing
            .into_iter()
            .map(|lease| {
                let context = PokeContext::from_json(&format!(r#"{{"n":{}}}"#, lease.id.0 % 130)).unwrap();
                let settings = Settings::new(Duration::from_millis(1), Duration::from_millis(30)).unwrap();
                NewSensor::new(lease, "coin".try_into().unwrap(), context, settings)
            })
            .collect();
        let registered = store.write(|tx| tx.register(SystemClock.now(), &sensors))?;
        for (sensor, registered) in sensors.iter().zip(registered) {
            if let Registered::Waiting(_) = registered {
                say(&format!("registered {} {}", sensor.lease.id.0, sensor.lease.epoch));
            }
        }
        let finishes: Vec<Finish> = finishing
            .into_iter()
            .map(|lease| {
                let outcome = match lease.id.0 % 5 {
                    0 if lease.epoch < 3 => return Finish::failed(lease, "on purpose"),
                    1 if lease.epoch < 2 => Outcome::GivenBack,
                    _ => Outcome::Success { value: None },
                };
                Finish::new(lease, outcome)
            })
            .collect();
        let finished = store.write(|tx| tx.finish(SystemClock.now(), &finishes))?;
        for (asked, finished) in finishes.iter().zip(finished) {
            if let Finished::Ended(state) = finished {
                say(&format!("ended {} {} {state}", asked.lease.id.0, asked.lease.epoch));
            }
        }
        poker.tick(SystemClock.now())?;
        Ok(())
    }
}
