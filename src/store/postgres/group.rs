//! Group commit: ends of single attempts that wait while others commit share a connection and a flush.
//!
//! While many callers commit one statement each, most of the time goes into waking them and their server processes
//! for each flush. So only a few callers, the leaders, use connections of their own. The others queue their statements.
//! A leader that has a connection takes the queued statements, sends them with its own one, each as a transaction of
//! its own, and has them flushed together. Once the server has responded to them, the first in the queue leads: its
//! group runs while the one before is flushed, which still uses a connection. A leader that found an empty queue leads
//! until its own flush. While few callers commit, each leads, and so commits without a group.
//!
//! Other statements are not grouped. For example, an enqueue draws the number of a task. Others could read that before
//! it is flushed, and after a crash it could be the number of another task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;

use super::error::{Failure, open_commit};
use super::request::Reply;
use super::wire::Statement;

/// For each processor of this machine: up to how many callers lead each, and how many lead if there are more, now or
/// usually. Few leaders make large groups: those of two or three statements save little.
const PER_PROCESSOR: (usize, usize) = (4, 1);

/// About how many of the last calls decide how many callers there usually are. Right after a group there are few for a
/// moment.
const RECENT: usize = 16;

/// The most statements of a group.
const MOST: usize = 64;

/// The most bytes of the values of a statement that joins a group. Those behind it wait while it runs.
const SMALL: usize = 1_024;

/// How long a statement waits only for a leader. Then its caller also waits for a connection of its own, because
/// all leaders may be waiting for locks. A busy server also makes callers wait: if they went their own ways early, that
/// would dissolve its groups.
const PATIENCE: Duration = Duration::from_millis(100);

/// What became of a statement in a group.
#[derive(Debug)]
pub(super) enum Fate {
    /// The server responded, or the outcome is unknown.
    Done(Reply),
    /// It changed nothing, and has to run without a group.
    Apart(Statement),
}

/// What became of a group.
#[derive(Debug)]
pub(super) enum Outcome {
    Ran(Vec<Fate>),
    /// Nothing was sent: connections of this store commit no groups.
    Unable(Vec<Statement>),
}

#[derive(Debug)]
enum Signal {
    /// It leads with its statement, in this era.
    Lead(Statement, u64),
    Fate(Fate),
}

/// A caller leads with its statement, and with what it has waited for. Or it learns its statement's fate.
pub(super) type Lead<L> = Result<(Leader, Statement, L), Fate>;

/// What a caller does next.
#[derive(Debug)]
pub(super) enum Turn {
    Now(Lead<()>),
    /// It waits for a connection, or until a leader has run its statement.
    Wait(Queued),
}

/// The callers that commit one statement each.
#[derive(Debug)]
pub(super) struct Groups {
    /// Up to this many callers, now and usually, each leads.
    few: usize,
    /// How many lead if there are more callers.
    leaders: usize,
    patience: Duration,
    is_unable: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many callers there are, without leaders whose groups are being flushed.
    callers: usize,
    /// A moving average of that, times [`RECENT`].
    usual: usize,
    /// How many leaders of this era there are.
    leading: usize,
    /// An era ends when a caller has waited too long: all leaders may be waiting for locks. They do not count from then
    /// on, so that others lead in their place.
    era: u64,
    /// How many callers wait for a connection, too.
    late: usize,
    last: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    statement: Statement,
    caller: SyncSender<Signal>,
}

/// A statement of another caller that a leader runs.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) statement: Statement,
    pub(super) caller: Caller,
}

/// A caller that waits for its statement's fate.
#[derive(Debug)]
pub(super) struct Caller(SyncSender<Signal>);

impl Caller {
    pub(super) fn learns(self, fate: Fate) {
        // It waits for exactly one signal.
        let _ = self.0.send(Signal::Fate(fate));
    }
}

