//! Caps on what waits, as a host meets them.

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{Defined, Definition, IfExists, QueueSpec, Subject, Undefined, WaitingCap};
use stationmaster::backoff::RetryPolicy;
use stationmaster::error::{Error, Invalid};
use stationmaster::id::{LimitKey, QueueName};
use stationmaster::ops::{Finish, Outcome, RetryAdvice};
use stationmaster::pool::Slots;
use stationmaster::store::Inserted;
use stationmaster::{NewTask, TaskState};

use crate::{Scene, at, db, key, names, on_every_store, secs};

fn limit(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn cap(most: u32) -> WaitingCap {
    WaitingCap::new(most).unwrap()
}

fn gpu(name: &str) -> NewTask {
    db(name, 1).queue(queue("gpu"))
}

fn of_gpu(most: u32) -> QueueSpec {
    QueueSpec::new(queue("gpu"), cap(most))
}

impl Scene<'_> {
    fn caps(&self, definitions: &[Definition]) -> Vec<Defined> {
        self.store.write(|tx| tx.define(definitions.to_vec(), IfExists::Replace)).unwrap()
    }

    /// Enqueues tasks, and returns in words what became of each.
    fn says(&self, tasks: &[NewTask]) -> Vec<String> {
        let inserted = self.store.write(|tx| tx.enqueue(at(0), tasks)).unwrap();
        let word = |inserted: &Inserted| match inserted {
            Inserted::New(_) => "new".to_owned(),
            Inserted::Exists(_) => "exists".to_owned(),
            refused @ Inserted::Refused { .. } => refused.to_string(),
        };
        inserted.iter().map(word).collect()
    }
}

#[test]
fn the_tasks_of_a_call_are_decided_in_their_order() {
    on_every_store(|scene| {
        scene.caps(&[of_gpu(3).into(), LimitSpec::of(limit("k")).waiting(cap(1)).into()]);
        assert_eq!(scene.says(&[gpu("1")]), ["new"]);
        let k = |name: &str| gpu(name).limit(limit("k"));
        let said = scene.says(&[
            gpu("1"),
            k("2"),
            k("3"),
            db("3", 1),
            k("3"),
            gpu("4"),
            gpu("5"),
            k("6"),
            db("7", 1),
        ]);
        let expected = [
            "exists",
            "new",
            "refused: 1 of at most 1 tasks wait in limit k",
            "new",
            "exists",
            "new",
            "refused: 3 of at most 3 tasks wait in queue gpu",
            "refused: 3 of at most 3 tasks wait in queue gpu",
            "new",
        ];
        assert_eq!(said, expected);
        let found = scene.store.read(|tx| tx.tasks(&["1", "2", "3", "4", "5", "6", "7"].map(key))).unwrap();
        let there: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(there, [true, true, true, true, false, false, true]);
        let numbers: Vec<i64> = found.iter().flatten().map(|task| task.id.0).collect();
        assert!(numbers[1] < numbers[2] && numbers[2] < numbers[3] && numbers[3] < numbers[4], "{numbers:?}");
        assert_eq!(scene.says(&["1", "2", "4"].map(gpu)), ["exists"; 3], "a repeated call is not refused");
    });
}

#[test]
fn a_grant_or_an_end_makes_room_and_only_enqueueing_is_refused() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(9));
        scene.caps(&[of_gpu(2).into()]);
        let retry = RetryPolicy::fixed(secs(1)).max_attempts(9).build().unwrap();
        let gpu = |name: &str| gpu(name).retry(retry.clone());
        assert_eq!(
            scene.says(&["a", "b", "c"].map(&gpu))[2],
            "refused: 2 of at most 2 tasks wait in queue gpu"
        );
        let granted = scene.admit(1, &scene.order(1)).granted;
        assert_eq!(names(&granted), ["a"]);
        let later = gpu("later").not_before(at(1_000));
        assert_eq!(scene.says(&[later, gpu("c")])[..1], ["new"], "what is not due waits, too");
        // What was accepted may wait again, beyond the cap.
        let outcome = Outcome::Failed { message: "again".into(), retry: RetryAdvice::After(secs(500)) };
        let back = [Finish::new(granted[0].lease_ref(), outcome)];
        scene.start(2, &granted);
        scene.store.write(|tx| tx.finish(at(3), &back)).unwrap();
        assert_eq!(scene.task("a").state, TaskState::UpForRetry);
        assert_eq!(scene.says(&[gpu("c")]), ["refused: 3 of at most 2 tasks wait in queue gpu"]);
        scene.store.write(|tx| tx.cancel(at(4), secs(0), &["a", "later"].map(key), "")).unwrap();
        assert_eq!(
            scene.says(&[gpu("c"), gpu("d")])[..1],
            ["new"],
            "what has ended and is kept does not wait"
        );
        // A clear is not refused.
        scene.store.write(|tx| tx.clear(at(5), &[key("a")])).unwrap();
        let waiting = scene.store.read(|tx| tx.queues()).unwrap();
        assert_eq!((waiting[0].name.as_str(), waiting[0].waiting, waiting[0].cap), ("gpu", 3, Some(cap(2))));
    });
}

