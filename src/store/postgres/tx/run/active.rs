//! Queries for active runs. See [`crate::run::index`] for the ranges.

use std::collections::BTreeSet;

use tokio_postgres::Row;

use super::super::super::digest::Digest;
use super::super::super::error::Outcome;
use super::super::super::text::escape;
use super::super::super::wire::{Statement, ask};
use super::super::{Db, clamp, first, row};
use super::statements::{self, Both};
use crate::id::Namespace;
use crate::run::{ActiveQuery, RunPlace, RunRecord};
use crate::store::read_counter;
use crate::store::sql::codes::Code;
use crate::store::sql::records;

/// What a query returns for each run.
pub(super) trait Answer: Sized {
    const ALL: Both;
    const PAGE: Both;

    /// The place is in the columns 1 and 2.
    fn read(row: &Row, namespace: Namespace) -> Outcome<Self>;

    fn sort(found: &mut [Self]);
}

impl Answer for RunRecord {
    const ALL: Both = statements::ACTIVE;
    const PAGE: Both = statements::PAGE;

    fn read(row: &Row, namespace: Namespace) -> Outcome<Self> {
        records::run(row, namespace)
    }

    fn sort(found: &mut [Self]) {
        found.sort_unstable_by(|a, b| (a.start, &a.key).cmp(&(b.start, &b.key)));
    }
}

impl Answer for RunPlace {
    const ALL: Both = statements::ACTIVE_PLACES;
    const PAGE: Both = statements::PAGE_PLACES;

    fn read(row: &Row, namespace: Namespace) -> Outcome<Self> {
        records::run_place(row, namespace)
    }

    fn sort(found: &mut [Self]) {
        found.sort_unstable();
    }
}

/// Returns one of the statements with the values of this query.
fn question(query: &ActiveQuery, statements: &Both) -> Statement {
    let sql = if query.asks_for_any() { statements.any } else { statements.filtered };
    let namespaces: BTreeSet<&str> = query.namespaces.iter().map(Namespace::as_str).collect();
    let (from, name, id) = match &query.after {
        Some(after) => (after.start.as_micros(), after.key.namespace.as_str(), after.key.id.as_str()),
        None => (i64::MIN, "", ""),
    };
    ask!(
        sql,
        namespaces.into_iter().map(Digest::of).collect::<Vec<Digest>>(),
        query.begin.as_micros(),
        query.end.as_micros(),
        from,
        name,
        id,
        clamp(query.limit.unwrap_or(usize::MAX)),
        query.statuses.iter().map(|status| status.code()).collect::<Vec<i64>>(),
        query.workflows.iter().map(ToString::to_string).collect::<Vec<String>>(),
        query.methods.iter().map(|method| method.code()).collect::<Vec<i64>>(),
        query.users.iter().map(|user| escape(user).into_owned()).collect::<Vec<String>>(),
    )
}

impl Db<'_> {
    /// Returns the whole result, or a page of it.
    pub(super) fn active<A: Answer>(&mut self, query: &ActiveQuery) -> Outcome<Vec<A>> {
        if query.is_empty() || query.limit == Some(0) {
            return Ok(Vec::new());
        }
        if read_counter::is_on() {
            let rows = self.one(question(
                query,
                &Both { any: statements::COUNT_SEARCHES, filtered: statements::COUNT_SEARCHES },
            ))?;
            read_counter::seeks(row::whole(first(&rows)?, 0)?);
        }
        let statements = if query.limit.is_some() { &A::PAGE } else { &A::ALL };
        let rows = self.one(question(query, statements))?;
        read_counter::rows(rows.len());
        let mut found = Vec::with_capacity(rows.len());
        let mut last: Option<Namespace> = None;
        for row in &rows {
            let name: &str = row::value(row, 0)?;
            let namespace = match last.take() {
                Some(last) if last.as_str() == name => last,
                _ => name.parse()?,
            };
            found.push(A::read(row, namespace.clone())?);
            last = Some(namespace);
        }
        A::sort(&mut found);
        Ok(found)
    }

    /// Returns how many runs the result has.
    pub(super) fn count_active(&mut self, query: &ActiveQuery) -> Outcome<u64> {
        if query.is_empty() || query.limit.is_some() {
            return Ok(self.active::<RunPlace>(query)?.len() as u64);
        }
        let rows = self.one(question(query, &statements::COUNT_ACTIVE))?;
        row::number(first(&rows)?, 0)
    }
}
