use super::*;

fn grant(task: i64, epoch: i64, pool: &str, slots: u32, expires_at: Instant) -> Grant {
    Grant::new(task, epoch, pool, slots, expires_at)
}

fn event(invoked: Instant, returned: Instant, operation: Operation) -> Event {
    Event { invoked, returned: Some(returned), operation }
}

fn lost(invoked: Instant, operation: Operation) -> Event {
    Event { invoked, returned: None, operation }
}

fn admit(invoked: Instant, returned: Instant, grants: &[Grant]) -> Event {
    event(invoked, returned, Operation::Admit(grants.to_vec()))
}

fn ids(ids: &[(i64, i64)]) -> Vec<LeaseId> {
    ids.iter().map(|(task, epoch)| LeaseId { task: *task, epoch: *epoch }).collect()
}

fn end(invoked: Instant, returned: Instant, of: &[(i64, i64)]) -> Event {
    event(invoked, returned, Operation::End(ids(of)))
}

fn check(events: Vec<Event>) -> Result<Summary, Violation> {
    let mut history = History::new([("one", Some(1)), ("three", Some(3)), ("wide", None), ("key", Some(2))]);
    history.rate("rate", 2, 10, 3);
    events.into_iter().for_each(|event| history.push(event));
    history.check()
}

const FAR: Instant = 1_000_000;

/// A grant of a task of the wide pool.
fn also(task: i64, also: &[(&str, u32)]) -> Grant {
    let also = also.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Grant { also, ..grant(task, 1, "wide", 1, FAR) }
}

/// Starts by these calls, of a key with a rate of 2 in 10 and a burst of 3.
fn starts<const N: usize>(calls: [(Instant, Instant); N]) -> Vec<Event> {
    let start = |(task, (invoked, returned))| admit(invoked, returned, &[also(task, &[("rate", 1)])]);
    (1..).zip(calls).map(start).collect()
}

fn pause(invoked: Instant, returned: Instant, is_paused: bool) -> Event {
    event(invoked, returned, Operation::Pause("queue".into(), is_paused))
}

#[test]
fn accepts_what_may_have_happened() {
    let resize = |at, slots| event(at, at + 1, Operation::Resize("one".into(), Some(slots)));
    for fine in [
        vec![],
        vec![
            admit(1, 2, &[grant(1, 1, "one", 1, FAR)]),
            end(3, 5, &[(1, 1)]),
            admit(4, 6, &[grant(2, 1, "one", 1, FAR)]),
        ],
        // The holder died in the call that ends: it may have ended.
        vec![
            admit(1, 2, &[grant(1, 1, "one", 1, FAR)]),
            lost(3, Operation::End(ids(&[(1, 1)]))),
            admit(4, 5, &[grant(2, 1, "one", 1, FAR)]),
        ],
        // It expired.
        vec![admit(1, 2, &[grant(1, 1, "one", 1, 9)]), admit(10, 11, &[grant(1, 2, "one", 1, FAR)])],
        // A renewal that was accepted, and one whose end is unknown.
        vec![
            admit(1, 2, &[grant(1, 1, "one", 1, 9)]),
            lost(3, Operation::Renew(ids(&[(1, 1)]), 99)),
            admit(10, 11, &[grant(1, 2, "one", 1, FAR)]),
        ],
        // A busy pool was shrunk.
        vec![
            admit(1, 2, &[grant(1, 1, "three", 3, FAR)]),
            event(3, 4, Operation::Resize("three".into(), Some(1))),
        ],
        // Granted while it was larger; a resize of a dead process may have come at any time.
        vec![resize(1, 2), admit(3, 4, &[grant(1, 1, "one", 2, FAR)]), resize(5, 1)],
        vec![lost(1, Operation::Resize("one".into(), Some(2))), admit(30, 40, &[grant(1, 1, "one", 2, FAR)])],
        vec![admit(1, 2, &[grant(1, 1, "wide", 1_000, FAR), grant(2, 1, "wide", 1_000, FAR)])],
        // Keys, one with a maximum and one that nothing limits.
        vec![admit(1, 2, &[also(1, &[("key", 2)]), also(2, &[("free", 99)])])],
        // The burst, then one in each five; and calls that may have been made later or earlier.
        starts([(1, 1), (1, 1), (1, 1), (6, 6), (11, 11), (16, 16)]),
        starts([(1, 1), (1, 1), (1, 1), (2, 6), (3, 11)]),
        // Resumed in time, and paused by a call that began before.
        vec![pause(1, 2, true), pause(3, 4, false), admit(3, 9, &[also(1, &[("queue", 0)])])],
        vec![pause(3, 9, true), admit(5, 6, &[also(1, &[("queue", 0)])])],
        // Two calls at once, in either order.
        vec![
            admit(1, 9, &[grant(1, 1, "one", 1, FAR)]),
            end(2, 8, &[(1, 1)]),
            admit(3, 7, &[grant(2, 1, "one", 1, FAR)]),
        ],
    ] {
        assert!(check(fine.clone()).is_ok(), "{:?}: {fine:?}", check(fine.clone()));
    }
}

