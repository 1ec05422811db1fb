//! The built-in kinds, each through a poker: what they answer, and that what makes no sense says what to correct.

mod poked;
mod stores;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Finish, Mark, Outcome};
use stationmaster::run::{RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{PokeOutcome, Settings};
use stationmaster::service::kinds::{Condition, FileExists, RunEnded, TaskEnded, TimeReached, builtin};
use stationmaster::store::Store;
use stationmaster::testing::raw;
use stationmaster::{LeaseRef, NewTask, TaskId, TaskKey, TaskState, Timestamp};

use crate::poked::{at, secs, unreachable};
use crate::stores::stores;

/// What the first poke of a sensor of this kind answers, in a tick of this instant.
fn answer(store: &Arc<dyn Store>, kind: &str, context: PokeContext, now: Timestamp) -> PokeOutcome {
    poked::answer(store, kind, context, now, |poker| builtin(poker, store.clone()).unwrap())
}

fn asked<C: Condition>(store: &Arc<dyn Store>, condition: &C, now: Timestamp) -> PokeOutcome {
    answer(store, C::KIND, condition.context().unwrap(), now)
}

#[test]
fn an_instant_is_reached_to_the_microsecond() {
    for store in stores() {
        let wanted = TimeReached::new(Timestamp::from_micros(5_000_001));
        assert_eq!(asked(&store, &wanted, at(5)), PokeOutcome::NotYet);
        assert_eq!(asked(&store, &wanted, Timestamp::from_micros(5_000_001)), PokeOutcome::Landed(None));
    }
}

#[test]
fn a_file_is_found_by_path_when_it_is_old_enough() {
    for store in stores() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemClock.now();
        // Characters that mean something in a pattern mean nothing in a path.
        let path = dir.path().join("in [1]*.csv");
        assert_eq!(asked(&store, &FileExists::at(&path), now), PokeOutcome::NotYet);
        fs::write(&path, "12345").unwrap();
        let landed = PokeOutcome::Landed(Some(format!("{{\"path\":\"{}\",\"bytes\":5}}", path.display())));
        assert_eq!(asked(&store, &FileExists::at(&path), now), landed);

        let written = DateTime::<Utc>::from(fs::metadata(&path).unwrap().modified().unwrap());
        let written = Timestamp::from(written);
        let settled = FileExists::at(&path).min_age(secs(60));
        assert_eq!(asked(&store, &settled, written + secs(59)), PokeOutcome::NotYet);
        assert_eq!(asked(&store, &settled, written + secs(61)), landed);

        // Below a file there is nothing, and nothing can come: that is for a person to see.
        let below = asked(&store, &FileExists::at(path.join("below")), now);
        assert!(unreachable(&below, "below"), "{below:?}");
        assert!(
            matches!(asked(&store, &FileExists::at(dir.path()), now), PokeOutcome::Landed(_)),
            "a directory"
        );
    }
}

#[test]
fn a_file_is_found_by_pattern_the_first_that_is_old_enough() {
    for store in stores() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemClock.now();
        let place = dir.path().to_str().unwrap();
        let glob = FileExists::matching(format!("{place}/*/part-[0-9].csv"));
        fs::create_dir_all(dir.path().join("day")).unwrap();
        for other in ["day/part-x.csv", "part-1.csv", "day/.part-1.csv"] {
            fs::write(dir.path().join(other), "").unwrap();
        }
        assert_eq!(asked(&store, &glob, now), PokeOutcome::NotYet);
        let hidden = FileExists::matching(format!("{place}/day/*1.csv"));
        assert_eq!(asked(&store, &hidden, now), PokeOutcome::NotYet, "a file of a writer at work");
        for name in ["day/part-1.csv", "day/part-2.csv"] {
            fs::write(dir.path().join(name), "ab").unwrap();
        }
        let young = fs::File::options().write(true).open(dir.path().join("day/part-1.csv")).unwrap();
        young.set_modified(std::time::SystemTime::now() + secs(3600)).unwrap();
        let landed = |answer: &PokeOutcome, name: &str| matches!(answer, PokeOutcome::Landed(Some(value)) if value.contains(name));
        assert!(landed(&asked(&store, &glob, now), "part-1.csv"));
        let old = asked(&store, &glob.clone().min_age(secs(60)), now + secs(120));
        assert!(landed(&old, "part-2.csv"), "{old:?}");
        let deep = asked(&store, &FileExists::matching(format!("{place}/**/part-2.csv")), now);
        assert!(landed(&deep, "part-2.csv"), "{deep:?}");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("nowhere", dir.path().join("day/broken.csv")).unwrap();
            let broken = asked(&store, &FileExists::matching(format!("{place}/day/broken.*")), now);
            assert_eq!(broken, PokeOutcome::NotYet);
        }
    }
}

