//! The news that a transaction brings. If it announces them itself, a `NOTIFY` is sent along with its statements.

use super::super::error::Outcome;
use super::super::news::{Channel, News, NewsSet};
use super::super::wire::{Statement, ask};
use super::{Db, PostgresBackend};
use crate::error::{StoreErrorKind, StoreResult};
use crate::store::Inserted;
use crate::store::contract::{Change, Move};
use crate::task::{TaskInsert, TaskState};

const NOTIFY: &str = "SELECT pg_notify($1::text, $2::text)";

/// The news to announce when the transaction commits, each once.
pub(super) struct Announcements {
    /// The channel if the transaction itself announces its news.
    channel: Option<Channel>,
    announced: NewsSet,
    /// Sent along with the next statements.
    next: NewsSet,
    /// The news that the transaction brought.
    brought: NewsSet,
}

impl Announcements {
    /// Announces on this channel. With `None`, leaves that to others.
    pub(super) fn on(channel: Option<Channel>) -> Self {
        let none = NewsSet::NONE;
        Self { channel, announced: none, next: none, brought: none }
    }

    /// Returns the `NOTIFY` for the next statements, unless the transaction has sent it already. A host may have
    /// rolled back to a savepoint since, so in a host's transaction it is sent each time. The server drops duplicates.
    pub(super) fn take(&mut self) -> Option<Statement> {
        let next = std::mem::take(&mut self.next);
        let is_host = self.channel.as_ref().is_some_and(|channel| channel.from.is_none());
        let news = if is_host { next } else { next.without(self.announced) };
        let channel = self.channel.as_ref().filter(|_| !news.is_empty())?;
        self.announced = self.announced.and(news);
        Some(ask!(NOTIFY, &*channel.name, channel.payload(news)))
    }
}

impl Announcements {
    /// Notes whether the statements appended to the feed. A `NOTIFY` that was sent along announced this before the
    /// result was known.
    pub(super) fn fed(&mut self, is_fed: bool) {
        if is_fed {
            self.brought = self.brought.and(News::Events);
        }
    }

    /// Notes that the tick of this transaction took all capacity that the transaction had given back. So whoever waits
    /// for capacity would look in vain.
    pub(super) fn freed_nothing(&mut self) {
        self.brought = self.brought.without(News::Capacity.into());
    }
}

impl<'w> PostgresBackend<'w> {
    /// Sends no `NOTIFY` from now on, for a host that prepares its transaction for a two-phase commit. The server
    /// refuses that after a `NOTIFY`. Others then see the change at their next tick.
    #[must_use]
    pub(in crate::store::postgres) fn without_notify(mut self) -> Self {
        self.db.announcements.channel = None;
        self
    }

    /// Returns the news that its commit brings.
    pub(in crate::store::postgres) fn news(&self) -> NewsSet {
        self.db.announcements.brought
    }

    /// Like [`Self::write`], and announces the news to others if anything is sent to the server.
    pub(super) fn announce<T>(
        &mut self,
        news: News,
        work: impl FnOnce(&mut Db<'w>) -> Outcome<T>,
    ) -> StoreResult<T> {
        self.announce_of(news.into(), work, |_| news.into())
    }

    /// Like [`Self::write`] for work that may bring these news. Its result says which it brought. A `NOTIFY` in the
    /// transaction is sent along, before the result is known.
    pub(super) fn announce_of<T>(
        &mut self,
        may_bring: NewsSet,
        work: impl FnOnce(&mut Db<'w>) -> Outcome<T>,
        brought: impl FnOnce(&T) -> NewsSet,
    ) -> StoreResult<T> {
        self.db.announcements.next = may_bring;
        let done = self.write(work);
        // Nothing was sent to the server.
        let is_left = !may_bring.is_empty() && self.db.announcements.next == may_bring;
        self.db.announcements.next = NewsSet::NONE;
        if let (Ok(answer), false) = (&done, is_left) {
            self.db.announcements.brought = self.db.announcements.brought.and(brought(answer));
        }
        // A commit that was sent along may have taken effect.
        if let Err(error) = &done
            && error.kind() == StoreErrorKind::Indeterminate
        {
            self.db.announcements.brought = self.db.announcements.brought.and(may_bring);
        }
        done
    }
}

/// Returns the news of a new task. It brings none before it is due.
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

/// Returns the news of a task leaving this waiting state. If it was ready, slots that were kept free for it are
/// available.
pub(super) fn of_leaving(from: TaskState) -> NewsSet {
    if from == TaskState::Scheduled { News::Capacity.into() } else { NewsSet::NONE }
}

/// Returns the news of a change to a waiting task. If it was ready, slots were kept free for it.
pub(super) fn of_change(change: &Change) -> NewsSet {
    of_insert(&change.to).and(of_leaving(change.from))
}

/// Returns the news of a move: slots if the task may have held some, and the task itself if it is ready.
pub(super) fn of_move(change: &Move) -> NewsSet {
    let is_ready = change.to == TaskState::Scheduled && change.due.is_none();
    // A lease counts against limits even if its slots are kept.
    let gives_back = match change.from {
        TaskState::Queued | TaskState::Running => true,
        // Ready tasks may have kept slots, too.
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
    let is_fed = (change.to.is_end() && change.from != TaskState::UpForRetry)
        || (was_sensing && matches!(change.to, TaskState::Scheduled | TaskState::UpForRetry));
    if is_fed { News::Events.into() } else { NewsSet::NONE }
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
