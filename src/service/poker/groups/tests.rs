//! The groups against a plain map of what waits for what.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::canonical::PokeContext;
use crate::id::TaskKey;
use crate::sensor::{NewSensor, PokeOutcome, Settings};

const RULES: Rules = Rules {
    min_interval: Duration::from_secs(1),
    max_pause: Duration::from_secs(60),
    window: Duration::from_secs(500),
};

#[derive(Debug, Clone)]
enum Step {
    /// Task, target, interval, timeout.
    Learn(i64, u8, u64, u64),
    End(i64),
    /// Takes what is due.
    Due,
    /// Gives the outcome of one poke that is in flight.
    Answer(usize, bool),
    Hang(usize),
    Return(usize),
    Lose(u8),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_i64..20, 0_u8..6, 1_u64..60, 1_u64..600).prop_map(|(a, b, c, d)| Step::Learn(a, b, c, d)),
        3 => (0_i64..20).prop_map(Step::End),
        4 => Just(Step::Due),
        6 => (0_usize..8, any::<bool>()).prop_map(|(a, b)| Step::Answer(a, b)),
        2 => (0_usize..8).prop_map(Step::Hang),
        2 => (0_usize..8).prop_map(Step::Return),
        1 => (0_u8..6).prop_map(Step::Lose),
        1 => Just(Step::Clear),
    ]
}

/// A sensor whose target has a fingerprint that it shares with another target.
fn sensor(id: i64, epoch: i64, target: u8, settings: Settings, now: Timestamp) -> SensorRecord {
    let context = PokeContext::from_json(&format!(r#"{{"target":{target}}}"#)).unwrap();
    let lease = LeaseRef::new(TaskId(id), epoch);
    let insert = NewSensor::new(lease, "kind".try_into().unwrap(), context, settings).insert(now);
    let key = TaskKey::new("ns", "w", "r", format!("{id}")).unwrap();
    let mut sensor = SensorRecord::registered(insert, key, 1, 1, 1);
    sensor.fingerprint = Fingerprint(u64::from(target / 2));
    sensor
}

/// All that must hold between two calls.
fn check(groups: &Groups, model: &BTreeMap<i64, (u8, i64, Timestamp)>, now: Timestamp) {
    assert_eq!(groups.sensors(), model.len());
    let mut targets: BTreeMap<u8, Vec<i64>> = BTreeMap::new();
    model.iter().for_each(|(id, (target, ..))| targets.entry(*target).or_default().push(*id));
    assert_eq!(groups.len(), targets.len());
    let (mut due, mut timeouts, mut deserted, mut outages) = (0, 0, 0, 0);
    for (at, group) in groups.slab.iter() {
        let mut found: Vec<i64> = groups.members(group).map(|member| member.lease.id.0).collect();
        assert_eq!(found.len(), group.members as usize);
        found.sort_unstable();
        outages += usize::from(group.outage.is_some());
        if found.is_empty() {
            assert!(group.phase != Phase::Resting && group.outage.is_none());
            deserted += 1;
            continue;
        }
        let (target, ..) = model[&found[0]];
        assert_eq!(found, targets[&target], "the members of one target, all of them");
        let earliest = found.iter().map(|id| model[id].2.as_micros()).min().unwrap();
        assert!(group.timeout <= earliest);
        assert!(groups.timeouts.contains(&(group.timeout, at)));
        timeouts += 1;
        if group.phase != Phase::Asked {
            assert!(groups.due.contains(&(group.due, at)));
            let soon = (now + RULES.min_interval).as_micros();
            let last_look = if earliest <= now.as_micros() { soon } else { earliest };
            assert!(group.due <= last_look, "a last look at the first timeout");
            due += 1;
        }
    }
    let counts = (groups.due.len(), groups.timeouts.len(), groups.deserted, groups.outages);
    assert_eq!(counts, (due, timeouts, deserted, outages), "nothing else is in any order");
}

proptest! {
    #[test]
    fn are_as_if_they_were_computed_anew(steps in proptest::collection::vec((step(), 0_u64..20), 0..120)) {
        let mut groups = Groups::default();
        let mut model: BTreeMap<i64, (u8, i64, Timestamp)> = BTreeMap::new();
        let (mut asked, mut hung): (Vec<GroupRef>, Vec<GroupRef>) = Default::default();
        let (mut now, mut epoch) = (Timestamp::UNIX_EPOCH, 0);
        for (step, later) in steps {
            now += Duration::from_secs(later);
            match step {
                Step::Learn(id, target, interval, timeout) => {
                    epoch += 1;
                    let second = Duration::from_secs(1);
                    let settings = Settings::new(second * interval as u32, second * timeout as u32).unwrap();
                    let sensor = sensor(id, epoch, target, settings, now);
                    model.insert(id, (target, epoch, sensor.times_out_at));
                    let arrival = Arrival { sensor, kind: 0, looked_at: None, tick: 0, whole: id % 2 == 0 };
                    groups.learn(arrival, now, RULES);
                    prop_assert!(groups.knows(LeaseRef::new(TaskId(id), epoch)));
                }
                Step::End(id) => {
                    groups.remove(TaskId(id));
                    model.remove(&id);
                }
                Step::Due => {
                    let mut resting = Vec::new();
                    while let Some(group) = groups.next_due(now, RULES) {
                        let found = groups.get(group).unwrap();
                        prop_assert!(found.members > 0);
                        match found.phase {
                            Phase::Hung => {
                                prop_assert!(hung.contains(&group) && !resting.contains(&group));
                                resting.push(group);
                            }
                            _ => {
                                prop_assert!(!asked.contains(&group), "it is asked once");
                                asked.push(group);
                            }
                        }
                    }
                    prop_assert!(groups.earliest().is_none_or(|due| due > now));
                    resting.into_iter().for_each(|group| groups.rest(group, now, RULES));
                }
                Step::Answer(at, reached) if !asked.is_empty() => {
                    let group = asked.remove(at % asked.len());
                    let outage = groups.get(group).and_then(|found| found.outage);
                    let poked = if reached { PokeOutcome::NotYet } else { PokeOutcome::Unreachable("x".into()) };
                    groups.note(group, Outage::after(outage, &poked, now));
                    groups.rest(group, now, RULES);
                }
                Step::Hang(at) if !asked.is_empty() => {
                    let group = asked.remove(at % asked.len());
                    groups.hangs(group, now, RULES);
                    hung.push(group);
                }
                Step::Return(at) if !hung.is_empty() => {
                    let group = hung.remove(at % hung.len());
                    groups.returned(group);
                }
                Step::Lose(half) => {
                    groups.retain(|print| print != Fingerprint(u64::from(half / 2)));
                    model.retain(|_, (target, ..)| *target / 2 != half / 2);
                }
                Step::Clear => {
                    groups.clear();
                    model.clear();
                }
                _ => {}
            }
            check(&groups, &model, now);
        }
        for group in asked {
            groups.rest(group, now, RULES);
        }
        for group in hung {
            groups.returned(group);
        }
        check(&groups, &model, now);
        prop_assert_eq!(groups.deserted(), 0);
        for id in model.keys() {
            groups.remove(TaskId(*id));
        }
        prop_assert_eq!((groups.slab.len(), groups.by_print.len(), groups.members.len()), (0, 0, 0));
    }
}