#[test]
fn another_task_is_waited_for_in_the_states_that_were_asked_for() {
    for store in stores() {
        let key = TaskKey::new("ns", "w", "r", "upstream").unwrap();
        let wanted = TaskEnded::new(key.clone());
        assert_eq!(asked(&store, &wanted, at(0)), PokeOutcome::NotYet, "it is not there");
        store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key.clone())])).unwrap();
        let admitted = wanted.clone().lands_on([TaskState::Queued]);
        assert_eq!(asked(&store, &admitted, at(0)), PokeOutcome::Landed(None));
        let end = |to: TaskState| {
            store.write(|tx| tx.mark(at(1), &[Mark::new(key.clone(), to, "why not")])).unwrap()
        };
        end(TaskState::Failed);
        let failed = PokeOutcome::Failed("task ns/w/r/upstream is failed: why not".into());
        assert_eq!(asked(&store, &wanted, at(1)), failed);
        let patient = wanted.clone().fails_on([]);
        assert_eq!(asked(&store, &patient, at(1)), PokeOutcome::NotYet);
        store.write(|tx| tx.clear(at(2), std::slice::from_ref(&key))).unwrap();
        assert_eq!(asked(&store, &wanted, at(2)), PokeOutcome::NotYet);
        let task = store.read(|tx| tx.tasks(std::slice::from_ref(&key))).unwrap().remove(0).unwrap();
        let done = Finish::new(task.lease_ref(), Outcome::Success { value: Some("7 rows".into()) });
        store
            .write(|tx| {
                tx.start(at(3), &[done.lease])?;
                tx.finish(at(3), std::slice::from_ref(&done))
            })
            .unwrap();
        let landed = PokeOutcome::Landed(Some("7 rows".into()));
        assert_eq!(asked(&store, &wanted, at(3)), landed);
        assert_eq!(asked(&store, &patient, at(3)), landed);
    }
}

#[test]
fn a_run_is_waited_for_by_its_status() {
    for store in stores() {
        let key = RunKey::new("ns", "run").unwrap();
        let wanted = RunEnded::new(key.clone());
        let put =
            |run: RunRecord| store.write(|tx| Ok(raw(tx).put_runs(std::slice::from_ref(&run))?)).unwrap();
        assert_eq!(asked(&store, &wanted, at(0)), PokeOutcome::NotYet, "it is not there");
        let open = RunRecord::open(key.clone(), at(0));
        put(open.clone().status(RunStatus::Completed));
        assert_eq!(asked(&store, &wanted, at(0)), PokeOutcome::NotYet, "it did not stop");
        put(open.clone().closed(at(1), RunStatus::Completed));
        assert_eq!(asked(&store, &wanted, at(1)), PokeOutcome::Landed(Some("completed".into())));
        put(open.closed(at(1), RunStatus::Killed));
        assert_eq!(asked(&store, &wanted, at(1)), PokeOutcome::Failed("run run of ns is killed".into()));
        let any = wanted.clone().lands_on([RunStatus::Killed]);
        assert_eq!(asked(&store, &any, at(1)), PokeOutcome::Landed(Some("killed".into())));
        assert_eq!(asked(&store, &wanted.fails_on([RunStatus::Failed]), at(1)), PokeOutcome::NotYet);
    }
}

#[test]
fn contexts_that_make_no_sense_fail_and_say_what_to_correct() {
    for store in stores() {
        for (kind, context, part) in [
            ("file_exists", "{}", "either a path or a glob"),
            ("file_exists", r#"{"path": "/a", "glob": "/b"}"#, "either a path or a glob"),
            ("file_exists", r#"{"path": ""}"#, "either a path or a glob"),
            ("file_exists", r#"{"glob": "/a/***"}"#, "glob \"/a/***\""),
            ("file_exists", r#"{"path": "/a\u0000"}"#, "NUL"),
            ("file_exists", r#"{"glob": "/*\u0000"}"#, "NUL"),
            ("file_exists", r#"{"paht": "/a"}"#, "unknown field `paht`"),
            ("file_exists", r#"{"path": "/a", "min_age_s": -1}"#, "a number of seconds"),
            ("time_reached", r#"{"at": "tomorrow"}"#, "invalid characters"),
            ("task_ended", r#"{"task": "load"}"#, "invalid type"),
            (
                "task_ended",
                r#"{"task": {"namespace": "a", "workflow": "b", "run": "c", "task": ""}}"#,
                "task id is empty",
            ),
            (
                "run_ended",
                r#"{"run": {"namespace": "a", "id": "b"}, "lands_on": ["done"]}"#,
                "unknown variant `done`",
            ),
        ] {
            let context = PokeContext::from_json(context).unwrap();
            let PokeOutcome::Failed(why) = answer(&store, kind, context.clone(), at(0)) else {
                panic!("{kind} took {context}");
            };
            assert!(
                why.contains(part) && why.contains(&format!("this {kind} sensor is wrong")),
                "{context}: {why}"
            );
            assert!(why.contains("register it with, say, {"), "{why}");
        }
    }
}

#[test]
fn equal_conditions_share_a_context_and_are_read_back() {
    fn survives<C: Condition + PartialEq + std::fmt::Debug>(condition: &C) {
        assert_eq!(C::read(&condition.context().unwrap()).as_ref(), Ok(condition));
        let settings = Settings::new(secs(1), secs(1)).unwrap();
        let sensor = condition.sensor(LeaseRef::new(TaskId(1), 1), settings).unwrap();
        assert_eq!((sensor.kind.as_str(), sensor.context), (C::KIND, condition.context().unwrap()));
    }
    let key = TaskKey::new("a", "b", "c", "d").unwrap();
    survives(&FileExists::at("/a").min_age(Duration::from_nanos(1_234_567)));
    survives(&FileExists::matching("/a*"));
    survives(&TimeReached::new(SystemClock.now()));
    survives(&TaskEnded::new(key.clone().mapped(3)).lands_on([TaskState::Failed]));
    survives(&RunEnded::new(RunKey::new("a", "b").unwrap()).fails_on([]));

    use TaskState::{Failed, Success};
    let order = [[Success, Failed], [Failed, Success]];
    let [one, other] = order.map(|states| TaskEnded::new(key.clone()).lands_on(states).context().unwrap());
    assert_eq!(one, other);
}
