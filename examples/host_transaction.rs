//! A shop's order and the task that ships it, in one transaction of the shop: both exist, or neither does.
//!
//! ```sh
//! cargo run --example host_transaction
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior::Immediate};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::SqliteStore;
use stationmaster::store::sqlite::SqliteTx;
use stationmaster::{LeaseRef, NewTask, TaskKey, Timestamp};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Takes an order, and enqueues its shipment. If anything fails, the caller's transaction is dropped, and nothing was
/// done.
fn take_order(tx: &Transaction<'_>, now: Timestamp, id: i64, goods: &str) -> Result<()> {
    let task = NewTask::new(TaskKey::new("shop", "orders", id.to_string(), "ship")?).payload(goods);
    // The task goes first, to show that a failing order removes it, too.
    SqliteTx::attach(tx, &Default::default())?.enqueue(now, &[task])?;
    tx.execute("INSERT INTO orders (id, goods, state) VALUES (?1, ?2, 'taken')", (id, goods))?;
    Ok(())
}

/// Records that an order was shipped, and ends the task, but only if the lease still holds.
fn shipped(db: &mut Connection, now: Timestamp, id: i64, lease: LeaseRef) -> Result<()> {
    let tx = db.transaction_with_behavior(Immediate)?;
    tx.execute("UPDATE orders SET state = 'shipped', parcels = parcels + 1 WHERE id = ?1", [id])?;
    SqliteTx::attach(&tx, &Default::default())?.finish(now, &[Finish::success(lease)])?.fenced()?;
    tx.commit()?;
    Ok(())
}

fn order(db: &Connection, id: i64) -> Result<(String, i64)> {
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(db.query_row("SELECT state, parcels FROM orders WHERE id = ?1", [id], row)?)
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop.db");
    let now = SystemClock.now();

    // The shop's own connection and table. The store adds its tables to the same file, under a
    // prefix. The shop's rusqlite is the version that the crate uses, which the crate exports as well.
    let mut db = Connection::open(&path)?;
    db.busy_timeout(Duration::from_secs(5))?;
    db.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, goods TEXT NOT NULL CHECK (goods <> 'gold'), state TEXT NOT NULL,
             parcels INTEGER NOT NULL DEFAULT 0)",
    )?;
    let store = Arc::new(SqliteStore::open(&path, Default::default())?);

    // A refused order leaves no task behind.
    let tx = db.transaction_with_behavior(Immediate)?;
    assert!(take_order(&tx, now, 1, "gold").is_err());
    tx.rollback()?;
    let tx = db.transaction_with_behavior(Immediate)?;
    take_order(&tx, now, 2, "books")?;
    tx.commit()?;

    // A packer is granted the only task, starts it, and is never heard from again.
    let mut admitter = Admitter::new(store.clone(), "packer".try_into()?);
    let granted = admitter.tick(now)?.granted;
    assert_eq!(granted.iter().map(|task| task.payload.as_str()).collect::<Vec<_>>(), ["books"]);
    let lost = granted[0].lease_ref();
    store.write(|tx| tx.start(now, &[lost])?.fenced())?;
    println!("order 2 is being packed under epoch {}", lost.epoch);

    // Its lease expires, and another packer gets the task.
    let later = now + Duration::from_secs(3600);
    // The grace is zero, because this program jumps to `later`: no holder was kept from renewing.
    assert_eq!(Upkeep::new(store.clone()).grace(Duration::ZERO).tick(later)?.reaped.len(), 1);
    let mut second = Admitter::new(store.clone(), "second packer".try_into()?);
    let lease = second.tick(later)?.granted[0].lease_ref();

    // The first packer comes back. Its transaction fails, so its parcel is not counted.
    let refused = shipped(&mut db, later, 2, lost).expect_err("the lease is stale");
    println!("the first packer was told: {refused}");
    assert_eq!(order(&db, 2)?, ("taken".to_owned(), 0));

    shipped(&mut db, later, 2, lease)?;
    assert_eq!(order(&db, 2)?, ("shipped".to_owned(), 1));
    store.read(|tx| {
        assert_eq!(tx.audit()?, []);
        Ok(())
    })?;
    println!("order 2 was shipped once, under epoch {}", lease.epoch);
    Ok(())
}
