//! Histories that may have happened, and histories broken by hand.

use super::*;

fn id(task: i64) -> RegistrationId {
    RegistrationId { task, generation: 1 }
}

fn registered(task: i64, group: &str, invoked: Instant) -> Record {
    Record::Registered { id: id(task), group: group.into(), invoked, returned: Some(invoked + 1) }
}

fn ended(task: i64, at: Instant) -> Record {
    Record::Ended { id: id(task), at }
}

fn poke(worker: &str, began: Instant, returned: Instant) -> Poke {
    Poke::new(worker, "g", began).returned(returned).held_until(1_000)
}

fn check(records: &[Record]) -> Result<PokeSummary, Violation> {
    let mut history = PokeHistory::new();
    records.iter().cloned().for_each(|record| history.push(record));
    history.check()
}

#[test]
fn accepts_what_may_have_happened() {
    use Record::PokeOutcome;
    let landed = |began, returned| poke("a", began, returned).answer(Answer::Ended);
    for fine in [
        vec![],
        vec![PokeOutcome(poke("a", 1, 3)), PokeOutcome(poke("b", 3, 5)), PokeOutcome(poke("a", 5, 9))],
        // One worker may poke twice at once and at one due time: what it does to itself is not asked here.
        vec![PokeOutcome(poke("a", 1, 9).due(1)), PokeOutcome(poke("a", 3, 5).due(1))],
        // The first outlived its lease, or died: it is unknown how long it went on.
        vec![PokeOutcome(poke("a", 1, 90).held_until(20)), PokeOutcome(poke("b", 20, 22))],
        vec![PokeOutcome(Poke::new("a", "g", 1)), PokeOutcome(poke("b", 2, 3))],
        vec![PokeOutcome(poke("a", 1, 2).due(1).held_until(5)), PokeOutcome(poke("b", 5, 6).due(1))],
        vec![PokeOutcome(poke("a", 1, 2).due(1)), PokeOutcome(poke("b", 5, 6).due(2))],
        vec![registered(1, "g", 1), PokeOutcome(landed(5, 6)), ended(1, 5)],
        // Registered while it was poked, and before the answer was committed; it may have missed it, too.
        vec![registered(1, "g", 6), PokeOutcome(landed(5, 7)), ended(1, 6)],
        vec![registered(1, "g", 5), PokeOutcome(landed(5, 7))],
        // The worker may have died before the commit.
        vec![registered(1, "g", 1), PokeOutcome(poke("a", 5, 6).answer(Answer::Ends))],
        vec![registered(1, "g", 1), PokeOutcome(poke("a", 5, 6))],
    ] {
        assert!(check(&fine).is_ok(), "{:?}: {fine:?}", check(&fine));
    }
}

#[test]
fn rejects_broken_histories() {
    use Record::PokeOutcome;
    use Rule::{Answers, Pokes};
    let landed = |began, returned| PokeOutcome(poke("a", began, returned).answer(Answer::Ended));
    let elsewhere = PokeOutcome(Poke { group: "h".into(), ..poke("a", 5, 6).answer(Answer::Ended) });
    for (rule, broken) in [
        (Pokes, vec![PokeOutcome(poke("a", 1, 9)), PokeOutcome(poke("b", 3, 5))]),
        (Pokes, vec![PokeOutcome(poke("b", 3, 5)), PokeOutcome(poke("a", 1, 9))]),
        (
            Pokes,
            vec![PokeOutcome(poke("a", 1, 9)), PokeOutcome(poke("a", 2, 3)), PokeOutcome(poke("b", 4, 5))],
        ),
        (Pokes, vec![PokeOutcome(poke("a", 1, 90).held_until(20)), PokeOutcome(poke("b", 19, 22))]),
        (Pokes, vec![PokeOutcome(poke("a", 5, 6).held_until(5))]),
        (Pokes, vec![PokeOutcome(poke("a", 1, 2).due(1)), PokeOutcome(poke("b", 5, 6).due(1))]),
        (
            Pokes,
            vec![
                PokeOutcome(poke("a", 1, 2).due(1)),
                PokeOutcome(poke("a", 3, 4).due(2)),
                PokeOutcome(poke("b", 5, 6).due(1)),
            ],
        ),
        (Pokes, vec![PokeOutcome(Poke::new("a", "g", 1).due(1)), PokeOutcome(poke("b", 2, 3).due(1))]),
        (Answers, vec![registered(1, "g", 1), landed(5, 6), ended(1, 6), ended(1, 7)]),
        (Answers, vec![registered(1, "g", 1), registered(1, "g", 3)]),
        (Answers, vec![landed(5, 6), ended(1, 6)]),
        (Answers, vec![registered(1, "g", 1), PokeOutcome(poke("a", 5, 6)), ended(1, 6)]),
        (Answers, vec![registered(1, "g", 1), ended(1, 6)]),
        (Answers, vec![registered(1, "g", 1), elsewhere.clone(), ended(1, 6)]),
        // Registered after the answer; ended before the poke.
        (Answers, vec![registered(1, "g", 7), landed(5, 6), ended(1, 8)]),
        (Answers, vec![registered(1, "g", 1), landed(5, 6), ended(1, 4)]),
        // One of the group was left out.
        (Answers, vec![registered(1, "g", 1), registered(2, "g", 1), landed(5, 6), ended(1, 6)]),
    ] {
        let found = check(&broken).map_err(|violation| violation.rule);
        assert_eq!(found, Err(rule), "{broken:?}");
    }
}
