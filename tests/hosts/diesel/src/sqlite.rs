//! Its orders and our tasks in one SQLite file and one transaction.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_query;
use diesel::sql_types::{BigInt, Nullable, Text};

use crate::contract::statement;
use crate::shop::{self, Lease, NOW, Shop};
use crate::{Status, orders};

fn order(db: &mut SqliteConnection, id: i64) -> QueryResult<()> {
    diesel::insert_into(orders::table).values((orders::id.eq(id), orders::state.eq("new"))).execute(db)?;
    sql_query(statement("SQLite", "enqueue"))
        .bind::<BigInt, _>(NOW)
        .bind::<Text, _>(shop::NAMESPACE)
        .bind::<Text, _>(shop::WORKFLOW)
        .bind::<Text, _>(id.to_string())
        .bind::<Text, _>(shop::TASK)
        .bind::<Nullable<BigInt>, _>(None::<i64>)
        .bind::<Text, _>("default_pool")
        .bind::<BigInt, _>(1)
        .bind::<Text, _>(r#"["carrier"]"#)
        .bind::<BigInt, _>(5)
        .bind::<Nullable<BigInt>, _>(None::<i64>)
        .bind::<Nullable<BigInt>, _>(None::<i64>)
        .bind::<Nullable<BigInt>, _>(None::<i64>)
        .bind::<Nullable<Text>, _>(None::<&str>)
        .bind::<Nullable<BigInt>, _>(Some(2))
        .bind::<Text, _>(format!("{{\"order\":{id}}}"))
        .bind::<Nullable<Text>, _>(None::<&str>)
        .execute(db)?;
    Ok(())
}

fn ship(db: &mut SqliteConnection, id: i64, lease: Lease) -> QueryResult<()> {
    diesel::update(orders::table.find(id)).set(orders::state.eq("shipped")).execute(db)?;
    sql_query(statement("SQLite", "finish"))
        .bind::<BigInt, _>(NOW)
        .bind::<BigInt, _>(lease.id)
        .bind::<BigInt, _>(lease.epoch)
        .bind::<Text, _>("success")
        .bind::<Nullable<Text>, _>(Some("by air"))
        .bind::<Nullable<Text>, _>(None::<&str>)
        .bind::<Nullable<BigInt>, _>(None::<i64>)
        .execute(db)?;
    Ok(())
}

fn state_of_order(db: &mut SqliteConnection, id: i64) -> Option<String> {
    orders::table.find(id).select(orders::state).first(db).optional().expect("the orders can be read")
}

pub fn run() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop.db");
    let mut db = SqliteConnection::establish(path.to_str().expect("a plain path"))?;
    let db = &mut db;
    sql_query("CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT NOT NULL)").execute(db)?;
    let shop = Shop::open(&path);

    let undone = db.immediate_transaction(|db| {
        order(db, 1)?;
        Err::<(), _>(Error::RollbackTransaction)
    });
    assert_eq!((undone, state_of_order(db, 1), shop.task(1)), (Err(Error::RollbackTransaction), None, None));

    db.immediate_transaction(|db| order(db, 1))?;
    assert_eq!(state_of_order(db, 1).as_deref(), Some("new"));
    let stale = shop.admit(1);
    shop.lose();
    let lease = shop.admit(1);

    let status: Status = sql_query(statement("SQLite", "status"))
        .bind::<Text, _>(shop::NAMESPACE)
        .bind::<Text, _>(shop::WORKFLOW)
        .bind::<Text, _>("1")
        .bind::<Text, _>(shop::TASK)
        .bind::<Nullable<BigInt>, _>(None::<i64>)
        .get_result(db)?;
    assert_eq!((status.epoch, status.state.as_str()), (lease.epoch, "queued"));
    sql_query(statement("SQLite", "start"))
        .bind::<BigInt, _>(NOW)
        .bind::<BigInt, _>(lease.id)
        .bind::<BigInt, _>(lease.epoch)
        .execute(db)?;
    let status: Status =
        sql_query(statement("SQLite", "status_by_id")).bind::<BigInt, _>(lease.id).get_result(db)?;
    assert_eq!(status.state, "running");

    match db.immediate_transaction(|db| ship(db, 1, stale)) {
        Err(Error::DatabaseError(DatabaseErrorKind::Unknown, told)) => {
            assert!(shop::is_stale(told.message()))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(state_of_order(db, 1).as_deref(), Some("new"), "the order was not shipped twice");

    db.immediate_transaction(|db| ship(db, 1, lease))?;
    assert_eq!(state_of_order(db, 1).as_deref(), Some("shipped"));
    shop.check_shipped(1);

    // A customer changes his mind.
    db.immediate_transaction(|db| order(db, 2))?;
    let mut cancel = || {
        sql_query(statement("SQLite", "cancel"))
            .bind::<BigInt, _>(NOW)
            .bind::<BigInt, _>(shop.task(2).expect("the task").id.0)
            .bind::<Text, _>("skipped")
            .bind::<Text, _>("not wanted")
            .execute(db)
    };
    cancel()?;
    let refused = cancel().expect_err("it was cancelled before").to_string();
    assert!(refused.starts_with("stationmaster: cancelled like this before"), "{refused}");
    shop.check_cancelled(2);
    println!("diesel, SQLite: orders and tasks committed and vanished together");
    Ok(())
}
