//! Ends of attempts that are sent with the next statements of their transaction.
//!
//! A plain end almost always finds its lease, so its result is known before the server has returned it. The statement
//! fails if that was wrong. The transaction is then rolled back, and runs again without deferring anything.

use super::super::error::Outcome;
use super::super::wire::{Answer, Statement};
use super::attempt::Ends;
use super::last::Last;
use super::{Db, row};

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
        self.deferred = Some(Deferred { ends, announces });
    }

    /// Puts what was deferred before a batch. Returns how many statements that is.
    pub(super) fn with_deferred(&mut self, batch: &mut Vec<Statement>) -> usize {
        let Some(Deferred { ends, announces }) = self.deferred.take() else { return 0 };
        let deferred = std::iter::once(ends.whole()).chain(announces);
        let before = batch.len();
        batch.splice(..0, deferred);
        batch.len() - before
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