#[test]
fn what_a_task_kept_was_taken_when_the_pool_was_larger() {
    let shrunk = |task, epoch| {
        [
            admit(1, 2, &[grant(1, 1, "three", 3, FAR)]),
            end(3, 4, &[(1, 1)]),
            event(5, 6, Operation::Resize("three".into(), Some(1))),
            admit(7, 8, &[grant(task, epoch, "three", 3, FAR)]),
        ]
    };
    let check = |events: [Event; 4], keeps: bool| {
        let mut history = History::new([("three", Some(3))]);
        if keeps {
            history.keeps_slots("three");
        }
        events.into_iter().for_each(|event| history.push(event));
        history.check().map_err(|violation| violation.rule)
    };
    assert_eq!(check(shrunk(1, 2), false), Err(Rule::Capacity));
    assert!(check(shrunk(1, 2), true).is_ok());
    assert!(check(shrunk(1, 3), true).is_ok(), "of the lease between them nothing is known");
    assert_eq!(check(shrunk(2, 1), true), Err(Rule::Capacity), "another task kept nothing");
}

#[test]
fn rejects_broken_histories() {
    use Rule::{Capacity, Exclusion, Fencing, Pauses, Tokens};
    let of_queue = |invoked, returned| admit(invoked, returned, &[also(1, &[("queue", 0)])]);
    let first = || admit(1, 2, &[grant(1, 1, "one", 1, 50)]);
    let resize = |at, slots| event(at, at + 1, Operation::Resize("one".into(), Some(slots)));
    let reap = |invoked, returned, of: &[(i64, i64)]| event(invoked, returned, Operation::Reap(ids(of)));
    let renew =
        |invoked, of: &[(i64, i64)], until| event(invoked, invoked + 1, Operation::Renew(ids(of), until));
    let cases: Vec<(Rule, Vec<Event>)> = vec![
        (Capacity, vec![first(), admit(3, 4, &[grant(2, 1, "one", 1, FAR)])]),
        (Capacity, vec![admit(1, 2, &[grant(1, 1, "three", 2, FAR), grant(2, 1, "three", 2, FAR)])]),
        (Capacity, vec![admit(1, 2, &[grant(1, 1, "one", 2, FAR)])]),
        (
            Capacity,
            vec![admit(1, 4, &[grant(1, 1, "one", 1, FAR)]), admit(2, 3, &[grant(2, 1, "one", 1, FAR)])],
        ),
        (Capacity, vec![first(), end(9, 10, &[(1, 1)]), admit(3, 4, &[grant(2, 1, "one", 1, FAR)])]),
        (Capacity, vec![first(), renew(10, &[(1, 1)], 90), admit(60, 61, &[grant(2, 1, "one", 1, FAR)])]),
        (Capacity, vec![resize(1, 0), admit(5, 6, &[grant(1, 1, "one", 1, FAR)])]),
        (Capacity, vec![resize(1, 5), resize(3, 1), admit(5, 6, &[grant(1, 1, "one", 2, FAR)])]),
        (
            Capacity,
            vec![
                lost(9, Operation::Resize("one".into(), Some(5))),
                admit(5, 6, &[grant(1, 1, "one", 2, FAR)]),
            ],
        ),
        (Capacity, vec![admit(1, 2, &[grant(1, 1, "nowhere", 1, FAR)])]),
        (Capacity, vec![admit(1, 2, &[also(1, &[("key", 2)]), also(2, &[("key", 1)])])]),
        (Tokens, starts([(1, 1), (1, 1), (1, 1), (2, 5)])),
        (Tokens, vec![admit(1, 1, &[1, 2, 3, 4].map(|task| also(task, &[("rate", 7)])))]),
        (Tokens, starts([(1, 1), (50, 51), (50, 51), (50, 51), (51, 54)])),
        (Pauses, vec![pause(1, 2, true), of_queue(3, 4)]),
        (Pauses, vec![pause(1, 2, false), pause(3, 4, true), of_queue(5, 6), pause(7, 8, false)]),
        (Exclusion, vec![first(), admit(60, 61, &[grant(1, 1, "one", 1, FAR)])]),
        (
            Exclusion,
            vec![admit(1, 2, &[grant(1, 1, "wide", 1, FAR)]), admit(3, 4, &[grant(1, 2, "wide", 1, FAR)])],
        ),
        (
            Exclusion,
            vec![admit(3, 4, &[grant(1, 1, "wide", 1, FAR)]), admit(1, 2, &[grant(1, 2, "wide", 1, FAR)])],
        ),
        (Exclusion, vec![admit(1, 2, &[grant(1, 1, "wide", 1, FAR), grant(1, 1, "wide", 1, FAR)])]),
        (Fencing, vec![first(), end(3, 4, &[(1, 1)]), end(5, 6, &[(1, 1)])]),
        (Fencing, vec![first(), end(3, 6, &[(1, 1)]), end(4, 5, &[(1, 1)])]),
        (Fencing, vec![first(), end(3, 4, &[(1, 1)]), renew(5, &[(1, 1)], 99)]),
        (Fencing, vec![first(), reap(51, 52, &[(1, 1)]), end(53, 54, &[(1, 1)])]),
        (Fencing, vec![first(), reap(51, 52, &[(1, 1)]), reap(53, 54, &[(1, 1)])]),
        (Fencing, vec![first(), admit(60, 61, &[grant(1, 2, "one", 1, 90)]), end(62, 63, &[(1, 1)])]),
        (Fencing, vec![first(), admit(60, 61, &[grant(1, 2, "one", 1, 90)]), renew(62, &[(1, 1)], 99)]),
    ];
    assert!(cases.len() >= 20);
    for (rule, broken) in cases {
        let found = check(broken.clone()).map_err(|violation| violation.rule);
        assert_eq!(found, Err(rule), "{broken:?}");
    }
}