impl Groups {
    /// Creates one for a store with this many connections for such callers.
    pub(super) fn new(connections: usize) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let most = |count: usize| connections.min(processors.saturating_mul(count)).max(1);
        let few = most(PER_PROCESSOR.0);
        Self {
            few,
            leaders: most(PER_PROCESSOR.1),
            patience: PATIENCE,
            is_unable: AtomicBool::new(false),
            // It begins as if there were many. Otherwise the first calls would each use a connection that is new and slow.
            state: Mutex::new(State { usual: 2 * few * RECENT, ..State::default() }),
        }
    }

    /// Returns true if this statement may join a group.
    pub(super) fn admits(&self, statement: &Statement) -> bool {
        statement.is_one_end() && statement.bytes() <= SMALL && !self.is_unable.load(Ordering::Relaxed)
    }

    /// Notes that this store's connections commit no groups.
    pub(super) fn are_unable(&self) {
        self.is_unable.store(true, Ordering::Relaxed);
    }

    /// Waits for a short time until the caller leads or its statement's fate is known.
    pub(super) fn enter(self: &Arc<Self>, statement: Statement) -> Turn {
        let mut state = self.state.lock();
        state.callers += 1;
        state.usual = state.usual - state.usual / RECENT + state.callers;
        if self.may_lead(&state) {
            return Turn::Now(Ok((self.lead(&mut state), statement, ())));
        }
        let (caller, signals) = sync_channel(1);
        state.last += 1;
        let number = state.last;
        state.waiting.push_back(Waiting { number, statement, caller });
        drop(state);
        let queued = Queued { groups: Arc::clone(self), number, signals };
        match queued.signals.recv_timeout(self.patience) {
            Ok(signal) => Turn::Now(queued.lead(Some(signal))),
            Err(RecvTimeoutError::Disconnected) => Turn::Now(queued.lead(None)),
            Err(RecvTimeoutError::Timeout) => {
                self.state.lock().late += 1;
                Turn::Wait(queued)
            }
        }
    }

    /// Returns true if callers wait for a connection whose statements may be taken meanwhile.
    pub(super) fn has_late(&self) -> bool {
        self.state.lock().late > 0
    }

    fn lead(self: &Arc<Self>, state: &mut State) -> Leader {
        state.leading += 1;
        Leader { groups: Arc::clone(self), era: state.era }
    }

    /// Returns true if one more caller may lead.
    fn may_lead(&self, state: &State) -> bool {
        state.leading < self.leaders || state.callers.max(state.usual / RECENT) <= self.few
    }
}

/// A caller's place in the queue.
#[derive(Debug)]
pub(super) struct Queued {
    groups: Arc<Groups>,
    number: u64,
    signals: Receiver<Signal>,
}

impl Queued {
    /// Waits with `lease` for something to lead with, or for the statement's fate. `lease` is to return as soon as the
    /// function that it gets returns true: a leader has taken the statement.
    pub(super) fn wait_with<L, E>(
        self,
        lease: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<Option<L>, E>,
    ) -> Lead<Result<Option<L>, E>> {
        let mut signal = None;
        let leased = lease(&mut || self.is_taken(&mut signal));
        let mut state = self.groups.state.lock();
        state.late -= 1;
        let at = state.waiting.iter().position(|waiting| waiting.number == self.number);
        if let Some(Waiting { statement, .. }) = at.and_then(|at| state.waiting.remove(at)) {
            (state.era, state.leading) = (state.era + 1, 0);
            return Ok((self.groups.lead(&mut state), statement, leased));
        }
        drop(state);
        if self.is_taken(&mut signal) {
            // Others need the connection while the group is committed. The leader reports as soon as the server has
            // responded or was given up.
            drop(leased);
            signal = signal.or_else(|| self.signals.recv().ok());
            return Err(self.lead(signal).err().unwrap_or_else(ended));
        }
        let (leader, statement, ()) = self.lead(signal)?;
        Ok((leader, statement, leased))
    }

    /// Returns true if a leader has taken the statement. Keeps a signal that has arrived.
    fn is_taken(&self, signal: &mut Option<Signal>) -> bool {
        let state = self.groups.state.lock();
        if state.waiting.iter().any(|waiting| waiting.number == self.number) {
            return false;
        }
        // The lead is handed over under the lock.
        *signal = signal.take().or_else(|| self.signals.try_recv().ok());
        !matches!(signal, Some(Signal::Lead(..)))
    }

    fn lead(self, signal: Option<Signal>) -> Lead<()> {
        let fate = match signal {
            Some(Signal::Lead(statement, era)) => {
                return Ok((Leader { groups: self.groups, era }, statement, ()));
            }
            Some(Signal::Fate(fate)) => fate,
            None => ended(),
        };
        self.groups.state.lock().callers -= 1;
        Err(fate)
    }
}

/// The fate of a statement whose leader does not report.
fn ended() -> Fate {
    Fate::Done(Err(Failure::Lost(open_commit("the thread that committed it ended"))))
}

/// The right to lead. Dropping it lets the next caller lead.
#[derive(Debug)]
pub(super) struct Leader {
    groups: Arc<Groups>,
    era: u64,
}

