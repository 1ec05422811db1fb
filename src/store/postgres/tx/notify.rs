//! `NOTIFY`: tells listening stores, as part of the transaction, what it changes.

use std::sync::Arc;

use super::super::error::Outcome;
use super::super::listen::{News, NewsSet};
use super::super::wire::{Statement, ask};
use super::{Db, PostgresBackend};
use crate::error::StoreResult;

const NOTIFY: &str = "SELECT pg_notify($1::text, $2::text)";

/// What others are told when the transaction commits: each once.
pub(super) struct Telling {
    channel: Option<Arc<str>>,
    told: NewsSet,
    /// Goes with the next statements.
    next: Option<News>,
}

impl Telling {
    /// Tells on this channel, or no one if it is `None`.
    pub(super) fn on(channel: Option<Arc<str>>) -> Self {
        Self { channel, told: NewsSet::default(), next: None }
    }

    /// Returns the `NOTIFY` that goes with the next statements, unless the transaction has sent it already.
    pub(super) fn take(&mut self) -> Option<Statement> {
        let (news, channel) = (self.next.take()?, self.channel.as_deref()?);
        if self.told.has(news) {
            return None;
        }
        self.told.add(news);
        Some(ask!(NOTIFY, channel, news.payload()))
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

    /// [`Self::write`], of which others are told if it asks the server anything.
    pub(super) fn tell<T>(
        &mut self,
        news: News,
        work: impl FnOnce(&mut Db<'w>) -> Outcome<T>,
    ) -> StoreResult<T> {
        self.db.telling.next = Some(news);
        let done = self.write(work);
        self.db.telling.next = None;
        done
    }
}
