//! Ends of attempts that are sent with the next statements of their transaction.
//!
//! A plain end almost always finds its lease, so its result is known before the server has returned it. The statement
//! fails if that was wrong. The transaction is then rolled back, and runs again without deferring anything. Until the
//! statement is sent, the lease is not locked.

use super::super::error::{Fault, Outcome};
use super::super::wire::{Answer, Statement};
use super::attempt::Ends;
use super::last::{Last, is_refused};
use super::{Db, row};
use crate::error::StoreErrorKind;

#[derive(Debug, Default)]
pub(super) struct Deferred {
    pub(super) ends: Ends,
    /// A `NOTIFY` of the transaction that goes along.
    pub(super) announces: Option<Statement>,
}

impl Db<'_> {
    /// Returns true if ends may be sent later.
    pub(super) fn may_defer(&self) -> bool {
        self.last == Last::Allowed && self.deferred.is_none()
    }

    /// Sends these ends with the next statements.
    pub(super) fn defer(&mut self, ends: Ends) {
        let announces = self.announcements.take();
        self.deferred = Some(Box::new(Deferred { ends, announces }));
    }

    /// Puts what was deferred before a batch. Returns how many statements that is.
    pub(super) fn with_deferred(&mut self, batch: &mut Vec<Statement>) -> usize {
        let Some(deferred) = self.deferred.take() else { return 0 };
        let Deferred { ends, announces } = *deferred;
        let deferred = std::iter::once(ends.whole()).chain(announces);
        let before = batch.len();
        batch.splice(..0, deferred);
        batch.len() - before
    }

    /// Interprets the failure of a batch with what was deferred.
    pub(super) fn sent_deferred<T>(&mut self, sent: Outcome<T>) -> Outcome<T> {
        match &sent {
            Err(Fault::Server(error)) if is_refused(error) => return self.ended(sent, Last::TooSoon),
            // The commit may have gone along. Then it may have brought events.
            Err(Fault::Server(error)) if error.kind() == StoreErrorKind::Indeterminate => {
                self.announcements.fed(true);
            }
            _ => {}
        }
        sent
    }

    /// Takes the results of what was deferred from those of a batch.
    pub(super) fn take_deferred(&mut self, deferred: usize, answers: &mut Vec<Answer>) -> Outcome<()> {
        let Some(ends) = answers.drain(..deferred.min(answers.len())).next() else { return Ok(()) };
        for end in &ends {
            let is_fed = row::value(end, 2)?;
            self.announcements.fed(is_fed);
        }
        Ok(())
    }
}
