//! Deltas are folded by the numbers of their transactions, which is not the order of causes.

use super::hand::Hand;
use super::scene::{Scene, VERBS, Verb, later, now};

/// The statement that a tick folds with, so that a test can fold one delta at a time.
const FOLD: &str = include_str!("../../../src/store/postgres/tx/fold.sql");

/// Folds at most so many deltas, as a tick does, and returns how many these were. Fails the test if a counter
/// does not fit.
fn fold(scene: &Scene, most: usize) -> i64 {
    let folded = scene.ask(&format!(
        "BEGIN; LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE;\n{}; COMMIT",
        FOLD.replace("$1::bigint", &most.to_string())
    ));
    assert_eq!(folded[0][2].as_deref(), Some("{}"), "{folded:?}");
    folded[0][0].as_deref().unwrap().parse().unwrap()
}

/// Fails the test if a counter has several versions.
fn each_counter_has_one_version(scene: &Scene) {
    let several = "SELECT name, count(*) FROM (
           SELECT digest::text AS name FROM sm.lane_use UNION ALL SELECT 'pool ' || name FROM sm.pool_use
           UNION ALL SELECT 'limit ' || key FROM sm.limit_use UNION ALL SELECT 'tick' FROM sm.tick) counter
         GROUP BY name HAVING count(*) > 1";
    assert_eq!(scene.ask(several), Vec::<Vec<_>>::new(), "one version of each");
}

/// For each pair of verbs on one task: the second one's transaction has the lower number, so its deltas are
/// folded first, by a fold that ends between the two.
#[test]
fn an_effect_is_folded_before_its_cause() {
    let of_runs = [Verb::RecordRun, Verb::CloseRun, Verb::BeatRun];
    let verbs: Vec<Verb> = VERBS.into_iter().filter(|verb| !of_runs.contains(verb)).collect();
    let cases: Vec<(Verb, Verb)> =
        verbs.iter().flat_map(|cause| verbs.iter().map(|effect| (*cause, *effect))).collect();
    let name = |(cause, effect): (Verb, Verb)| format!("{cause:?} {effect:?}");
    let scene = Scene::new();
    scene.prepare(&cases.iter().map(|case| (case.0, name(*case))).collect::<Vec<_>>());
    let (mut reversed, later) = (0, Hand::new(&scene.scratch.0));
    for case in cases {
        let ((cause, effect), name) = (case, name(case));
        while fold(&scene, 1_000) > 0 {}
        let lease = |verb: Verb| verb.has_lease().then(|| scene.lease(&name));
        later.sql("BEGIN; SELECT txid_current()").done();
        let held = lease(cause);
        scene.store.write(|tx| cause.call(tx, &name, held)).unwrap();
        let (of, held) = (name.clone(), lease(effect));
        later.call(move |tx| effect.call(tx, &of, held)).done();
        later.sql("COMMIT").done();
        scene.audit();
        let mut folded = 0;
        while fold(&scene, 1) > 0 {
            folded += 1;
            scene.audit();
        }
        reversed += usize::from(folded > 1);
        each_counter_has_one_version(&scene);
    }
    assert!(reversed > 15, "{reversed} pairs with several deltas");
}

/// The deltas of a transaction that was open during folds are found when it commits, behind what was folded.
#[test]
fn what_commits_late_is_folded() {
    let scene = Scene::new();
    let late = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    late.call(|tx| Verb::Enqueue.call(tx, "late", None)).done();
    for early in ["a", "b", "c"] {
        scene.store.write(|tx| Verb::Enqueue.call(tx, early, None)).unwrap();
        assert_eq!(scene.granted(now(), 9), [early]);
    }
    late.commit();
    assert_eq!(scene.granted(later(1), 9), ["late"]);
    assert_eq!(scene.numbers("SELECT count(*) FROM sm.delta"), [0]);
    scene.audit();
    // A transaction that began before a fold and wrote after it is above what the fold saw.
    let other = Hand::begin(&scene.scratch.0, "REPEATABLE READ");
    other.sql("SELECT 1").done();
    scene.store.write(|tx| Verb::Enqueue.call(tx, "d", None)).unwrap();
    assert_eq!(scene.granted(later(2), 9), ["d"]);
    other.call(|tx| Verb::Enqueue.call(tx, "e", None)).done();
    other.commit();
    assert_eq!(scene.granted(later(3), 9), ["e"]);
    scene.audit();
    // One whose number is the next that the fold's snapshot knows nothing of.
    scene.store.write(|tx| Verb::Enqueue.call(tx, "f", None)).unwrap();
    let next = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    next.call(|tx| Verb::Enqueue.call(tx, "g", None)).done();
    assert_eq!(scene.granted(later(4), 9), ["f"]);
    next.commit();
    assert_eq!(scene.granted(later(5), 9), ["g"]);
    scene.audit();
}
