//! A custom store that wraps one of the crate's own. It keeps a journal of the transactions that write,
//! with how long each of them took. The conformance suite proves that it is a store like the crate's.
//!
//! All that a store does goes through `Store::transact`, so a wrapper has one place for what a host wants
//! around its transactions: a journal as here, a measurement, a switch that stops writers for maintenance.
//! Here it wraps SQLite; any store will do.
//!
//! ```sh
//! cargo run --features testing --example custom_store
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::service::{Admitter, Service};
use stationmaster::store::{SqliteStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::{Error, NewTask, Result, TaskKey, conformance};

/// What became of a transaction that writes.
#[derive(Debug, Clone)]
struct Line {
    took: Duration,
    /// Why it was not committed, if it was not.
    refused: Option<String>,
}

#[derive(Debug)]
struct Journaled<S> {
    inner: S,
    journal: Mutex<Vec<Line>>,
}

impl<S> Journaled<S> {
    fn new(inner: S) -> Self {
        Self { inner, journal: Mutex::default() }
    }

    fn lines(&self) -> Vec<Line> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: Store> Store for Journaled<S> {
    /// What the inner store promises holds for this one: nothing here is kept, or can fail.
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    /// The inner store commits, and it rolls back after an error or a panic of the body.
    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let began = Instant::now();
        let ended = self.inner.transact(mode, body);
        if mode == TxMode::Write {
            let line = Line { took: began.elapsed(), refused: ended.as_ref().err().map(Error::to_string) };
            self.journal.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
        ended
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let in_memory = || SqliteStore::in_memory(Default::default()).map(Journaled::new);
    conformance::run(&|| Box::new(in_memory().expect("a database in memory")));
    let cases = conformance::cases(conformance::Capabilities::new()).len();
    println!("it passes all {cases} cases of the conformance suite");

    // Services take it as they take any store.
    let (db, now) = (Arc::new(in_memory()?), SystemClock.now());
    let store: &dyn Store = &*db;
    let task = NewTask::new(TaskKey::new("shop", "orders", "7", "ship")?);
    store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
    let mut admitter = Admitter::new(db.clone(), "packer".try_into()?).lease(Duration::from_secs(30));
    let lease = admitter.tick(now)?.granted[0].lease_ref();
    store.write(|tx| tx.finish(now, &[Finish::success(lease)])?.fenced())?;
    assert_eq!(db.lines().len(), 3, "enqueued, admitted, finished");
    assert!(db.lines().iter().all(|line| line.refused.is_none()));

    // What the body refuses is in the journal, too, with the crate's own words for it.
    let again = store.write(|tx| tx.finish(now, &[Finish::success(lease)])?.fenced());
    assert!(matches!(again, Err(Error::Repeated { .. })));
    let lines = db.lines();
    assert_eq!(
        lines.last().and_then(|line| line.refused.clone()),
        again.err().map(|error| error.to_string())
    );

    let longest = lines.iter().map(|line| line.took).max().unwrap_or_default();
    println!("{} transactions are in the journal, the longest took {longest:.1?}", lines.len());
    Ok(())
}
