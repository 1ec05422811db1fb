//! What comes between the two parts of a tick that is sent ahead: the one that counts, and the one that moves.

use stationmaster::ops::Changed;

use super::hand::{Hand, Step};
use super::scene::{Scene, key, later, now, task};
use crate::postgres_server::Plain;
use crate::scratch::url;

const TICK: &str =
    "SELECT no FROM sm._tick_ahead($1::text, $2::text, $3::text, $4::bigint, $5::bigint,
  $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::bigint, '{}', '{}', '{}', '{}', '{}', '{}') WHERE no IS NOT NULL";

/// Stops a tick once it has counted, while another session has this lock.
const STOP: &str = "CREATE FUNCTION sm.stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock('sm.request'::regclass::bigint);
    RETURN NULL; END $$;
  CREATE TRIGGER stop AFTER INSERT OR UPDATE ON sm.request FOR EACH STATEMENT EXECUTE FUNCTION sm.stop()";

/// A scene whose holder has said what it serves, and whose ticks can be stopped.
fn scene() -> Scene {
    let scene = Scene::at(&url());
    enqueue(&scene, "before");
    assert_eq!(scene.granted(now(), 1), ["before"]);
    scene.ask(STOP);
    scene
}

fn enqueue(scene: &Scene, name: &str) {
    scene.store.write(|tx| tx.enqueue(now(), &[task(name)])).unwrap();
}

/// Makes a tick ahead of ten tasks, with this between its parts. Returns how many it moved, or why it failed.
fn tick(scene: &Scene, between: impl FnOnce()) -> Result<usize, String> {
    let (now, until) = (now().as_micros().to_string(), later(60).as_micros().to_string());
    let other = Plain::connect(&url());
    let ask = |verb| {
        other.ask(&scene.sql(&format!("SELECT pg_advisory_{verb}('sm.request'::regclass::bigint)"), &[]))
    };
    ask("lock");
    let hand = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    let values = ["ahead", "none", "stepped", "60000000", "10", &now, "0", "1", &until, "0"];
    hand.sql(&scene.sql(TICK, &values)).waits();
    between();
    ask("unlock");
    match hand.rest() {
        Step::Done(Ok(rows)) => {
            hand.commit();
            Ok(rows.lines().count())
        }
        Step::Done(Err(code)) => {
            hand.rollback();
            Err(code)
        }
        waits @ Step::Waits(_) => panic!("{waits:?}"),
    }
}

/// What was counted in one lane is not granted in another.
#[test]
fn what_changes_between_the_parts_of_a_tick_ahead_is_not_granted() {
    let scene = scene();
    ["first", "second"].iter().for_each(|name| enqueue(&scene, name));
    let change = || {
        let changed = scene.store.write(|tx| tx.change(now(), &[key("first")], |task| task.pool_slots = 3));
        assert_eq!(changed.unwrap(), [Changed::Done]);
    };
    assert_eq!(tick(&scene, change), Err("22012".to_owned()));
    scene.audit();
    assert_eq!(scene.granted(now(), 10), ["first", "second"]);

    enqueue(&scene, "third");
    assert_eq!(tick(&scene, || ()), Ok(1));
    scene.audit();
}

/// A task that is not counted yet is not granted, or the lane would have fewer than none.
#[test]
fn a_tick_ahead_grants_no_more_than_is_counted() {
    let scene = scene();
    enqueue(&scene, "first");
    // As if it committed after the fold: its row is there, and its delta was not folded.
    enqueue(&scene, "second");
    scene.ask("DELETE FROM sm.delta WHERE ctid = (SELECT ctid FROM sm.delta ORDER BY xid DESC LIMIT 1)");
    assert_eq!(tick(&scene, || ()), Ok(1));
    assert_eq!(scene.numbers("SELECT ready FROM sm.lane_use ORDER BY version DESC LIMIT 1"), [0]);
}
