//! The commit that goes along with the last statement of a transaction.
//!
//! It is sent before the answer to that statement is known. So the statement itself must fail wherever its verb would
//! have to go on: then the server undoes everything, and the verb is run again without.

use tokio_postgres::Error as PgError;
use tokio_postgres::error::SqlState;

use super::super::error::{Fault, Outcome};
use super::super::tick_lock;
use super::super::wire::{Answer, Flush, Statement, ask};
use super::{Db, PostgresBackend};
use crate::error::StoreError;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// No commit goes along.
    Never,
    /// One may, if its caller says that a verb is the last.
    Allowed,
    /// It may with the next statement that changes something.
    Next,
    /// It did, and the transaction is committed.
    Done,
    /// It did, and the transaction is undone, because the verb had to continue.
    TooSoon,
    /// A whole tick was sent ahead, and is undone, because there was something to decide.
    NotAhead,
}

impl PostgresBackend<'_> {
    /// Allows that a commit goes along.
    pub(in crate::store::postgres) fn commits_along(mut self) -> Self {
        self.db.last = Last::Allowed;
        self
    }

    /// Returns true if it did, and the transaction is committed.
    pub(in crate::store::postgres) fn is_over(&self) -> bool {
        self.db.last == Last::Done
    }

    /// Returns true if it did, and the transaction is undone because its verb had to continue.
    pub(in crate::store::postgres) fn was_too_soon(&self) -> bool {
        self.db.last == Last::TooSoon
    }

    /// Returns true if a tick was sent ahead, and is undone because there was something to decide.
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
    /// Returns true if the commit may go along with what is sent next: nothing else is left to be done before it.
    pub(super) fn is_last(&self) -> bool {
        self.last == Last::Next && self.unnumbered == 0 && self.old_names == 0 && !self.repeats
    }

    /// Runs the last statements of the transaction, and commits it along with them.
    pub(super) fn all_last<const N: usize>(&mut self, statements: [Statement; N]) -> Outcome<[Answer; N]> {
        let flush = if self.reaches.holds_lock { Flush::Follows } else { Flush::Itself };
        let sent = self.all_and(statements, |wire, batch, touch| wire.send_last(batch, touch, flush));
        self.ended(sent, Last::TooSoon)
    }

    /// Runs a whole tick, commits it, and runs the last of the statements behind that. Does not return its answer.
    pub(super) fn all_ahead<const N: usize>(
        &mut self,
        statements: [Statement; N],
        flush: Statement,
    ) -> Outcome<[Answer; N]> {
        let mut batch = vec![ask!(tick_lock::ENTER)];
        batch.extend(statements);
        batch.push(flush);
        // It waits for the lock of ticks alone.
        let sent = self.wire.send_last(batch, self.touch, Flush::LastStatement).map_err(Fault::from);
        let sent = sent.and_then(|mut answers| {
            answers.drain(..1.min(answers.len()));
            answers.truncate(N);
            answers.try_into().map_err(|answers: Vec<Answer>| {
                Fault::Damaged(format!("{} statements of {N} were answered", answers.len()))
            })
        });
        self.ended(sent, Last::NotAhead)
    }

    /// Notes how a transaction ended with what was sent last. `refused`: what it means that a statement refused to be that.
    fn ended<T>(&mut self, sent: Outcome<T>, refused: Last) -> Outcome<T> {
        (self.reaches.holds_lock, self.hurries) = (false, false);
        self.last = if sent.is_ok() { Last::Done } else { Last::Never };
        sent.map_err(|fault| match fault {
            Fault::Server(error) if is_refused(&error) => {
                self.last = refused;
                let text = "a verb that was to be the last of its transaction has to go on: call again";
                Fault::Server(StoreError::again(text).with_source(error))
            }
            fault => fault,
        })
    }

    /// [`Self::one`], or [`Self::all_last`] if this may be the last one.
    pub(super) fn one_or_last(&mut self, is_last: bool, statement: Statement) -> Outcome<Answer> {
        if !is_last {
            return self.one(statement);
        }
        let [answer] = self.all_last([statement])?;
        Ok(answer)
    }
}

/// Returns true if a statement failed because its verb has to continue: all of them divide by zero then.
fn is_refused(error: &StoreError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<PgError>());
    source.and_then(PgError::code) == Some(&SqlState::DIVISION_BY_ZERO)
}
