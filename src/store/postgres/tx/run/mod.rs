//! The store's operations on runs.

mod active;
pub(super) mod statements;

use std::collections::{BTreeSet, HashMap};

use super::super::digest::Digest;
use super::super::error::{Fault, Outcome};
use super::super::text::escape;
use super::super::wire::{Answer, ask};
use super::attempt::LOOKS;
use super::{Db, PostgresBackend, clamp, first, row};
use crate::error::{StoreError, StoreResult};
use crate::id::Namespace;
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::store::TxMode;
use crate::store::contract::RunTx;
use crate::store::sql::codes::Code;
use crate::store::sql::records;
use crate::store::sql::run_columns::{Before, bits_above, level, node, nodes as nodes_of, suspensions};
use crate::time::Timestamp;

fn namespaces<'k>(keys: impl Iterator<Item = &'k RunKey>) -> Vec<Digest> {
    keys.map(|key| Digest::of(key.namespace.as_str())).collect()
}

fn ids<'k>(keys: impl Iterator<Item = &'k RunKey>) -> Vec<String> {
    keys.map(|key| key.id.to_string()).collect()
}

/// How far the filed runs of a call extend before and after their nodes, by namespace and level.
#[derive(Default)]
struct Reaches<'k>(HashMap<(&'k str, i64), (i64, i64)>);

impl<'k> Reaches<'k> {
    /// Notes a run if it is closed, and so filed.
    fn note(&mut self, namespace: &'k Namespace, start: i64, node: Option<i64>, stop: Option<i64>) {
        let (Some(node), Some(stop)) = (node, stop) else { return };
        let reach = self.0.entry((namespace.as_str(), level(node))).or_default();
        reach.0 = reach.0.max(node.saturating_sub(start));
        reach.1 = reach.1.max(stop.saturating_sub(node));
    }
}

/// How many separately kept heartbeats are applied at once. There are this many only if many runs stay locked for
/// long.
const BEATS_TAKEN: i64 = 10_000;

impl Db<'_> {
    /// Locks runs that fell silent, and then reads separately kept heartbeats: once the runs are locked, every
    /// confirmed heartbeat is found. If there were any, other runs may be silent, so it looks again.
    fn hold_silent(&mut self, before: Timestamp, limit: usize) -> Outcome<Answer> {
        for _ in 0..LOOKS {
            let look = ask!(statements::LOCK_SILENT, before.as_micros(), clamp(limit));
            let [rows, taken] = self.all([look, ask!(statements::TAKE_BEATS, BEATS_TAKEN)])?;
            if row::whole(first(&taken)?, 0)? == 0 {
                return Ok(rows);
            }
        }
        let text = "runs were locked while heartbeats came, again and again: call again";
        Err(Fault::Server(StoreError::conflict(text)))
    }
}

