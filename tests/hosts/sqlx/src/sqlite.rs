//! Its orders and our tasks in one SQLite file and one transaction.

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Row, SqliteConnection};

use crate::contract::statement;
use crate::shop::{self, Lease, NOW, Shop};

async fn order(db: &mut SqliteConnection, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO orders VALUES (?1, 'new')").bind(id).execute(&mut *db).await?;
    sqlx::query(statement("SQLite", "enqueue"))
        .bind(NOW)
        .bind(shop::NAMESPACE)
        .bind(shop::WORKFLOW)
        .bind(id.to_string())
        .bind(shop::TASK)
        .bind(None::<i64>)
        .bind("default_pool")
        .bind(1_i64)
        .bind(r#"["carrier"]"#)
        .bind(5_i64)
        .bind(None::<i64>)
        .bind(None::<i64>)
        .bind(None::<i64>)
        .bind(None::<&str>)
        .bind(Some(2_i64))
        .bind(format!("{{\"order\":{id}}}"))
        .bind(None::<&str>)
        .execute(db)
        .await?;
    Ok(())
}

async fn ship(db: &mut SqliteConnection, id: i64, lease: Lease) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE orders SET state = 'shipped' WHERE id = ?1").bind(id).execute(&mut *db).await?;
    sqlx::query(statement("SQLite", "finish"))
        .bind(NOW)
        .bind(lease.id)
        .bind(lease.epoch)
        .bind("success")
        .bind("by air")
        .bind(None::<&str>)
        .bind(None::<i64>)
        .execute(db)
        .await?;
    Ok(())
}

async fn state_of_order(pool: &SqlitePool, id: i64) -> Option<String> {
    let row = sqlx::query("SELECT state FROM orders WHERE id = ?1").bind(id).fetch_optional(pool).await;
    row.expect("the orders can be read").map(|row| row.get(0))
}

pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options).await?;
    sqlx::raw_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)").execute(&pool).await?;
    let shop = Shop::open(&path);

    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    order(&mut tx, 1).await?;
    tx.rollback().await?;
    assert_eq!((state_of_order(&pool, 1).await, shop.task(1)), (None, None));

    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    order(&mut tx, 1).await?;
    tx.commit().await?;
    assert_eq!(state_of_order(&pool, 1).await.as_deref(), Some("new"));
    let stale = shop.admit(1);
    shop.lose();
    let lease = shop.admit(1);

    let row = sqlx::query(statement("SQLite", "status"))
        .bind(shop::NAMESPACE)
        .bind(shop::WORKFLOW)
        .bind("1")
        .bind(shop::TASK)
        .bind(None::<i64>)
        .fetch_one(&pool)
        .await?;
    assert_eq!((row.get::<i64, _>("epoch"), row.get::<String, _>("state")), (lease.epoch, "queued".into()));
    sqlx::query(statement("SQLite", "start"))
        .bind(NOW)
        .bind(lease.id)
        .bind(lease.epoch)
        .execute(&pool)
        .await?;
    let row = sqlx::query(statement("SQLite", "status_by_id")).bind(lease.id).fetch_one(&pool).await?;
    assert_eq!(row.get::<String, _>("state"), "running");

    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let refused = ship(&mut tx, 1, stale).await.expect_err("the lease is stale");
    let refused = refused.as_database_error().expect("the database said so");
    assert_eq!((refused.code().as_deref(), shop::is_stale(refused.message())), (Some("1811"), true));
    tx.rollback().await?;
    assert_eq!(state_of_order(&pool, 1).await.as_deref(), Some("new"), "the order was not shipped twice");

    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    ship(&mut tx, 1, lease).await?;
    tx.commit().await?;
    assert_eq!(state_of_order(&pool, 1).await.as_deref(), Some("shipped"));
    shop.check_shipped(1);

    // A customer changes his mind.
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    order(&mut tx, 2).await?;
    tx.commit().await?;
    let cancel = || {
        let id = shop.task(2).expect("the task").id.0;
        sqlx::query(statement("SQLite", "cancel")).bind(NOW).bind(id).bind("skipped").bind("not wanted")
    };
    cancel().execute(&pool).await?;
    let refused = cancel().execute(&pool).await.expect_err("it was cancelled before");
    let refused = refused.as_database_error().expect("the database said so");
    assert!(refused.message().starts_with("stationmaster: cancelled like this before"), "{refused}");
    shop.check_cancelled(2);
    println!("sqlx, SQLite: orders and tasks committed and vanished together");
    Ok(())
}
