//! The store's operations on runs.

mod active;
pub(super) mod statements;

use std::collections::HashMap;

use rusqlite::{CachedStatement, OptionalExtension, params};

use super::super::error::Outcome;
use super::codes::Code;
use super::{Db, SqliteBackend, clamp, row};
use crate::error::StoreResult;
use crate::id::Namespace;
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::store::contract::RunTx;
use crate::store::sql::records;
use crate::store::sql::run_columns::{Before, bits_above, level, node, nodes, suspensions};
use crate::time::Timestamp;

pub(super) const NAMESPACE: &str = "SELECT no FROM sm_namespace WHERE name = ?1";
const NEW_NAMESPACE: &str = "INSERT INTO sm_namespace (name) VALUES (?1)";
const LEVEL: &str = "INSERT INTO sm_level (ns, bit, mask, before, after) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET before = max(before, excluded.before), after = max(after, excluded.after) \
     WHERE excluded.before > before OR excluded.after > after";
const PUT: &str = "INSERT INTO sm_run (ns, start, id, stop, node, status, method, running, heartbeat, workflow, user, \
     suspended, nodes, attributes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
     ON CONFLICT DO UPDATE SET start = excluded.start, stop = excluded.stop, node = excluded.node, \
     status = excluded.status, method = excluded.method, running = excluded.running, heartbeat = excluded.heartbeat, \
     workflow = excluded.workflow, user = excluded.user, suspended = excluded.suspended, nodes = excluded.nodes, \
     attributes = excluded.attributes";
pub(super) const START_IF_OPEN: &str = "SELECT start FROM sm_run WHERE ns = ?1 AND id = ?2 AND stop IS NULL";
pub(super) const CLOSE: &str =
    "UPDATE sm_run SET stop = ?4, node = ?5, status = ?6 WHERE ns = ?1 AND start = ?2 AND id = ?3";
pub(super) const BEAT: &str = "UPDATE sm_run SET heartbeat = max(coalesce(heartbeat, ?3), ?3) \
     WHERE ns = ?1 AND id = ?2 AND stop IS NULL";
pub(super) const DELETE: &str = "DELETE FROM sm_run WHERE ns = ?1 AND id = ?2";
pub(super) const DELETE_AT: &str = "DELETE FROM sm_run WHERE ns = ?1 AND start = ?2 AND id = ?3";

/// The numbers of a call's namespaces, and how far the runs that it files reach.
struct Namespaces<'k> {
    find: CachedStatement<'k>,
    known: HashMap<Namespace, Option<i64>>,
    /// By namespace and level: before and after the node.
    reaches: HashMap<(i64, i64), (i64, i64)>,
}

impl<'k> Namespaces<'k> {
    fn of(db: &Db<'k>) -> Outcome<Self> {
        Ok(Self { find: db.prepare(NAMESPACE)?, known: HashMap::new(), reaches: HashMap::new() })
    }

    fn find(&mut self, name: &Namespace) -> Outcome<Option<i64>> {
        if let Some(id) = self.known.get(name) {
            return Ok(*id);
        }
        let id = self.find.query_row([name.as_str()], |row| row.get(0)).optional()?;
        self.known.insert(name.clone(), id);
        Ok(id)
    }

    fn find_or_create(&mut self, db: &Db<'_>, name: &Namespace) -> Outcome<i64> {
        if let Some(id) = self.find(name)? {
            return Ok(id);
        }
        db.prepare(NEW_NAMESPACE)?.execute([name.as_str()])?;
        let id = db.conn.last_insert_rowid();
        self.known.insert(name.clone(), Some(id));
        Ok(id)
    }

    /// Records that a run is filed under this node, if it is closed.
    fn note(&mut self, ns: i64, start: i64, node: Option<i64>, stop: Option<i64>) {
        let (Some(node), Some(stop)) = (node, stop) else { return };
        let reach = self.reaches.entry((ns, level(node))).or_default();
        reach.0 = reach.0.max(node.saturating_sub(start));
        reach.1 = reach.1.max(stop.saturating_sub(node));
    }

    /// Stores reaches that exceed the previous ones.
    fn keep(self, db: &Db<'_>) -> Outcome<()> {
        let mut statement = db.prepare(LEVEL)?;
        for ((ns, bit), (before, after)) in self.reaches {
            statement.execute((ns, bit, bits_above(bit), before, after))?;
        }
        Ok(())
    }
}

impl Db<'_> {
    fn runs(&mut self, keys: &[RunKey]) -> Outcome<Vec<Option<RunRecord>>> {
        let mut namespaces = Namespaces::of(self)?;
        let mut statement = self.prepare(statements::RUN)?;
        keys.iter()
            .map(|key| {
                let Some(ns) = namespaces.find(&key.namespace)? else { return Ok(None) };
                let mut rows = statement.query((ns, key.id.as_str()))?;
                rows.next()?.map(|row| records::run(row, key.namespace.clone())).transpose()
            })
            .collect()
    }
}

