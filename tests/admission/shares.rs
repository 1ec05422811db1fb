//! Shares beside all other rules, on every store.

use std::time::Duration;

use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::admission::{AirflowWindow, Definition, Drain, IfExists, Policy, Subject};
use stationmaster::error::Invalid;
use stationmaster::ops::Position::{Before, NotReady};
use stationmaster::pool::Slots;
use stationmaster::{Error, NewTask};

use super::{Scene, at, db, key, names, on_every_store};

fn of(share: &str, name: &str) -> NewTask {
    db(name, 1).pool("gpu".try_into().unwrap()).share(share.try_into().unwrap())
}

fn waits(scene: &Scene<'_>, tasks: &[&str]) -> Vec<String> {
    tasks.iter().map(|task| scene.why(task)).collect()
}

/// The example of docs/admission.md, in which every rule takes part.
#[test]
fn the_example_of_the_documentation() {
    on_every_store(|scene| {
        scene.pool("gpu", Slots::Limited(10));
        scene.pool("licence", Slots::Limited(3));
        let rate = Rate::new(6, Duration::from_secs(60)).unwrap().burst(2).unwrap();
        let specs = [
            LimitSpec::new("tenant/".try_into().unwrap(), 4).unwrap().family(),
            LimitSpec::new("tenant/a".try_into().unwrap(), 6).unwrap().weight(2),
            LimitSpec::of("api".try_into().unwrap()).rate(rate),
            LimitSpec::new("run/1".try_into().unwrap(), 20).unwrap(),
        ];
        scene.store.write(|tx| tx.define(&specs, IfExists::Leave)).unwrap();
        let api = |task: NewTask| task.limit("api".try_into().unwrap());
        let licensed = |task: NewTask| task.also("licence".try_into().unwrap(), 2);
        let mut tasks = vec![
            licensed(api(of("tenant/a", "a1"))),
            api(of("tenant/a", "a2")),
            api(of("tenant/a", "a3")),
            of("tenant/a", "a4"),
            of("tenant/a", "a5"),
            api(of("tenant/b", "b1")),
            licensed(of("tenant/b", "b2")),
            of("tenant/b", "b3"),
        ];
        tasks = tasks.into_iter().map(|task| task.limit("run/1".try_into().unwrap())).collect();
        tasks.push(of("tenant/c", "c1").pool_slots(4).limit_count("run/1".try_into().unwrap(), 3));
        scene.put(0, &tasks);

        let queue = [Subject::Queue("default".try_into().unwrap())];
        scene.store.write(|tx| tx.pause(&queue)).unwrap();
        assert!(scene.tick(0, &Policy::Backfill).granted.is_empty());
        assert_eq!(scene.why("b2"), "queue default: paused");
        scene.store.write(|tx| tx.resume(&queue)).unwrap();

        let positions = ["a1", "b1", "c1", "a5", "b3"].map(key);
        let told = scene.store.read(|tx| tx.positions(&positions, 100)).unwrap();
        assert_eq!(told[..3], [Before(0), Before(1), Before(2)]);

        let first = scene.tick(0, &Policy::Backfill);
        assert_eq!(names(&first.granted), ["a1", "b1", "c1", "a4", "a5", "b3"]);
        assert_eq!(first.next_due, Some(at(10)));
        assert!(scene.why("a2").starts_with("limit api: 6 starts in 60 s used up"), "{}", scene.why("a2"));
        assert_eq!(scene.why("b2"), "pool licence: 1 open of 3, needs 2");
        assert_eq!(scene.store.read(|tx| tx.positions(&[key("a1")], 9)).unwrap(), [NotReady]);

        scene.succeed(5, &first.granted[0]);
        assert_eq!(names(&scene.tick(5, &Policy::Backfill).granted), ["b2"]);
        assert_eq!(names(&scene.tick(10, &Policy::Backfill).granted), ["a2"]);
        let rate = "limit api: 6 starts in 60 s used up, the next at 1970-01-01 00:00:20 UTC";
        let full = format!("pool gpu: 0 open of 10, needs 1; also {rate}");
        assert_eq!(waits(scene, &["a3"]), [full.as_str()]);

        let tenants = [Subject::Family("tenant/".try_into().unwrap())];
        scene.store.write(|tx| tx.pause(&tenants)).unwrap();
        assert_eq!(scene.why("a3"), format!("limits tenant/*: paused; also {full}"));
        assert_eq!(scene.store.read(|tx| tx.drain(&tenants)).unwrap(), [Drain::Draining { leases: 7 }]);
    });
}

