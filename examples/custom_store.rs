//! A custom store that wraps one of the crate's own. It keeps a journal of write transactions, with the
//! duration of each. The conformance suite proves that it behaves like the crate's stores.
//!
//! Everything that a store does goes through `Store::transact`. So a wrapper has one place for anything that
//! a host wants around its transactions: a journal as here, a measurement, a switch that stops writers for
//! maintenance. This one wraps SQLite, but any store works.
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

/// The result of a write transaction.
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
    /// The inner store's guarantees hold for this one: nothing is stored here, and nothing can fail.
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    /// The inner store commits. It rolls back after an error or a panic of the body.
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

    // Services use it like any other store.
    let (db, now) = (Arc::new(in_memory()?), SystemClock.now());
    let store: &dyn Store = &*db;
    let task = NewTask::new(TaskKey::new("shop", "orders", "7", "ship")?);
    store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
    let mut admitter = Admitter::new(db.clone(), "packer".try_into()?).lease(Duration::from_secs(30));
    let lease = admitter.tick(now)?.granted[0].lease_ref();
    store.write(|tx| tx.finish(now, &[Finish::success(lease)])?.fenced())?;
    assert_eq!(db.lines().len(), 3, "enqueued, admitted, finished");
    assert!(db.lines().iter().all(|line| line.refused.is_none()));

    // A refusal by the body is in the journal, too, in the crate's words.
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
