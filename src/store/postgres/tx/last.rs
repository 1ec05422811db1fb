//! The commit that is sent along with the last statement of a transaction.
//!
//! It is sent before the result of that statement is known. So the statement itself must fail if its verb
//! would have to continue. The server then rolls everything back, and the verb runs again with a separate
//! commit.

use tokio_postgres::Error as PgError;
use tokio_postgres::error::{DbError, SqlState};

use super::super::error::{Fault, Outcome};
use super::super::wire::{Answer, Flush, Statement};
use super::deferred::Deferred;
use super::{Db, PostgresBackend};
use crate::error::StoreError;

/// Whether a commit is sent along with the last statement, and its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// No commit is sent along.
    Never,
    /// A commit may be sent along, if the caller says that a verb is the last. Ends may be deferred.
    Allowed,
    /// A commit may be sent along with the next statement that changes something.
    Next,
    /// A commit was sent along, and the transaction is committed.
    Done,
    /// A commit was sent along or an end was deferred, but the transaction was rolled back, because the verb had to
    /// continue.
    TooSoon,
    /// A whole tick was sent ahead, but was rolled back, because there was something to decide.
    NotAhead,
}

impl PostgresBackend<'_> {
    /// Allows a commit to be sent along.
    pub(in crate::store::postgres) fn commits_along(mut self) -> Self {
        self.db.last = Last::Allowed;
        self
    }

    /// Returns true if a commit was sent along, and the transaction is committed.
    pub(in crate::store::postgres) fn is_over(&self) -> bool {
        self.db.last == Last::Done
    }

    /// Returns true if a commit was sent along or an end was deferred, but the transaction was rolled back because
    /// the verb had to continue.
    pub(in crate::store::postgres) fn was_too_soon(&self) -> bool {
        self.db.last == Last::TooSoon
    }

    /// Returns true if a tick was sent ahead, but was rolled back because there was something to decide.
    pub(in crate::store::postgres) fn was_not_ahead(&self) -> bool {
        self.db.last == Last::NotAhead
    }

    pub(super) fn say_last(&mut self) {
        if self.db.last == Last::Allowed {
            self.db.last = Last::Next;
        }
    }
}

impl Db<'_> {
    /// Returns true if the commit may be sent along with the next statements, because nothing else comes
    /// before it.
    pub(super) fn is_last(&self) -> bool {
        self.last == Last::Next && self.may_be_last()
    }

    /// Returns true if nothing else comes before the commit.
    pub(super) fn may_be_last(&self) -> bool {
        self.unnumbered == 0 && self.old_names == 0 && !self.repeats
    }

    /// Runs the last statements of the transaction, and commits it along with them.
    pub(super) fn all_last<const N: usize>(&mut self, statements: [Statement; N]) -> Outcome<[Answer; N]> {
        let flush = if self.reaches.holds_lock { Flush::Follows } else { Flush::Itself };
        let sent = self.all_and(statements, |wire, batch, touch| wire.send_last(batch, touch, flush));
        self.ended(sent, Last::TooSoon)
    }

    /// Runs a whole tick, commits it, and then runs `flush`, whose result it does not return. The tick itself makes
    /// the ends that were deferred.
    pub(super) fn one_ahead(&mut self, mut tick: Statement, flush: Statement) -> Outcome<Answer> {
        let ends_some = self.deferred.is_some();
        let Deferred { ends, announces } = *self.deferred.take().unwrap_or_default();
        ends.add_to(&mut tick.params);
        let before = usize::from(announces.is_some());
        let batch = announces.into_iter().chain([tick, flush]).collect();
        // Once the ends are made, it waits only for the lock of ticks.
        let sent = self.wire.send_last(batch, self.touch, Flush::LastStatement);
        let sent = sent.map(|answers| answers.into_iter().nth(before).unwrap_or_default());
        let sent = match sent.map_err(Fault::from) {
            Err(Fault::Server(error)) if ends_some && !is_of_tick(&error) => {
                self.sent_deferred(Err(Fault::Server(error)))
            }
            sent => sent,
        };
        self.ended(sent, Last::NotAhead)
    }

    /// Notes how a transaction ended with its last statements. `refused` is the state to set if a statement
    /// refused to be the last.
    pub(super) fn ended<T>(&mut self, sent: Outcome<T>, refused: Last) -> Outcome<T> {
        // What was deferred had to go on.
        if self.last == Last::TooSoon {
            return sent;
        }
        (self.reaches.holds_lock, self.hurries) = (false, false);
        self.last = if sent.is_ok() { Last::Done } else { Last::Never };
        sent.map_err(|fault| match fault {
            Fault::Server(error) if is_refused(&error) => {
                self.last = refused;
                let text = "what was sent along with other statements has to go on: call again";
                Fault::Server(StoreError::again(text).with_source(error))
            }
            fault => fault,
        })
    }

    /// Calls [`Self::all_last`] if this statement may be the last, and [`Self::one`] otherwise.
    pub(super) fn one_or_last(&mut self, is_last: bool, statement: Statement) -> Outcome<Answer> {
        if !is_last {
            return self.one(statement);
        }
        let [answer] = self.all_last([statement])?;
        Ok(answer)
    }
}

/// Returns true if a statement failed because its verb has to continue. Statements divide by zero in that case. One
/// that expects keys to be new may also find that another transaction inserted one of them after it had looked.
pub(super) fn is_refused(error: &StoreError) -> bool {
    let error = of_server(error).and_then(PgError::as_db_error);
    error.is_some_and(|error| match error.code() {
        code if *code == SqlState::DIVISION_BY_ZERO => true,
        code => *code == SqlState::UNIQUE_VIOLATION && error.constraint() == Some("task_key"),
    })
}

/// Returns true if a tick ahead refused to be one. It may also have refused because of an end that it was to make.
fn is_of_tick(error: &StoreError) -> bool {
    let context =
        of_server(error).and_then(PgError::as_db_error).and_then(DbError::where_).unwrap_or_default();
    is_refused(error) && !["_end_one(", "_end_many("].iter().any(|end| context.contains(end))
}

fn of_server(error: &StoreError) -> Option<&PgError> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}