/// A part that comes back when its share has work again, and a task that changes its share or its priority.
#[test]
fn the_part_of_an_idle_share_goes_to_the_others_and_comes_back() {
    on_every_store(|scene| {
        scene.pool("gpu", Slots::Limited(4));
        let tasks: Vec<NewTask> = (0..8).map(|n| of("a", &format!("a{n}"))).collect();
        scene.put(0, &tasks);
        let all = scene.tick(0, &Policy::Backfill).granted;
        assert_eq!(names(&all), ["a0", "a1", "a2", "a3"]);
        scene.put(1, &[of("b", "b0"), of("b", "b1"), of("b", "b2"), of("z", "z0").priority(-1)]);
        scene.succeed(2, &all[0]);
        assert_eq!(names(&scene.tick(2, &Policy::Backfill).granted), ["b0"], "the first slot");
        scene.succeed(3, &all[1]);
        assert_eq!(names(&scene.tick(3, &Policy::Backfill).granted), ["b1"], "as many as a");
        scene.succeed(4, &all[2]);
        scene.succeed(4, &all[3]);
        assert_eq!(names(&scene.tick(4, &Policy::Backfill).granted), ["a4", "a5"]);

        // What is of no share, or of a higher priority, goes first.
        let change = |task: &str, edit: fn(&mut NewTask)| {
            scene.store.write(|tx| tx.change(at(5), &[key(task)], &edit)).unwrap();
        };
        change("z0", |task| task.priority = 1);
        change("b2", |task| task.share = None);
        scene.pool("gpu", Slots::Limited(6));
        assert_eq!(names(&scene.tick(5, &Policy::Backfill).granted), ["z0", "b2"]);
    });
}

#[test]
fn weights_and_windows_that_make_no_sense_are_refused() {
    on_every_store(|scene| {
        let spec = |weight| LimitSpec::of("a".try_into().unwrap()).weight(weight);
        for (weight, text) in [
            (0, "the weight of a share of 0 is refused: give at least 1"),
            (1_000_001, "a weight of 1000001 for a is above 1000000: divide all weights by the same number"),
        ] {
            for spec in [spec(weight), spec(weight).family()] {
                let refused = scene.store.write(|tx| tx.define([&spec], IfExists::Replace)).unwrap_err();
                assert_eq!(refused.to_string(), text);
            }
        }
        assert!(serde_json::from_str::<Definition>(r#"{"limit":{"key":"a","weight":-1}}"#).is_err());
        let read: Definition = serde_json::from_str(r#"{"limit":{"key":"a","weight":3}}"#).unwrap();
        assert_eq!(read, spec(3).into());
        assert_eq!(serde_json::to_string(&of("a", "1")).unwrap().matches(r#""share":"a""#).count(), 1);

        scene.pool("gpu", Slots::Limited(4));
        scene.put(0, &[of("a", "1")]);
        let window = scene.order(9).policy(Policy::AirflowWindow(AirflowWindow::new(9)));
        for refused in [
            scene.store.write(|tx| tx.admit(at(0), &window)).unwrap_err(),
            scene.store.read(|tx| tx.preview(at(0), &window)).unwrap_err(),
        ] {
            let Error::Invalid(Invalid::WindowWith { what: "shares" }) = refused else { panic!("{refused}") };
        }
    });
}
