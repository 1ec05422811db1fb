//! Deltas are folded by the numbers of their transactions, which is not the order of causes.

use super::hand::Hand;
use super::scene::{Scene, VERBS, Verb, later, now};

/// The statement that a tick folds with, so that a test can fold one delta at a time.
const FOLD: &str = include_str!("../../../src/store/postgres/tx/fold.sql");

/// The function by which a tick folds a few.
const FOLD_FEW: &str =
    include_str!("../../../src/store/postgres/migrations/0001_initial/functions/fold_few.sql");

/// What stands in it behind its first look.
const AFTER_FIRST: &str = "IF split_part(last.seen::text, ':', 3) <> '' THEN";

/// Folds at most this many deltas, as a tick does, and returns how many these were. Fails the test if a
/// counter does not fit.
fn fold(scene: &Scene, most: usize) -> i64 {
    let folded = scene.ask(&format!(
        "BEGIN; LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE;\n{}; COMMIT",
        FOLD.replace("$1::bigint", &most.to_string()).replace("$2::bigint", "0")
    ));
    assert_eq!(folded[0][2].as_deref(), Some("{}"), "{folded:?}");
    folded[0][0].as_deref().unwrap().parse().unwrap()
}

/// Folds all deltas as a tick does that expects a few, and then as one that expects many, and takes back both. Fails
/// the test if they leave different counters. Returns whether there were a few.
fn both_fold_alike(scene: &Scene) -> bool {
    let after = |fold: &str| {
        let left = "SELECT count(*)::text FROM sm.delta
            UNION ALL SELECT row_to_json(lane)::text FROM sm.lane
            UNION ALL SELECT concat(name, ' ', used) FROM sm.pool_use
            UNION ALL SELECT concat(digest, ' ', ready, ' ', tasks, ' ', ARRAY[rank, logical_date, map_index, no], ' ',
              ARRAY(SELECT * FROM unnest(early) early (no) ORDER BY no)) FROM sm.lane_use
            UNION ALL SELECT concat('tick ', no, ' ', due, ' ', early) FROM sm.tick ORDER BY 1";
        let lock = "SAVEPOINT before; LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE";
        scene.ask(&format!("{lock}; {fold}; {left}; ROLLBACK TO SAVEPOINT before"))
    };
    // Both have the same number.
    scene.ask("BEGIN; SELECT txid_current()");
    let few = after("SELECT count, whole, damage FROM sm._fold_few(false, NULL) WHERE count IS NOT NULL");
    let mut many = after(&FOLD.replace("$1::bigint", "10000").replace("$2::bigint", "0"));
    // Behind this it tells what only counts where lanes are filed.
    many.iter_mut().take(1).for_each(|folded| folded.truncate(3));
    scene.ask("ROLLBACK");
    // Without a row of the fold itself, it was left to the other one.
    let is_few = few.len() == many.len();
    assert!(!is_few || few == many, "as a few, and as many:\n{few:?}\n{many:?}");
    is_few
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
    let (mut reversed, mut few, later) = (0, 0, Hand::new(&scene.scratch.0));
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
        few += usize::from(both_fold_alike(&scene));
        let mut folded = 0;
        while fold(&scene, 1) > 0 {
            folded += 1;
            scene.audit();
        }
        reversed += usize::from(folded > 1);
        each_counter_has_one_version(&scene);
    }
    assert!(reversed > 15, "{reversed} pairs with several deltas");
    assert!(few > 15, "{few} pairs with a few deltas");
}

/// Enqueues in a transaction that stays open while others are folded.
fn open_during_folds(scene: &Scene) -> Hand {
    let late = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    late.call(|tx| Verb::Enqueue.call(tx, "late", None)).done();
    for early in ["a", "b", "c"] {
        scene.store.write(|tx| Verb::Enqueue.call(tx, early, None)).unwrap();
        assert_eq!(scene.granted(now(), 9), [early]);
    }
    late
}

/// The deltas of a transaction that was open during folds are found when it commits, behind what was folded.
#[test]
fn what_commits_late_is_folded() {
    let scene = Scene::new();
    let late = open_during_folds(&scene);
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

/// A short fold looks twice, and the second look may find more. Only what the first one saw counts as seen.
#[test]
fn what_commits_between_the_looks_of_a_short_fold_is_folded() {
    let scene = Scene::new();
    scene.scratch.discard();
    let late = open_during_folds(&scene);
    // Between its looks, it says that it is there, and goes on once it may.
    let [reached, held] = [1, 2].map(|more| i64::from(std::process::id()) * 4 + more);
    let waits = format!(
        "PERFORM pg_advisory_xact_lock({reached});
         WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = {held}) LOOP
           PERFORM pg_sleep(0.01);
         END LOOP;
         {AFTER_FIRST}"
    );
    let text = FOLD_FEW.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION");
    assert_eq!(text.matches(AFTER_FIRST).count(), 1);
    scene.ask(&text.replace(AFTER_FIRST, &waits));
    let gate = Hand::new(&scene.scratch.0);
    gate.sql(&format!("SELECT pg_advisory_lock({held})")).done();
    let between = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    between.call(|tx| Verb::Enqueue.call(tx, "between", None)).done();
    scene.store.write(|tx| Verb::Enqueue.call(tx, "d", None)).unwrap();
    std::thread::scope(|scope| {
        let tick = scope.spawn(|| scene.granted(later(1), 9));
        let is_there =
            format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {reached}");
        while scene.numbers(&is_there) == [0] {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        between.commit();
        gate.sql(&format!("SELECT pg_advisory_unlock({held})")).done();
        let mut granted = tick.join().unwrap();
        granted.extend(scene.granted(later(2), 9));
        granted.sort();
        assert_eq!(granted, ["between", "d"]);
    });
    scene.audit();
    assert_eq!(scene.numbers("SELECT count(*) FROM sm.delta"), [0]);
    late.commit();
    assert_eq!(scene.granted(later(3), 9), ["late"]);
    scene.audit();
}
