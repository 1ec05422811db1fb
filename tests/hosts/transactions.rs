//! A host on a `rusqlite` of its own choice, which hands its transactions to the crate.

#[path = "contract.rs"]
mod contract;
#[path = "shop.rs"]
mod shop;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use shop::{Lease, NOW, Shop};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::store::Tx;
use stationmaster::store::sqlite::{Prefix, SqliteTx};
use stationmaster::task::LeaseLoss;
use stationmaster::{LeaseRef, NewTask, TaskId, TaskKey, Timestamp};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn attach<'c>(tx: &'c Transaction<'_>) -> Result<Tx<'c>> {
    Ok(SqliteTx::attach(tx, &Prefix::default())?)
}

fn order(tx: &Transaction<'_>, id: i64) -> Result<()> {
    tx.execute("INSERT INTO orders VALUES (?1, 'new')", [id])?;
    let task = NewTask::new(TaskKey::new(shop::NAMESPACE, shop::WORKFLOW, id.to_string(), shop::TASK)?)
        .limit("carrier".try_into()?)
        .lease_loss(LeaseLoss::Requeue { at_most: 2 })
        .payload(format!("{{\"order\":{id}}}"));
    attach(tx)?.enqueue(Timestamp::from_micros(NOW), &[task])?;
    Ok(())
}

fn ship(tx: &Transaction<'_>, id: i64, lease: Lease) -> Result<()> {
    tx.execute("UPDATE orders SET state = 'shipped' WHERE id = ?1", [id])?;
    let lease = LeaseRef::new(TaskId(lease.id), lease.epoch);
    attach(tx)?.finish(Timestamp::from_micros(NOW), &[Finish::success_with(lease, "by air")])?.fenced()?;
    Ok(())
}

fn state_of_order(db: &Connection, id: i64) -> Result<Option<String>> {
    Ok(db.query_row("SELECT state FROM orders WHERE id = ?1", [id], |row| row.get(0)).optional()?)
}

pub fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop.db");
    let mut db = Connection::open(&path)?;
    db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)")?;
    let shop = Shop::open(&path);

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    order(&tx, 1)?;
    tx.rollback()?;
    assert_eq!((state_of_order(&db, 1)?, shop.task(1)), (None, None));

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    order(&tx, 1)?;
    tx.commit()?;
    let stale = shop.admit(1);
    shop.lose();
    let lease = shop.admit(1);
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    attach(&tx)?
        .start(Timestamp::from_micros(NOW), &[LeaseRef::new(TaskId(lease.id), lease.epoch)])?
        .fenced()?;
    tx.commit()?;

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let refused = ship(&tx, 1, stale).expect_err("the lease is stale");
    assert!(refused.to_string().contains("stale"), "{refused}");
    drop(tx);
    assert_eq!(state_of_order(&db, 1)?.as_deref(), Some("new"), "the order was not shipped twice");

    // The statements for other drivers work in this SQLite, too.
    let null = None::<i64>;
    let end = params![NOW, stale.id, stale.epoch, "success", "x", null, null];
    assert!(shop::is_stale(
        &db.execute(contract::statement("SQLite", "finish"), end).expect_err("stale").to_string()
    ));

    for (run, policy, taken) in [("plain", None, true), ("foreign", Some("{\"retries\":3}"), false)] {
        let task = params![
            NOW,
            shop::NAMESPACE,
            "sql",
            run,
            shop::TASK,
            null,
            "default_pool",
            1,
            "[]",
            0,
            null,
            null,
            null,
            policy,
            null,
            "{}",
            null
        ];
        let answer = db.execute(contract::statement("SQLite", "enqueue"), task);
        assert_eq!(answer.is_ok(), taken, "{answer:?}");
    }

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    ship(&tx, 1, lease)?;
    tx.commit()?;
    assert_eq!(state_of_order(&db, 1)?.as_deref(), Some("shipped"));
    shop.check_shipped(1);
    println!("rusqlite on SQLite {}: orders and tasks committed and vanished together", rusqlite::version());
    Ok(())
}
