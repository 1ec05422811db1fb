//! What else could be done in SQLite: the document's approaches, over one table of whole records.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use stationmaster::Timestamp;
use stationmaster::run::{RunKey, RunRecord, RunStatus, StartMethod};
use stationmaster::store::sqlite::rusqlite::{Connection, Row, params};

use crate::data::{NOW, Span, instant, namespace};
use crate::race::Query;

const HOUR: i64 = 3600;
const COLUMNS: &str =
    "rec.ns, rec.id, rec.start, rec.stop, rec.status, rec.workflow, rec.user, rec.attributes";

/// A table of records with an index by start and stop, a table of earliest starts, and one of hours.
pub(crate) struct Rivals {
    conn: Connection,
    names: Vec<String>,
    runs: usize,
    /// Bytes of the bare table, of each index, and how long the bare table took per event.
    pub(crate) bytes: Vec<(&'static str, f64)>,
    pub(crate) bare: Duration,
}

fn pages(conn: &Connection) -> i64 {
    conn.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("a count")
}

fn read(row: &Row<'_>, names: &[String]) -> RunRecord {
    let text = |at: usize| row.get_ref(at).expect("a column").as_str().expect("a text");
    let ns: i64 = row.get(0).expect("a number");
    let key = RunKey::new(&names[ns as usize], text(1)).expect("a name");
    let mut run = RunRecord::open(key, Timestamp::from_micros(row.get(2).expect("an instant")))
        .method(StartMethod::Scheduled)
        .workflow(text(5).try_into().expect("a name"))
        .user(text(6))
        .attributes(text(7));
    run.stop = row.get::<_, Option<i64>>(3).expect("an instant").map(Timestamp::from_micros);
    run.status =
        if row.get::<_, i64>(4).expect("a number") == 2 { RunStatus::Running } else { RunStatus::Completed };
    run
}

impl Rivals {
    pub(crate) fn load(path: &Path, spans: &[Span], with_hours: bool) -> Self {
        let mut conn = Connection::open(path).expect("a database");
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -32768;
             CREATE TABLE rec (no INTEGER PRIMARY KEY, ns INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER,
                 status INTEGER NOT NULL, id TEXT NOT NULL, workflow TEXT, user TEXT, attributes TEXT) STRICT;",
        )
        .expect("a schema");
        let mut bare = Duration::ZERO;
        let events = crate::events::events(spans);
        for batch in events.chunks(1_000) {
            let records: Vec<(RunRecord, bool)> =
                batch.iter().map(|(rank, opens)| (spans[*rank].record(*rank), *opens)).collect();
            let began = Instant::now();
            let tx = conn.transaction().expect("a transaction");
            {
                let mut put = tx
                    .prepare_cached("INSERT INTO rec VALUES (?1, ?2, ?3, NULL, 2, ?4, ?5, ?6, ?7)")
                    .expect("a statement");
                let mut close = tx
                    .prepare_cached("UPDATE rec SET stop = ?2, status = 5 WHERE no = ?1")
                    .expect("a statement");
                for ((rank, _), (run, opens)) in batch.iter().zip(&records) {
                    let (id, ns) = (*rank as i64, spans[*rank].ns as i64);
                    let workflow = run.workflow.as_ref().map(|name| name.as_str());
                    let done = if *opens {
                        let start = run.start.as_micros();
                        put.execute(params![
                            id,
                            ns,
                            start,
                            run.key.id.as_str(),
                            workflow,
                            run.user,
                            run.attributes
                        ])
                    } else {
                        close.execute((id, run.stop.map(Timestamp::as_micros)))
                    };
                    assert_eq!(done.expect("written"), 1);
                }
            }
            tx.commit().expect("committed");
            bare += began.elapsed();
        }
        let names = (0..100).map(namespace).collect();
        let mut rivals = Self { conn, names, runs: spans.len(), bytes: Vec::new(), bare };
        rivals.note("table without an index", 0);
        rivals.add("(ns, start, stop)", "CREATE INDEX nsss ON rec (ns, start, stop);");
        rivals.earliest(spans);
        if with_hours {
            rivals.hours(spans);
        }
        rivals.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("a checkpoint");
        rivals
    }

    fn note(&mut self, name: &'static str, before: i64) {
        let bytes = (pages(&self.conn) - before) as f64 * 4096.0 / self.runs as f64;
        self.bytes.push((name, bytes));
    }

    fn add(&mut self, name: &'static str, sql: &str) {
        let before = pages(&self.conn);
        self.conn.execute_batch(sql).expect("an index");
        self.note(name, before);
    }

    fn earliest(&mut self, spans: &[Span]) {
        let mut first: HashMap<(usize, i64), i64> = HashMap::new();
        for span in spans {
            for hour in span.start / HOUR..=span.stop.unwrap_or(NOW) / HOUR {
                first.entry((span.ns, hour)).or_insert(span.start);
            }
        }
        let before = pages(&self.conn);
        let sql = "CREATE TABLE earliest (ns INTEGER, hour INTEGER, start INTEGER, PRIMARY KEY (ns, hour)) WITHOUT ROWID";
        self.conn.execute_batch(sql).expect("a table");
        let tx = self.conn.transaction().expect("a transaction");
        let mut rows: Vec<_> = first.into_iter().collect();
        rows.sort_unstable();
        for ((ns, hour), start) in rows {
            let mut put = tx.prepare_cached("INSERT INTO earliest VALUES (?1, ?2, ?3)").expect("a statement");
            put.execute((ns as i64, hour, instant(start).as_micros())).expect("a row");
        }
        tx.commit().expect("committed");
        self.note("earliest starts, besides", before);
    }