#[test]
fn a_family_caps_each_of_its_keys_and_definitions_are_reported() {
    use Defined::{Changed, Created, Same};
    on_every_store(|scene| {
        let tenants = LimitSpec::of(limit("t/")).family().waiting(cap(1));
        let large = LimitSpec::of(limit("t/large")).waiting(cap(2).strict(true));
        let exempt = LimitSpec::new(limit("t/free"), 9).unwrap();
        let all: [Definition; 4] =
            [tenants.clone().into(), large.clone().into(), exempt.clone().into(), of_gpu(0).into()];
        assert_eq!(scene.caps(&all), [Created; 4]);
        assert_eq!(scene.caps(&all), [Same; 4]);
        let of = |name: &str, tenant: &str| db(name, 1).limit(limit(tenant));
        let said = scene.says(&[
            of("1", "t/a"),
            of("2", "t/a"),
            of("3", "t/b"),
            of("4", "t/large"),
            of("5", "t/large"),
            of("6", "t/large"),
            of("7", "t/free"),
            of("8", "t/free"),
            gpu("9"),
        ]);
        let is_new: Vec<bool> = said.iter().map(|said| said == "new").collect();
        assert_eq!(is_new, [true, false, true, true, true, false, true, true, false], "{said:?}");
        assert_eq!(said[1], "refused: 1 of at most 1 tasks wait in limit t/a");
        assert_eq!(said[8], "refused: 0 of at most 0 tasks wait in queue gpu");

        let read = |key: &str| scene.store.read(|tx| tx.limits(&[limit(key)])).unwrap()[0].clone().unwrap();
        assert_eq!(
            ["t/a", "t/large", "t/free"].map(|key| read(key).cap),
            [Some(cap(1)), large.waiting, None]
        );
        assert_eq!(scene.store.read(|tx| tx.families()).unwrap(), [tenants]);
        let limits = scene.store.read(|tx| tx.all_limits()).unwrap();
        assert_eq!(limits.iter().map(|limit| limit.cap).collect::<Vec<_>>(), [None, large.waiting]);

        // A field that is not given stays, or goes.
        let max = LimitSpec::new(limit("t/large"), 4).unwrap();
        let define = |spec: &LimitSpec, how| scene.store.write(|tx| tx.define([spec], how)).unwrap()[0];
        assert_eq!(define(&max, IfExists::Change), Changed);
        assert_eq!((read("t/large").max, read("t/large").cap), (Some(4), large.waiting));
        assert_eq!(define(&max, IfExists::Replace), Changed);
        assert_eq!((read("t/large").max, read("t/large").cap), (Some(4), None));
        assert_eq!(scene.says(&[of("6", "t/large")]), ["new"]);

        let gone = [Subject::Queue(queue("gpu")), Subject::Family(limit("t/")), Subject::Queue(queue("cpu"))];
        let undefined = scene.store.write(|tx| tx.undefine(&gone)).unwrap();
        assert_eq!(undefined, [Undefined::Removed, Undefined::Removed, Undefined::NotDefined]);
        assert_eq!(scene.says(&[of("2", "t/a"), gpu("9")]), ["new", "new"]);
        assert_eq!(scene.store.read(|tx| tx.limits(&[limit("t/a")])).unwrap()[0].as_ref().unwrap().cap, None);
    });
}

#[test]
fn a_cap_out_of_range_undoes_its_whole_call() {
    on_every_store(|scene| {
        let mut huge = cap(0);
        huge.most = u32::MAX;
        let bad: [Definition; 2] =
            [QueueSpec::new(queue("q"), huge).into(), LimitSpec::of(limit("k")).waiting(huge).into()];
        for bad in bad {
            let both = [of_gpu(1).into(), bad];
            let refused = scene.store.write(|tx| tx.define(both.clone(), IfExists::Replace)).unwrap_err();
            assert!(matches!(refused, Error::Invalid(Invalid::TooLarge { .. })), "{refused}");
            assert_eq!(scene.store.read(|tx| tx.queues()).unwrap(), []);
        }
    });
}

#[test]
fn a_call_of_many_pieces_is_decided_before_any_is_inserted() {
    on_every_store(|scene| {
        scene.caps(&[of_gpu(10_005).into()]);
        let tasks: Vec<NewTask> = (0..10_010).map(|n| gpu(&n.to_string())).collect();
        let inserted = scene.store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
        let refused =
            Inserted::Refused { subject: Subject::Queue(queue("gpu")), waiting: 10_005, most: 10_005 };
        assert!(inserted[..10_005].iter().all(|answer| matches!(answer, Inserted::New(_))));
        assert_eq!(inserted[10_005..], vec![refused; 5]);
    });
}
