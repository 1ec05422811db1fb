//! The store's operations on runs, and their fork-node index: see [`crate::run::index`].

use std::collections::HashMap;

use rusqlite::{CachedStatement, OptionalExtension, Row, params};

use super::super::error::{Fault, Outcome};
use super::code::Code;
use super::lease::moved;
use super::{Db, SqliteTx, row};
use crate::error::StoreResult;
use crate::id::Namespace;
use crate::run::index::{self, Point};
use crate::run::{ActiveQuery, RunClose, RunKey, RunRecord};
use crate::store::{Moved, RunTx};
use crate::time::{micros, truncate};

/// Bits of a run's rowid that count the runs of its namespace.
const SEQ_BITS: u32 = 40;

pub(super) const NAMESPACE: &str = "SELECT no, last_run FROM sm_namespace WHERE name = ?1";
const NEW_NAMESPACE: &str = "INSERT INTO sm_namespace (name) VALUES (?1)";
const LAST_RUN: &str = "UPDATE sm_namespace SET last_run = ?2 WHERE no = ?1";
const PUT: &str = "INSERT INTO sm_run (no, ns, node, start, stop, status, method, id, workflow, user, attributes) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
     ON CONFLICT (ns, id) DO UPDATE SET node = excluded.node, start = excluded.start, stop = excluded.stop, \
     status = excluded.status, method = excluded.method, workflow = excluded.workflow, user = excluded.user, \
     attributes = excluded.attributes";
pub(super) const START_IF_OPEN: &str =
    "SELECT no, start FROM sm_run WHERE ns = ?1 AND id = ?2 AND stop IS NULL";
pub(super) const CLOSE: &str = "UPDATE sm_run SET stop = ?2, node = ?3, status = ?4 WHERE no = ?1";
pub(super) const DELETE: &str = "DELETE FROM sm_run WHERE ns = ?1 AND id = ?2";
pub(super) const RUN: &str = "SELECT ?3, start, stop, status, method, id, workflow, user, attributes FROM sm_run \
     WHERE ns = ?1 AND id = ?2";

macro_rules! active {
    ($namespaces:literal) => {
        concat!(
            "WITH asked (no, name, low, high) AS MATERIALIZED (SELECT no, name, \
               (SELECT node FROM sm_run WHERE ns = sm_namespace.no AND node IS NOT NULL ORDER BY node LIMIT 1), \
               (SELECT node FROM sm_run WHERE ns = sm_namespace.no AND node IS NOT NULL ORDER BY node DESC LIMIT 1) \
             FROM sm_namespace WHERE ",
            $namespaces,
            ") SELECT name, start, stop, status, method, sm_run.id, workflow, user, attributes \
             FROM asked CROSS JOIN sm_run INDEXED BY sm_run_open \
             WHERE ns = asked.no AND stop IS NULL AND start < ?3 \
             UNION ALL \
             SELECT name, start, stop, status, method, sm_run.id, workflow, user, attributes \
             FROM asked CROSS JOIN sm_run INDEXED BY sm_run_node_start \
             WHERE ns = asked.no AND node BETWEEN ?2 AND ?3 - 1 AND start < ?3 AND stop >= ?2 \
             UNION ALL \
             SELECT name, start, stop, status, method, sm_run.id, workflow, user, attributes \
             FROM asked CROSS JOIN json_each(?4) fork CROSS JOIN sm_run INDEXED BY sm_run_node_stop \
             WHERE fork.value BETWEEN low AND high \
               AND ns = asked.no AND node IS NOT NULL AND node = fork.value AND stop >= ?2 AND start < ?3 \
             UNION ALL \
             SELECT name, start, stop, status, method, sm_run.id, workflow, user, attributes \
             FROM asked CROSS JOIN json_each(?5) fork CROSS JOIN sm_run INDEXED BY sm_run_node_start \
             WHERE fork.value BETWEEN low AND high \
               AND ns = asked.no AND node IS NOT NULL AND node = fork.value AND start < ?3 AND stop >= ?2"
        )
    };
}

pub(super) const ACTIVE: &str = active!("name IN (SELECT value FROM json_each(?1))");
pub(super) const ACTIVE_IN_ALL: &str = active!("?1 IS NULL");

/// A point in the order of its unsigned number, as a signed one.
fn signed(point: Point) -> i64 {
    (point ^ (1 << 63)).cast_signed()
}

/// Where a run is filed; none while it is open.
fn node(start: chrono::DateTime<chrono::Utc>, stop: Option<chrono::DateTime<chrono::Utc>>) -> Option<i64> {
    stop.map(|stop| signed(index::node(index::point(start), index::point(stop))))
}

/// A run whose namespace is in the first column.
fn run(row: &Row<'_>, namespace: Namespace) -> Outcome<RunRecord> {
    Ok(RunRecord {
        key: RunKey { namespace, id: row::name(row, 5)? },
        start: row::instant(row, 1)?,
        stop: row::maybe_instant(row, 2)?,
        status: row::code(row, 3)?,
        method: row::code(row, 4)?,
        workflow: row::maybe_name(row, 6)?,
        user: row.get(7)?,
        attributes: row.get(8)?,
    })
}

/// The numbers of the namespaces that a call names.
struct Namespaces<'k> {
    find: CachedStatement<'k>,
    known: HashMap<Namespace, Option<Numbers>>,
}

#[derive(Debug, Clone, Copy)]
struct Numbers {
    no: i64,
    last_run: i64,
}

impl<'k> Namespaces<'k> {
    fn of(db: &Db<'k>) -> Outcome<Self> {
        Ok(Self { find: db.prepare(NAMESPACE)?, known: HashMap::new() })
    }