    fn hours(&mut self, spans: &[Span]) {
        let before = pages(&self.conn);
        let sql = "CREATE TABLE bucket (ns INTEGER, hour INTEGER, no INTEGER, PRIMARY KEY (ns, hour, no)) WITHOUT ROWID";
        self.conn.execute_batch(sql).expect("a table");
        let mut rows = Vec::new();
        for (rank, span) in spans.iter().enumerate() {
            let hours = span.start / HOUR..=span.stop.unwrap_or(NOW) / HOUR;
            rows.extend(hours.map(|hour| (span.ns as i64, hour, rank as i64)));
        }
        rows.sort_unstable();
        let tx = self.conn.transaction().expect("a transaction");
        for row in rows {
            let mut put = tx.prepare_cached("INSERT INTO bucket VALUES (?1, ?2, ?3)").expect("a statement");
            put.execute(row).expect("a row");
        }
        tx.commit().expect("committed");
        self.note("hour rows", before);
    }

    fn rows(&self, sql: &str, parameters: impl stationmaster::store::sqlite::rusqlite::Params) -> usize {
        let mut statement = self.conn.prepare_cached(sql).expect("a statement");
        let mut rows = statement.query(parameters).expect("rows");
        let mut runs = Vec::new();
        while let Some(row) = rows.next().expect("a row") {
            runs.push(read(row, &self.names));
        }
        runs.sort_unstable_by(|a, b| (a.start, &a.key).cmp(&(b.start, &b.key)));
        std::hint::black_box(runs).len()
    }

    fn window(query: &Query) -> (i64, i64) {
        (instant(query.begin).as_micros(), instant(query.end).as_micros())
    }

    fn namespaces(&self, query: &Query) -> BTreeSet<i64> {
        let all = 0..self.names.len();
        let named = query.namespaces.iter().copied();
        if query.namespaces.is_empty() {
            all.map(|ns| ns as i64).collect()
        } else {
            named.map(|ns| ns as i64).collect()
        }
    }

    pub(crate) fn full_scan(&self, query: &Query) -> usize {
        let (begin, end) = Self::window(query);
        let names: Vec<String> = query.namespaces.iter().map(ToString::to_string).collect();
        let asked = if names.is_empty() { String::new() } else { format!("ns IN ({}) AND", names.join(",")) };
        let sql = format!(
            "SELECT {COLUMNS} FROM rec NOT INDEXED WHERE {asked} start < ?2 AND (stop IS NULL OR stop >= ?1)"
        );
        self.rows(&sql, (begin, end))
    }

    pub(crate) fn by_start(&self, query: &Query) -> usize {
        let (begin, end) = Self::window(query);
        let sql = format!(
            "SELECT {COLUMNS} FROM rec INDEXED BY nsss WHERE ns = ?3 AND start < ?2 AND (stop IS NULL OR stop >= ?1)"
        );
        self.namespaces(query).into_iter().map(|ns| self.rows(&sql, (begin, end, ns))).sum()
    }

    pub(crate) fn by_earliest(&self, query: &Query) -> usize {
        let (begin, end) = Self::window(query);
        let sql = format!(
            "SELECT {COLUMNS} FROM rec INDEXED BY nsss WHERE ns = ?3 AND start < ?2 AND (stop IS NULL OR stop >= ?1) \
             AND start >= coalesce((SELECT start FROM earliest WHERE ns = ?3 AND hour = ?4), ?1)"
        );
        let hour = query.begin / HOUR;
        self.namespaces(query).into_iter().map(|ns| self.rows(&sql, (begin, end, ns, hour))).sum()
    }

    pub(crate) fn by_hours(&self, query: &Query) -> usize {
        let (begin, end) = Self::window(query);
        let sql = format!(
            "SELECT {COLUMNS} FROM bucket CROSS JOIN rec ON rec.no = bucket.no WHERE bucket.ns = ?3 \
             AND hour BETWEEN ?4 AND ?5 AND (hour = ?4 OR hour = start / 3600000000) \
             AND start < ?2 AND (stop IS NULL OR stop >= ?1)"
        );
        let (first, last) = (query.begin / HOUR, (query.end - 1) / HOUR);
        self.namespaces(query).into_iter().map(|ns| self.rows(&sql, (begin, end, ns, first, last))).sum()
    }

    /// As many whole records as there are hits, one after another.
    pub(crate) fn limit(&self, count: usize, seed: usize) -> usize {
        let from = (seed * 7919) % self.runs.saturating_sub(count).max(1);
        let sql = format!("SELECT {COLUMNS} FROM rec WHERE no >= ?1 ORDER BY no LIMIT ?2");
        self.rows(&sql, (from as i64, count as i64))
    }
}