impl RunTx for PostgresBackend<'_> {
    fn put_runs(&mut self, runs: &[RunRecord]) -> StoreResult<()> {
        self.write(|db| {
            if runs.is_empty() {
                return Ok(());
            }
            let mut last: HashMap<&RunKey, &RunRecord> = HashMap::with_capacity(runs.len());
            last.extend(runs.iter().map(|run| (&run.key, run)));
            let runs: Vec<&RunRecord> = last.into_values().collect();
            let names: BTreeSet<&str> = runs.iter().map(|run| run.key.namespace.as_str()).collect();
            let (digests, names): (Vec<Digest>, Vec<String>) =
                names.into_iter().map(|name| (Digest::of(name), name.to_owned())).unzip();
            let stops: Vec<Option<i64>> = runs.iter().map(|run| run.stop.map(Timestamp::as_micros)).collect();
            let filed = |run: &&RunRecord| node(run.start, run.stop);
            let nodes: Vec<Option<i64>> = runs.iter().map(filed).collect();
            let mut reaches = Reaches::default();
            for ((run, node), stop) in runs.iter().zip(&nodes).zip(&stops) {
                reaches.note(&run.key.namespace, run.start.as_micros(), *node, *stop);
            }
            let sizes = runs.iter().map(|run| nodes_of(&run.nodes)).collect::<Result<Vec<_>, _>>()?;
            let spans = runs.iter().map(|run| suspensions(&run.suspended)).collect::<Result<Vec<_>, _>>()?;
            let texts = |text: fn(&RunRecord) -> Option<&String>| -> Vec<Option<String>> {
                runs.iter().map(|run| text(run).map(|text| escape(text).into_owned())).collect()
            };
            let put = ask!(
                statements::PUT,
                namespaces(runs.iter().map(|run| &run.key)),
                runs.iter().map(|run| run.start.as_micros()).collect::<Vec<i64>>(),
                ids(runs.iter().map(|run| &run.key)),
                stops,
                nodes,
                runs.iter().map(|run| run.status.code()).collect::<Vec<i64>>(),
                runs.iter().map(|run| run.method.code()).collect::<Vec<i64>>(),
                runs.iter().map(|run| run.running.map(Timestamp::as_micros)).collect::<Vec<Option<i64>>>(),
                runs.iter().map(|run| run.heartbeat.map(Timestamp::as_micros)).collect::<Vec<Option<i64>>>(),
                runs.iter()
                    .map(|run| run.workflow.as_ref().map(ToString::to_string))
                    .collect::<Vec<Option<String>>>(),
                texts(|run| run.user.as_ref()),
                spans,
                sizes,
                texts(|run| run.attributes.as_ref()),
            );
            let reaches: Vec<_> = reaches.0.into_iter().collect();
            let bits: Vec<i64> = reaches.iter().map(|((_, bit), _)| *bit).collect();
            let levels = ask!(
                statements::RAISE_LEVELS,
                reaches.iter().map(|((name, _), _)| Digest::of(name)).collect::<Vec<Digest>>(),
                bits.clone(),
                bits.into_iter().map(bits_above).collect::<Vec<i64>>(),
                reaches.iter().map(|(_, (before, _))| *before).collect::<Vec<i64>>(),
                reaches.iter().map(|(_, (_, after))| *after).collect::<Vec<i64>>(),
            );
            db.all([ask!(statements::NAMESPACES, digests, names), put, levels]).map(|_| ())
        })
    }

    /// If a run is named twice, the second item finds it already closed.
    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<bool>> {
        self.write(|db| {
            if closes.is_empty() {
                return Ok(Vec::new());
            }
            let mut answers = vec![false; closes.len()];
            let mut seen = std::collections::HashSet::with_capacity(closes.len());
            let first: Vec<usize> = (0..closes.len()).filter(|at| seen.insert(&closes[*at].key)).collect();
            let given = || first.iter().map(|at| &closes[*at]);
            let rows = db.one(ask!(
                statements::CLOSE,
                namespaces(given().map(|close| &close.key)),
                ids(given().map(|close| &close.key)),
                given().map(|close| close.stop.as_micros()).collect::<Vec<i64>>(),
                given().map(|close| close.status.code()).collect::<Vec<i64>>(),
            ))?;
            for row in &rows {
                if let Some(at) = first.get(row::place(row, 0)?) {
                    answers[*at] = true;
                }
            }
            Ok(answers)
        })
    }

    fn wait_for_runs(&mut self, keys: &[RunKey]) -> StoreResult<()> {
        self.write(|db| match keys.is_empty() {
            true => Ok(()),
            false => db.one(ask!(statements::WAIT_FOR, namespaces(keys.iter()), ids(keys.iter()))).map(drop),
        })
    }

    fn hold_runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<bool>> {
        self.write(|db| {
            let mut free = vec![true; keys.len()];
            if keys.is_empty() {
                return Ok(free);
            }
            for row in db.one(ask!(statements::LOCK, namespaces(keys.iter()), ids(keys.iter())))? {
                if let Some(free) = free.get_mut(row::place(&row, 0)?) {
                    *free = false;
                }
            }
            Ok(free)
        })
    }

    fn beat_runs_if_open(&mut self, beats: &[RunBeat]) -> StoreResult<Vec<bool>> {
        self.write(|db| {
            if beats.is_empty() {
                return Ok(Vec::new());
            }
            let mut latest: HashMap<&RunKey, i64> = HashMap::with_capacity(beats.len());
            for beat in beats {
                let at = latest.entry(&beat.key).or_insert(i64::MIN);
                *at = (*at).max(beat.at.as_micros());
            }
            let given: Vec<(&RunKey, i64)> = latest.into_iter().collect();
            let (digests, ids) =
                (namespaces(given.iter().map(|(key, _)| *key)), ids(given.iter().map(|(key, _)| *key)));
            let beat = ask!(
                statements::BEAT,
                digests.clone(),
                ids.clone(),
                given.iter().map(|(_, at)| *at).collect::<Vec<i64>>(),
            );
            // Asked again, because the first statement's snapshot lacks closes that were committed before it got
            // the locks.
            let [_, rows] = db.all([beat, ask!(statements::OPEN, digests, ids)])?;
            let mut alive = std::collections::HashSet::with_capacity(rows.len());
            for row in &rows {
                alive.extend(given.get(row::place(row, 0)?).map(|(key, _)| *key));
            }
            let moved = |beat: &RunBeat| alive.contains(&beat.key);
            Ok(beats.iter().map(moved).collect())
        })
    }

    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>> {
        self.read(|db| {
            if keys.is_empty() {
                return Ok(Vec::new());
            }
            let rows = db.one(ask!(statements::RUNS, namespaces(keys.iter()), ids(keys.iter())))?;
            let mut found = vec![None; keys.len()];
            for row in &rows {
                let at = row::place(row, 0)?;
                if let (Some(key), Some(found)) = (keys.get(at), found.get_mut(at)) {
                    *found = Some(records::run(row, key.namespace.clone())?);
                }
            }
            Ok(found)
        })
    }

    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize> {
        self.write(|db| match keys.is_empty() {
            true => Ok(0),
            false => db.number(ask!(statements::DELETE, namespaces(keys.iter()), ids(keys.iter()))),
        })
    }

    fn forget_stopped_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.write(|db| {
            if limit == 0 {
                return Ok(0);
            }
            let Before { spans, nodes } = Before::instant(before);
            let (lows, highs): (Vec<i64>, Vec<i64>) = spans.into_iter().unzip();
            let forget = ask!(statements::FORGET, before.as_micros(), nodes, lows, highs, clamp(limit));
            // A host's snapshot may contain heartbeats that are gone, and the server would refuse to delete them.
            let beats = if db.is_own { ask!(statements::TAKE_BEATS, BEATS_TAKEN) } else { ask!("SELECT") };
            let [gone, _] = db.all([forget, beats])?;
            row::whole(first(&gone)?, 0)
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
        let writes = self.mode == TxMode::Write;
        let look = |db: &mut Db<'_>| -> Outcome<Vec<RunRecord>> {
            if limit == 0 {
                return Ok(Vec::new());
            }
            let rows = match writes {
                true => db.hold_silent(before, limit)?,
                false => db.one(ask!(statements::SILENT, before.as_micros(), clamp(limit)))?,
            };
            let mut found =
                rows.iter().map(|row| records::run(row, row::name(row, 0)?)).collect::<Outcome<Vec<_>>>()?;
            found.sort_by_key(|run| run.heartbeat);
            Ok(found)
        };
        if writes { self.write(look) } else { self.read(look) }
    }
}
