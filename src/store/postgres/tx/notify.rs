//! Which news a transaction brings. If it announces them itself, a `NOTIFY` goes along with what is asked.

use super::super::error::Outcome;
use super::super::news::{Channel, News, NewsSet};
use super::super::wire::{Statement, ask};
use super::{Db, PostgresBackend};
use crate::error::{StoreErrorKind, StoreResult};
use crate::store::Inserted;
use crate::store::contract::{Change, Move};
use crate::task::{TaskInsert, TaskState};

const NOTIFY: &str = "SELECT pg_notify($1::text, $2::text)";

/// What is announced to others when the transaction commits: each once.
pub(super) struct Telling {
    /// Where the transaction itself announces its news, if it does.
    channel: Option<Channel>,
    announced: NewsSet,
    /// Goes with the next statements.
    next: NewsSet,
    /// What was brought.
    brought: NewsSet,
}

impl Telling {
    /// Announces on this channel, or leaves that to others if it is `None`.
    pub(super) fn on(channel: Option<Channel>) -> Self {
        let none = NewsSet::NONE;
        Self { channel, announced: none, next: none, brought: none }
    }

    /// Returns the `NOTIFY` that goes with the next statements, unless the transaction has sent it already. A
    /// host may have rolled back to a savepoint since, so there it is sent each time: the server drops what it
    /// has.
    pub(super) fn take(&mut self) -> Option<Statement> {
        let next = std::mem::take(&mut self.next);
        let is_host = self.channel.as_ref().is_some_and(|channel| channel.from.is_none());
        let news = if is_host { next } else { next.without(self.announced) };
        let channel = self.channel.as_ref().filter(|_| !news.is_empty())?;
        self.announced = self.announced.and(news);
        Some(ask!(NOTIFY, &*channel.name, channel.payload(news)))
    }
}

impl Telling {
    /// Notes whether what was asked appended to the feed. Where a `NOTIFY` goes along with what is asked, it said so
    /// before there was an answer.
    pub(super) fn told(&mut self, is_told: bool) {
        if is_told {
            self.brought = self.brought.and(News::Events);
        }
    }
}

impl<'w> PostgresBackend<'w> {
    /// Sends no `NOTIFY` with what is asked from now on: for a host that prepares its transaction for a
    /// two-phase commit, which the server refuses after one. Others then see at their next tick what changed.
    #[must_use]
    pub(in crate::store::postgres) fn without_notify(mut self) -> Self {
        self.db.telling.channel = None;
        self
    }

    /// Returns what its commit brings.
    pub(in crate::store::postgres) fn news(&self) -> NewsSet {
        self.db.telling.brought
    }