impl Leader {
    /// Takes the statements that wait.
    pub(super) fn take(&self) -> Vec<Follower> {
        let mut state = self.groups.state.lock();
        let count = state.waiting.len().min(MOST - 1);
        let taken = state.waiting.drain(..count);
        taken
            .map(|Waiting { statement, caller, .. }| Follower { statement, caller: Caller(caller) })
            .collect()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let mut state = self.groups.state.lock();
        state.callers -= 1;
        state.leading -= usize::from(self.era == state.era);
        while self.groups.may_lead(&state)
            && let Some(Waiting { statement, caller, .. }) = state.waiting.pop_front()
        {
            state.leading += 1;
            // It cannot have left without taking its statement.
            let _ = caller.send(Signal::Lead(statement, state.era));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvError;
    use std::thread::{scope, yield_now};

    use super::super::wire::ask;
    use super::*;
    use crate::error::{StoreError, StoreErrorKind};

    /// It only ends a test that fails.
    const LONG: Duration = Duration::from_secs(60);

    fn groups(leaders: usize, patience: Duration) -> Arc<Groups> {
        Arc::new(Groups { few: 0, leaders, patience, ..Groups::new(0) })
    }

    /// Returns how many callers there are, and how many of them lead, wait, and are late.
    fn counts(groups: &Groups) -> [usize; 4] {
        let state = groups.state.lock();
        [state.callers, state.leading, state.waiting.len(), state.late]
    }

    fn number(statement: &Statement) -> usize {
        statement.params.len()
    }

    fn apart() -> Fate {
        Fate::Apart(statement(3))
    }

    /// A statement that is recognized by its number, which is at most 3.
    fn statement(number: usize) -> Statement {
        let mut statement = ask!("SELECT", 1, 2, 3);
        statement.params.truncate(number);
        statement
    }

    fn leads(turn: Turn) -> (Leader, usize) {
        let Turn::Now(lead) = turn else { panic!("it waits for a connection") };
        let (leader, statement, ()) = lead.unwrap();
        (leader, number(&statement))
    }

    fn waits(turn: Turn) -> Queued {
        let Turn::Wait(queued) = turn else { panic!("another one leads") };
        queued
    }

    /// Returns the fate that a leader reports.
    fn follows(turn: Turn) -> Reply {
        let Turn::Now(Err(Fate::Done(reply))) = turn else { panic!("{turn:?}") };
        reply
    }

    fn wait_until(groups: &Groups, waiting: usize) {
        while groups.state.lock().waiting.len() < waiting {
            yield_now();
        }
    }

    #[test]
    fn who_finds_a_place_leads_and_the_others_follow_in_order() {
        let groups = groups(2, LONG);
        let (first, _) = leads(groups.enter(statement(0)));
        let (second, _) = leads(groups.enter(statement(0)));
        scope(|scope| {
            let enter = |number| {
                let entered = scope.spawn({
                    let groups = &groups;
                    move || follows(groups.enter(statement(number))).unwrap().len()
                });
                wait_until(&groups, number);
                entered
            };
            let entered = [enter(1), enter(2), enter(3)];
            let taken = first.take();
            assert_eq!(
                taken.iter().map(|follower| number(&follower.statement)).collect::<Vec<_>>(),
                [1, 2, 3]
            );
            assert!(second.take().is_empty());
            for Follower { statement, caller } in taken {
                caller.learns(Fate::Done(Ok(vec![Vec::new(); number(&statement)])));
            }
            assert_eq!(entered.map(|entered| entered.join().unwrap()), [1, 2, 3]);
        });
        drop((first, second));
        assert_eq!(counts(&groups), [0; 4]);
    }

    #[test]
    fn who_has_waited_longest_leads_next() {
        let groups = groups(1, LONG);
        let (first, _) = leads(groups.enter(statement(0)));
        scope(|scope| {
            let second = scope.spawn(|| leads(groups.enter(statement(1))));
            wait_until(&groups, 1);
            drop(first);
            assert_eq!(second.join().unwrap().1, 1);
        });
        assert_eq!(counts(&groups), [0; 4]);
    }

    #[test]
    fn who_waits_too_long_leads_with_its_own_connection() {
        let groups = groups(1, Duration::ZERO);
        let (first, _) = leads(groups.enter(statement(0)));
        let queued = waits(groups.enter(statement(1)));
        assert!(groups.has_late());
        let (second, own, leased) = queued
            .wait_with(|is_taken| {
                assert!(!is_taken());
                Ok::<_, ()>(Some("a connection"))
            })
            .unwrap();
        assert_eq!((number(&own), leased), (1, Ok(Some("a connection"))));
        assert_eq!(counts(&groups), [2, 1, 0, 0]);
        drop((first, second));
        assert_eq!(counts(&groups), [0; 4]);
    }

    /// A connection that it gets too late is free again while it waits for its fate.
    #[test]
    fn who_waits_for_a_connection_can_still_be_taken() {
        for is_late in [false, true] {
            let groups = groups(1, Duration::ZERO);
            let (first, _) = leads(groups.enter(statement(0)));
            let queued = waits(groups.enter(statement(1)));
            let (connection, is_free) = sync_channel::<()>(1);
            scope(|scope| {
                let fate = scope.spawn(|| {
                    let taken = queued.wait_with(|is_taken| {
                        assert!(!is_taken());
                        let followers = first.take();
                        assert!(is_taken());
                        scope.spawn(move || {
                            assert_eq!(is_free.recv(), Err(RecvError), "it is dropped");
                            followers.into_iter().for_each(|follower| follower.caller.learns(apart()));
                        });
                        Ok::<_, ()>(is_late.then_some(connection))
                    });
                    taken.unwrap_err()
                });
                let Fate::Apart(own) = fate.join().unwrap() else { panic!("it runs apart") };
                assert_eq!(number(&own), 3);
            });
            drop(first);
            assert_eq!(counts(&groups), [0; 4]);
        }
    }

    #[test]
    fn who_waits_for_a_connection_can_be_the_next_to_lead() {
        let groups = groups(1, Duration::ZERO);
        let (first, _) = leads(groups.enter(statement(0)));
        let queued = waits(groups.enter(statement(2)));
        let (leader, own, leased) = queued
            .wait_with(|is_taken| {
                drop(first);
                assert!(!is_taken(), "it leads, and still needs a connection");
                Err::<Option<()>, ()>(())
            })
            .unwrap();
        assert_eq!((number(&own), leased), (2, Err(())));
        drop(leader);
        assert_eq!(counts(&groups), [0; 4]);
    }

    #[test]
    fn of_many_callers_only_some_lead_and_after_a_while_of_few_each() {
        let groups = Arc::new(Groups { leaders: 1, patience: Duration::ZERO, ..Groups::new(16) });
        let enter = || groups.enter(statement(0));
        let (first, _) = leads(enter());
        // So it begins. Later, it depends on how many there were.
        let second = waits(enter());
        drop(first);
        assert_eq!(counts(&groups), [1, 1, 0, 1]);
        drop(second.wait_with(|_| Err::<Option<()>, ()>(())));
        for _ in 0..1_000 {
            drop(leads(enter()));
        }
        let mut few: Vec<Leader> = (0..groups.few).map(|_| leads(enter()).0).collect();
        let more = [(); 2].map(|()| waits(enter()));
        assert_eq!(counts(&groups), [groups.few + 2, groups.few, 2, 2]);
        few.truncate(groups.few - 2);
        assert_eq!(counts(&groups), [groups.few, groups.few, 0, 2], "both lead, although others still do");
        drop(more.map(|queued| queued.wait_with(|_| Err::<Option<()>, ()>(()))));
        drop(few);
        assert_eq!(counts(&groups), [0; 4]);
    }

    /// Otherwise each caller would have to wait too long until the one that is blocked is done.
    #[test]
    fn who_waits_too_long_replaces_all_who_lead() {
        let groups = groups(1, Duration::ZERO);
        let (blocked, _) = leads(groups.enter(statement(0)));
        let late = waits(groups.enter(statement(1)));
        let (late, ..) = late.wait_with(|_| Ok::<_, ()>(Some(()))).unwrap();
        let next = waits(groups.enter(statement(2)));
        assert_eq!(counts(&groups), [3, 1, 1, 1]);
        drop(late);
        assert_eq!(counts(&groups), [2, 1, 0, 1], "the next one leads");
        drop(next.wait_with(|_| Err::<Option<()>, ()>(())));
        let (other, _) = leads(groups.enter(statement(0)));
        drop(blocked);
        assert_eq!(counts(&groups), [1, 1, 0, 0], "it has been replaced");
        drop(other);
        assert_eq!(counts(&groups), [0; 4]);
    }

    #[test]
    fn a_statement_whose_leader_ended_may_have_been_committed() {
        let groups = groups(1, LONG);
        let (first, _) = leads(groups.enter(statement(0)));
        scope(|scope| {
            let second = scope.spawn(|| follows(groups.enter(statement(1))));
            wait_until(&groups, 1);
            drop(first.take());
            let failure = second.join().unwrap().unwrap_err();
            assert_eq!(StoreError::from(failure).kind(), StoreErrorKind::Indeterminate);
        });
    }
}
