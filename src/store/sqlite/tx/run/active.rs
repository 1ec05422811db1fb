//! Queries for active runs. See [`crate::run::index`] for the ranges.

use std::collections::BTreeSet;

use rusqlite::Row;

use super::super::super::error::Outcome;
use super::super::{Db, clamp, row};
use super::statements::{self, Both};
use crate::id::Namespace;
use crate::run::{ActiveQuery, RunKey, RunPlace, RunRecord};
use crate::store::read_counter;
use crate::store::sql::records;
use crate::store::sql::row::code;

/// The fewest runs that a page with filters reads in one statement.
const LEAST: usize = 256;

/// What a query returns for each run.
pub(super) trait Answer: Sized {
    const ACTIVE: Both;
    const PAGE: Both;

    /// Reads a run from a row. The place is in columns 1 and 2.
    fn read(row: &Row<'_>, namespace: Namespace) -> Outcome<Self>;

    fn sort(found: &mut [Self]);

    fn at(db: &mut Db<'_>, places: Vec<RunPlace>) -> Outcome<Vec<Self>>;
}

impl Answer for RunRecord {
    const ACTIVE: Both = statements::ACTIVE;
    const PAGE: Both = statements::PAGE;

    fn read(row: &Row<'_>, namespace: Namespace) -> Outcome<Self> {
        records::run(row, namespace)
    }

    fn sort(found: &mut [Self]) {
        found.sort_unstable_by(|a, b| (a.start, &a.key).cmp(&(b.start, &b.key)));
    }

    fn at(db: &mut Db<'_>, places: Vec<RunPlace>) -> Outcome<Vec<Self>> {
        let keys: Vec<RunKey> = places.into_iter().map(|place| place.key).collect();
        Ok(db.runs(&keys)?.into_iter().flatten().collect())
    }
}

impl Answer for RunPlace {
    const ACTIVE: Both = statements::ACTIVE_PLACES;
    const PAGE: Both = statements::PAGE_PLACES;

    fn read(row: &Row<'_>, namespace: Namespace) -> Outcome<Self> {
        records::run_place(row, namespace)
    }

    fn sort(found: &mut [Self]) {
        found.sort_unstable();
    }

    fn at(_: &mut Db<'_>, places: Vec<RunPlace>) -> Outcome<Vec<Self>> {
        Ok(places)
    }
}

/// A query in the form that its statements need.
struct Question<'q> {
    query: &'q ActiveQuery,
    names: Option<String>,
    begin: i64,
    end: i64,
}

impl<'q> Question<'q> {
    fn of(query: &'q ActiveQuery) -> Outcome<Self> {
        let names = match query.namespaces.is_empty() {
            true => None,
            false => Some(serde_json::to_string(&query.namespaces.iter().collect::<BTreeSet<_>>())?),
        };
        Ok(Self { query, names, begin: query.begin.as_micros(), end: query.end.as_micros() })
    }

    fn choose(&self, statements: &Both) -> &'static str {
        if self.names.is_some() { statements.named } else { statements.all }
    }

    /// Returns true if the query wants the run in this row. Only a run that starts in the window can fail the
    /// rule, and only if it stops before it starts.
    fn wants(&self, row: &Row<'_>) -> Outcome<bool> {
        if row.get::<_, Option<i64>>(3)?.is_some_and(|stop| stop < self.begin) {
            return Ok(false);
        }
        if self.query.asks_for_any() {
            return Ok(true);
        }
        let (workflow, user) = (row.get_ref(5)?.as_str_or_null()?, row.get_ref(9)?.as_str_or_null()?);
        Ok(self.query.asks_for(code(row, 4)?, workflow, code(row, 6)?, user))
    }
}

/// Passes rows to `take`. Reads the namespace's name once for consecutive rows of one namespace.
fn each(
    rows: &mut rusqlite::Rows<'_>,
    question: &Question<'_>,
    mut take: impl FnMut(&Row<'_>, &Namespace) -> Outcome<()>,
) -> Outcome<usize> {
    let mut last: Option<Namespace> = None;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        if !question.wants(row)? {
            continue;
        }
        let name = row.get_ref(0)?.as_str()?;
        let namespace = match last.take() {
            Some(last) if last.as_str() == name => last,
            _ => Namespace::new(name)?,
        };
        take(row, &namespace)?;
        last = Some(namespace);
    }
    read_counter::rows(count);
    Ok(count)
}

