//! All orders in which two transactions of a few steps each may run.

use super::hand::{Hand, Step};

/// What the steps of one transaction are. The first one begins it.
pub type Steps = Vec<Box<dyn FnMut(&Hand) -> Step>>;

/// A transaction whose steps are run one by one, and then committed.
pub struct Actor<'a> {
    hand: &'a Hand,
    steps: Steps,
    next: usize,
    waits: bool,
    pub has_waited: bool,
    /// Steps that came up while it waited.
    owed: usize,
    /// What the steps returned.
    pub said: Vec<Result<String, String>>,
    pub has_committed: bool,
}

impl<'a> Actor<'a> {
    pub fn new(hand: &'a Hand, steps: Steps) -> Self {
        Self {
            hand,
            steps,
            next: 0,
            waits: false,
            has_waited: false,
            owed: 0,
            said: Vec::new(),
            has_committed: false,
        }
    }

    /// How many steps it has, the commit included.
    fn length(&self) -> usize {
        self.steps.len() + 1
    }

    fn note(&mut self, said: Result<String, String>) {
        self.said.push(said);
    }

    fn step(&mut self) {
        if self.waits {
            self.owed += 1;
            return;
        }
        self.next += 1;
        let has_failed = self.said.iter().any(Result::is_err);
        if self.next == self.length() {
            let end = if has_failed { "ROLLBACK" } else { "COMMIT" };
            let Step::Done(ended) = self.hand.sql(end) else { unreachable!() };
            self.has_committed = !has_failed && ended.is_ok();
            if ended.is_err() {
                self.hand.sql("ROLLBACK").done();
            }
            return;
        }
        if has_failed {
            return;
        }
        match (self.steps[self.next - 1])(self.hand) {
            Step::Done(said) => self.note(said),
            Step::Waits(_) => (self.waits, self.has_waited) = (true, true),
        }
    }

    fn is_over(&self) -> bool {
        self.next == self.length()
    }

    /// Goes on after the other one has ended, for which alone it may wait.
    fn catch_up(&mut self) {
        if std::mem::take(&mut self.waits) {
            let Step::Done(said) = self.hand.rest() else { unreachable!() };
            self.note(said);
        }
        for _ in 0..std::mem::take(&mut self.owed) {
            self.step();
        }
    }
}

/// Runs the steps of two transactions in this order: true is a step of the first.
pub fn run<'a>(order: &[bool], one: &mut Actor<'a>, two: &mut Actor<'a>) {
    for is_first in order {
        let (actor, other) = if *is_first { (&mut *one, &mut *two) } else { (&mut *two, &mut *one) };
        actor.step();
        if actor.is_over() {
            other.catch_up();
        }
    }
    assert!(one.is_over() && two.is_over());
}

/// All orders of this many steps of the first one and this many of the second.
pub fn all(first: usize, second: usize) -> Vec<Vec<bool>> {
    match (first, second) {
        (0, _) => vec![vec![false; second]],
        (_, 0) => vec![vec![true; first]],
        _ => {
            let begin = |is_first: bool, rest: Vec<Vec<bool>>| {
                rest.into_iter().map(move |rest| std::iter::once(is_first).chain(rest).collect())
            };
            begin(true, all(first - 1, second)).chain(begin(false, all(first, second - 1))).collect()
        }
    }
}