    fn find(&mut self, name: &Namespace) -> Outcome<Option<Numbers>> {
        if let Some(numbers) = self.known.get(name) {
            return Ok(*numbers);
        }
        let numbers = self
            .find
            .query_row([name.as_str()], |row| Ok(Numbers { no: row.get(0)?, last_run: row.get(1)? }))
            .optional()?;
        self.known.insert(name.clone(), numbers);
        Ok(numbers)
    }

    fn find_or_create(&mut self, db: &Db<'_>, name: &Namespace) -> Outcome<Numbers> {
        if let Some(numbers) = self.find(name)? {
            return Ok(numbers);
        }
        db.prepare(NEW_NAMESPACE)?.execute([name.as_str()])?;
        Ok(Numbers { no: db.conn.last_insert_rowid(), last_run: 0 })
    }
}

impl Db<'_> {
    fn put_runs(&mut self, runs: &[RunRecord]) -> Outcome<()> {
        let mut namespaces = Namespaces::of(self)?;
        let mut put = self.prepare(PUT)?;
        let mut touched = HashMap::new();
        for run in runs {
            let mut numbers = namespaces.find_or_create(self, &run.key.namespace)?;
            if !(0..(1 << SEQ_BITS) - 1).contains(&numbers.last_run) {
                return Err(Fault::Damaged(format!(
                    "namespace {} counts its runs wrongly",
                    run.key.namespace
                )));
            }
            numbers.last_run += 1;
            let (start, stop) = (truncate(run.start), run.stop.map(truncate));
            put.execute(params![
                numbers.no << SEQ_BITS | numbers.last_run,
                numbers.no,
                node(start, stop),
                micros(start),
                stop.map(micros),
                run.status.code(),
                run.method.code(),
                run.key.id.as_str(),
                run.workflow.as_ref().map(|workflow| workflow.as_str()),
                run.user,
                run.attributes,
            ])?;
            touched.insert(numbers.no, numbers.last_run);
            namespaces.known.insert(run.key.namespace.clone(), Some(numbers));
        }
        let mut statement = self.prepare(LAST_RUN)?;
        for change in touched {
            statement.execute(change)?;
        }
        Ok(())
    }

    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> Outcome<Vec<Moved>> {
        let mut namespaces = Namespaces::of(self)?;
        let (mut find, mut close) = (self.prepare(START_IF_OPEN)?, self.prepare(CLOSE)?);
        let mut answers = Vec::with_capacity(closes.len());
        for order in closes {
            let Some(numbers) = namespaces.find(&order.key.namespace)? else {
                answers.push(Moved::No);
                continue;
            };
            let found: Option<(i64, i64)> = find
                .query_row((numbers.no, order.key.id.as_str()), |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let Some((no, start)) = found else {
                answers.push(Moved::No);
                continue;
            };
            let start = crate::time::from_micros(start);
            let stop = truncate(order.stop).max(start);
            let rows = close.execute((no, micros(stop), node(start, Some(stop)), order.status.code()))?;
            answers.push(moved(rows));
        }
        Ok(answers)
    }

    fn runs(&mut self, keys: &[RunKey]) -> Outcome<Vec<Option<RunRecord>>> {
        let mut namespaces = Namespaces::of(self)?;
        let mut statement = self.prepare(RUN)?;
        keys.iter()
            .map(|key| {
                let Some(numbers) = namespaces.find(&key.namespace)? else { return Ok(None) };
                let mut rows = statement.query((numbers.no, key.id.as_str(), key.namespace.as_str()))?;
                rows.next()?.map(|row| run(row, key.namespace.clone())).transpose()
            })
            .collect()
    }

    fn delete_runs(&mut self, keys: &[RunKey]) -> Outcome<usize> {
        let mut namespaces = Namespaces::of(self)?;
        let mut statement = self.prepare(DELETE)?;
        let mut deleted = 0;
        for key in keys {
            if let Some(numbers) = namespaces.find(&key.namespace)? {
                deleted += statement.execute((numbers.no, key.id.as_str()))?;
            }
        }
        Ok(deleted)
    }

    fn active_runs(&mut self, query: &ActiveQuery) -> Outcome<Vec<RunRecord>> {
        let (begin, end) = (truncate(query.begin), truncate(query.end));
        let Some(ranges) = index::ranges(index::point(begin), index::point(end), None) else {
            return Ok(Vec::new());
        };
        let forks =
            |points: Vec<Point>| serde_json::to_string(&points.into_iter().map(signed).collect::<Vec<_>>());
        let (left, right) = (forks(ranges.left)?, forks(ranges.right)?);
        let (sql, asked) = if query.namespaces.is_empty() {
            (ACTIVE_IN_ALL, None)
        } else {
            (ACTIVE, Some(serde_json::to_string(&query.namespaces)?))
        };
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query((asked, micros(begin), micros(end), left, right))?;
        let mut found: Vec<RunRecord> = Vec::new();
        while let Some(row) = rows.next()? {
            let name = row.get_ref(0)?.as_str()?;
            let namespace = match found.last() {
                Some(last) if last.key.namespace.as_str() == name => last.key.namespace.clone(),
                _ => Namespace::new(name)?,
            };
            found.push(run(row, namespace)?);
        }
        found.sort_unstable_by(|a, b| a.start.cmp(&b.start).then_with(|| a.key.cmp(&b.key)));
        Ok(found)
    }
}

impl RunTx for SqliteTx<'_> {
    fn put_runs(&mut self, runs: &[RunRecord]) -> StoreResult<()> {
        self.write(|db| db.put_runs(runs))
    }

    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<Moved>> {
        self.write(|db| db.close_runs_if_open(closes))
    }

    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>> {
        self.read(|db| db.runs(keys))
    }

    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize> {
        self.write(|db| db.delete_runs(keys))
    }

    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>> {
        self.read(|db| db.active_runs(query))
    }
}