impl RunTx for SqliteBackend<'_> {
    fn put_runs(&mut self, runs: &[RunRecord]) -> StoreResult<()> {
        self.write(|db| {
            let mut namespaces = Namespaces::of(db)?;
            let mut put = db.prepare(PUT)?;
            for run in runs {
                let ns = namespaces.find_or_create(db, &run.key.namespace)?;
                let (start, stop) = (run.start.as_micros(), run.stop.map(Timestamp::as_micros));
                let node = node(run.start, run.stop);
                put.execute(params![
                    ns,
                    start,
                    run.key.id.as_str(),
                    stop,
                    node,
                    run.status.code(),
                    run.method.code(),
                    run.running.map(Timestamp::as_micros),
                    run.heartbeat.map(Timestamp::as_micros),
                    run.workflow.as_ref().map(|workflow| workflow.as_str()),
                    run.user,
                    suspensions(&run.suspended)?,
                    nodes(&run.nodes)?,
                    run.attributes,
                ])?;
                namespaces.note(ns, start, node, stop);
            }
            namespaces.keep(db)
        })
    }

    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<bool>> {
        self.write(|db| {
            let mut namespaces = Namespaces::of(db)?;
            let (mut find, mut close) = (db.prepare(START_IF_OPEN)?, db.prepare(CLOSE)?);
            let mut answers = Vec::with_capacity(closes.len());
            for order in closes {
                let id = order.key.id.as_str();
                let start: Option<i64> = match namespaces.find(&order.key.namespace)? {
                    Some(ns) => find.query_row((ns, id), |row| row.get(0)).optional()?,
                    None => None,
                };
                let (Some(ns), Some(start)) = (namespaces.find(&order.key.namespace)?, start) else {
                    answers.push(false);
                    continue;
                };
                let stop = order.stop.max(Timestamp::from_micros(start));
                let node = node(Timestamp::from_micros(start), Some(stop));
                let rows = close.execute((ns, start, id, stop.as_micros(), node, order.status.code()))?;
                namespaces.note(ns, start, node, Some(stop.as_micros()));
                answers.push(rows > 0);
            }
            namespaces.keep(db)?;
            Ok(answers)
        })
    }

    fn beat_runs_if_open(&mut self, beats: &[RunBeat]) -> StoreResult<Vec<bool>> {
        self.write(|db| {
            let mut namespaces = Namespaces::of(db)?;
            let mut statement = db.prepare(BEAT)?;
            let mut beat = |beat: &RunBeat| match namespaces.find(&beat.key.namespace)? {
                Some(ns) => Ok(statement.execute((ns, beat.key.id.as_str(), beat.at.as_micros()))? > 0),
                None => Ok(false),
            };
            beats.iter().map(&mut beat).collect()
        })
    }

    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>> {
        self.read(|db| db.runs(keys))
    }

    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize> {
        self.write(|db| {
            let mut namespaces = Namespaces::of(db)?;
            let mut statement = db.prepare(DELETE)?;
            let mut deleted = 0;
            for key in keys {
                if let Some(ns) = namespaces.find(&key.namespace)? {
                    deleted += statement.execute((ns, key.id.as_str()))?;
                }
            }
            Ok(deleted)
        })
    }

    fn forget_stopped_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.write(|db| {
            let Before { spans, nodes } = Before::instant(before);
            let parameters = (
                before.as_micros(),
                serde_json::to_string(&nodes)?,
                serde_json::to_string(&spans)?,
                clamp(limit),
            );
            let places = db
                .prepare(statements::STOPPED)?
                .query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<Result<Vec<(i64, i64, String)>, _>>()?;
            let mut statement = db.prepare(DELETE_AT)?;
            for place in &places {
                statement.execute((place.0, place.1, &place.2))?;
            }
            Ok(places.len())
        })
    }

    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>> {
        self.read(|db| db.active(query))
    }

    fn active_run_places(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunPlace>> {
        self.read(|db| db.active(query))
    }

    fn count_active_runs(&mut self, query: &ActiveQuery) -> StoreResult<u64> {
        self.read(|db| db.count_active(query))
    }

    fn silent_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<Vec<RunRecord>> {
        self.read(|db| {
            let mut statement = db.prepare(statements::SILENT)?;
            let mut rows = statement.query((before.as_micros(), clamp(limit)))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(records::run(row, row::name(row, 0)?)?);
            }
            Ok(found)
        })
    }
}