    /// [`Self::write`], announced to others if it asks the server anything.
    pub(super) fn tell<T>(
        &mut self,
        news: News,
        work: impl FnOnce(&mut Db<'w>) -> Outcome<T>,
    ) -> StoreResult<T> {
        self.tell_of(news.into(), work, |_| news.into())
    }

    /// [`Self::write`] that may bring these news; the response says which it brought. A `NOTIFY` in the
    /// transaction is sent along, before there is a response.
    pub(super) fn tell_of<T>(
        &mut self,
        may_bring: NewsSet,
        work: impl FnOnce(&mut Db<'w>) -> Outcome<T>,
        brought: impl FnOnce(&T) -> NewsSet,
    ) -> StoreResult<T> {
        self.db.telling.next = may_bring;
        let done = self.write(work);
        // It asked the server nothing.
        let is_left = !may_bring.is_empty() && self.db.telling.next == may_bring;
        self.db.telling.next = NewsSet::NONE;
        if let (Ok(answer), false) = (&done, is_left) {
            self.db.telling.brought = self.db.telling.brought.and(brought(answer));
        }
        // A commit that went along may have taken effect.
        if let Err(error) = &done
            && error.kind() == StoreErrorKind::Indeterminate
        {
            self.db.telling.brought = self.db.telling.brought.and(may_bring);
        }
        done
    }
}

/// Returns what a task brings that was not there before: nothing before it is due.
pub(super) fn of_insert(task: &TaskInsert) -> NewsSet {
    match task.due {
        None => NewsSet::ready_in(&task.lane.queue, &task.lane.pool),
        Some(_) => NewsSet::NONE,
    }
}

pub(super) fn of_inserted(tasks: &[TaskInsert], answers: &[Inserted]) -> NewsSet {
    let new = tasks.iter().zip(answers).filter(|(_, answer)| matches!(answer, Inserted::New(_)));
    new.map(|(task, _)| of_insert(task)).collect()
}

/// Returns what it brings that a task does not wait in this state any more: slots that were kept free for one that was
/// ready.
pub(super) fn of_leaving(from: TaskState) -> NewsSet {
    if from == TaskState::Scheduled { News::Capacity.into() } else { NewsSet::NONE }
}

/// Returns what a change of a waiting task brings. It may have been ready before, and slots kept free for it.
pub(super) fn of_change(change: &Change) -> NewsSet {
    of_insert(&change.to).and(of_leaving(change.from))
}

/// Returns what a move brings: slots if it may have held some, and the task itself if it is ready.
pub(super) fn of_move(change: &Move) -> NewsSet {
    let is_ready = change.to == TaskState::Scheduled && change.due.is_none();
    // A lease counts against limits, also if its slots are kept.
    let gives_back = match change.from {
        TaskState::Queued | TaskState::Running => true,
        // What is ready may have kept slots, too.
        TaskState::Sensing | TaskState::Scheduled => !change.keeps_slots,
        _ => false,
    };
    let ready = if is_ready { News::Ready.into() } else { NewsSet::NONE };
    if gives_back { ready.and(News::Capacity) } else { ready }
}

/// Returns whether a move may append to the feed. Tasks that wait for an instant are not announced, so their
/// end needs no `NOTIFY` of its own.
pub(super) fn of_feed(change: &Move) -> NewsSet {
    let was_sensing = change.from == TaskState::Sensing;
    let is_told = (change.to.is_end() && change.from != TaskState::UpForRetry)
        || (was_sensing && matches!(change.to, TaskState::Scheduled | TaskState::UpForRetry));
    if is_told { News::Events.into() } else { NewsSet::NONE }
}

pub(super) fn of_moved(moves: &[Move], answers: &[bool]) -> NewsSet {
    moves.iter().zip(answers).filter(|(_, moved)| **moved).map(|(change, _)| of_move(change)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LeaseRef, TaskId};
    use crate::task::NewTask;
    use crate::time::Timestamp;

    #[test]
    fn a_task_that_is_not_due_or_was_there_brings_nothing() {
        let key = crate::id::TaskKey::new("n", "w", "r", "t").unwrap();
        let now = NewTask::new(key.clone()).check(Timestamp::UNIX_EPOCH).unwrap();
        let later =
            NewTask::new(key).not_before(Timestamp::from_micros(1)).check(Timestamp::UNIX_EPOCH).unwrap();
        let ready = NewsSet::ready_in(&now.lane.queue, &now.lane.pool);
        assert_eq!((of_insert(&now), of_insert(&later)), (ready, NewsSet::NONE));
        let tasks = [now, later];
        let (new, known) = (Inserted::New(TaskId(1)), Inserted::Exists(TaskId(1)));
        assert_eq!(of_inserted(&tasks, &[new.clone(), new.clone()]), ready);
        assert_eq!(of_inserted(&tasks, &[known, new]), NewsSet::NONE);
    }

    #[test]
    fn a_move_brings_what_it_frees_and_what_it_makes_ready() {
        use TaskState::{Failed, Running, Scheduled, Sensing, Success};
        let change = |from, to| Move::new(LeaseRef::new(TaskId(1), 1), from, to);
        assert_eq!(of_move(&change(Running, Success)), News::Capacity.into());
        assert_eq!(of_move(&change(Scheduled, Success)), News::Capacity.into(), "it may have kept slots");
        assert_eq!(of_move(&change(Success, Failed)), NewsSet::NONE);
        assert_eq!(of_move(&change(Success, Scheduled)), News::Ready.into());
        let mut keeps = change(Running, Sensing);
        keeps.keeps_slots = true;
        assert_eq!(of_move(&keeps), News::Capacity.into(), "its limits have room again");
        let mut stays = change(Sensing, Sensing);
        stays.keeps_slots = true;
        assert_eq!(of_move(&stays), NewsSet::NONE);
        let mut retry = change(Running, Scheduled);
        assert_eq!(of_move(&retry), NewsSet::from(News::Ready).and(News::Capacity));
        retry.due = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(of_move(&retry), News::Capacity.into());
        assert_eq!(of_moved(&[retry.clone(), stays], &[false, true]), NewsSet::NONE);
        assert_eq!(of_moved(&[retry], &[true]), News::Capacity.into());
    }
}