impl Db<'_> {
    /// Returns the whole result, or a page of it.
    pub(super) fn active<A: Answer>(&mut self, query: &ActiveQuery) -> Outcome<Vec<A>> {
        if query.is_empty() || query.limit == Some(0) {
            return Ok(Vec::new());
        }
        let question = Question::of(query)?;
        if query.limit.is_some() || query.after.is_some() {
            return self.page(&question);
        }
        self.count_seeks(&question)?;
        let statement = if query.asks_for_any() { &A::ACTIVE } else { &statements::ACTIVE };
        let mut statement = self.prepare(question.choose(statement))?;
        let parameters = (&question.names, question.begin, question.end);
        let mut rows = statement.query(parameters)?;
        let mut found = Vec::new();
        each(&mut rows, &question, |row, namespace| {
            found.push(A::read(row, namespace.clone())?);
            Ok(())
        })?;
        A::sort(&mut found);
        Ok(found)
    }

    fn count_seeks(&self, question: &Question<'_>) -> Outcome<()> {
        if read_counter::is_on() {
            let mut statement = self.prepare(question.choose(&statements::COUNT_SEARCHES))?;
            let seeks: i64 = statement.query_row((&question.names, question.begin), |row| row.get(0))?;
            read_counter::seeks(usize::try_from(seeks).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    fn page<A: Answer>(&mut self, question: &Question<'_>) -> Outcome<Vec<A>> {
        let query = question.query;
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut found = Vec::new();
        if query.after.as_ref().is_none_or(|after| after.start < query.begin) {
            found = self.surrounding(question, limit)?;
        }
        let mut after = query.after.clone().filter(|after| after.start >= query.begin);
        while found.len() < limit {
            let missing = limit - found.len();
            let want = if query.asks_for_any() { missing } else { missing.max(LEAST) };
            let Some(last) = self.started(question, after.as_ref(), want, &mut found)? else { break };
            after = Some(last);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Returns runs that started before the window and come after the query's place. Reads the places first,
    /// then as many records as there is room for.
    fn surrounding<A: Answer>(&mut self, question: &Question<'_>, limit: usize) -> Outcome<Vec<A>> {
        self.count_seeks(question)?;
        let any = question.query.asks_for_any();
        let statement = if any { &statements::SURROUNDING_PLACES } else { &statements::SURROUNDING };
        let mut statement = self.prepare(question.choose(statement))?;
        let mut rows = statement.query((&question.names, question.begin))?;
        let after = question.query.after.as_ref();
        let from = after.map_or(i64::MIN, |after| after.start.as_micros());
        let mut places: Vec<RunPlace> = Vec::new();
        each(&mut rows, question, |row, namespace| {
            if row.get::<_, i64>(2)? >= from {
                places.push(RunPlace::read(row, namespace.clone())?);
            }
            Ok(())
        })?;
        places.retain(|place| after.is_none_or(|after| place > after));
        places.sort_unstable();
        places.truncate(limit);
        drop(rows);
        A::at(self, places)
    }

    /// Adds up to `want` runs that start in the window after a place, except those that the query excludes.
    /// Returns where to continue, if there may be more.
    fn started<A: Answer>(
        &mut self,
        question: &Question<'_>,
        after: Option<&RunPlace>,
        want: usize,
        found: &mut Vec<A>,
    ) -> Outcome<Option<RunPlace>> {
        let (from, name, id) = match after {
            Some(after) => (after.start.as_micros(), after.key.namespace.as_str(), after.key.id.as_str()),
            None => (question.begin, "", ""),
        };
        let statement = if question.query.asks_for_any() { &A::PAGE } else { &statements::PAGE };
        let mut statement = self.prepare(question.choose(statement))?;
        let mut rows = statement.query((&question.names, from, question.end, name, id, clamp(want)))?;
        let before = found.len();
        let (mut last, mut count) = (None, 0);
        while let Some(row) = rows.next()? {
            count += 1;
            let namespace: Namespace = row::name(row, 0)?;
            if question.wants(row)? {
                found.push(A::read(row, namespace.clone())?);
            }
            if count == want {
                last = Some(RunPlace::read(row, namespace)?);
            }
        }
        read_counter::rows(count);
        A::sort(&mut found[before..]);
        Ok(last)
    }

    /// Returns the number of runs in the result.
    pub(super) fn count_active(&mut self, query: &ActiveQuery) -> Outcome<u64> {
        if query.is_empty() || query.limit.is_some() || query.after.is_some() {
            return Ok(self.active::<RunPlace>(query)?.len() as u64);
        }
        let question = Question::of(query)?;
        let statement = if query.asks_for_any() { &statements::ACTIVE_PLACES } else { &statements::ACTIVE };
        let mut statement = self.prepare(question.choose(statement))?;
        let parameters = (&question.names, question.begin, question.end);
        let mut rows = statement.query(parameters)?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += u64::from(question.wants(row)?);
        }
        Ok(count)
    }
}
