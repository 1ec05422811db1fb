//! Its orders and our tasks in one PostgreSQL database and one transaction.

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{PgConnection, Row};

use crate::server::Server;
use crate::shop::{self, Lease, NOW};

async fn order(server: &Server, db: &mut PgConnection, id: i64) -> Result<(i64, bool), sqlx::Error> {
    let insert = server.named("INSERT INTO stationmaster.orders VALUES ($1, 'new')");
    sqlx::query(insert).bind(id).execute(&mut *db).await?;
    let row = sqlx::query(server.statement("enqueue"))
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
        .fetch_one(db)
        .await?;
    Ok((row.get("id"), row.get("is_new")))
}

async fn ship(server: &Server, db: &mut PgConnection, id: i64, lease: Lease) -> Result<(), sqlx::Error> {
    let update = server.named("UPDATE stationmaster.orders SET state = 'shipped' WHERE id = $1");
    sqlx::query(update).bind(id).execute(&mut *db).await?;
    sqlx::query(server.statement("finish"))
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

async fn state_of_order(server: &Server, pool: &PgPool, id: i64) -> Option<String> {
    let select = server.named("SELECT state FROM stationmaster.orders WHERE id = $1");
    let row = sqlx::query(select).bind(id).fetch_optional(pool).await;
    row.expect("the orders can be read").map(|row| row.get(0))
}

/// The SQLSTATE of a refusal.
fn code(refused: &sqlx::Error) -> String {
    let refused = refused.as_database_error().expect("the database said so");
    assert!(refused.message().starts_with("stationmaster: "), "{refused}");
    refused.code().expect("a code").into_owned()
}

pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new("sqlx");
    let pool = PgPoolOptions::new().max_connections(2).connect(&server.url).await?;
    let shop = server.shop();
    let create = "CREATE TABLE stationmaster.orders (id BIGINT PRIMARY KEY, state TEXT NOT NULL)";
    sqlx::raw_sql(server.named(create)).execute(&pool).await?;

    let mut tx = pool.begin().await?;
    order(&server, &mut tx, 1).await?;
    tx.rollback().await?;
    assert_eq!((state_of_order(&server, &pool, 1).await, shop.task(1)), (None, None));

    let mut tx = pool.begin().await?;
    let (id, is_new) = order(&server, &mut tx, 1).await?;
    tx.commit().await?;
    assert_eq!(state_of_order(&server, &pool, 1).await.as_deref(), Some("new"));
    assert_eq!((Some(id), is_new), (shop.task(1).map(|task| task.id.0), true));
    let stale = shop.admit(1);
    shop.lose();
    let lease = shop.admit(1);

    let row = sqlx::query(server.statement("status"))
        .bind(shop::NAMESPACE)
        .bind(shop::WORKFLOW)
        .bind("1")
        .bind(shop::TASK)
        .bind(None::<i64>)
        .fetch_one(&pool)
        .await?;
    assert_eq!((row.get::<i64, _>("epoch"), row.get::<String, _>("state")), (lease.epoch, "queued".into()));
    sqlx::query(server.statement("start")).bind(NOW).bind(lease.id).bind(lease.epoch).execute(&pool).await?;
    let row = sqlx::query(server.statement("status_by_id")).bind(lease.id).fetch_one(&pool).await?;
    assert_eq!(row.get::<String, _>("state"), "running");

    let mut tx = pool.begin().await?;
    let refused = ship(&server, &mut tx, 1, stale).await.expect_err("the lease is stale");
    assert_eq!(code(&refused), "SM001");
    tx.rollback().await?;
    assert_eq!(state_of_order(&server, &pool, 1).await.as_deref(), Some("new"), "it was not shipped twice");

    let mut tx = pool.begin().await?;
    ship(&server, &mut tx, 1, lease).await?;
    tx.commit().await?;
    assert_eq!(state_of_order(&server, &pool, 1).await.as_deref(), Some("shipped"));
    let mut tx = pool.begin().await?;
    let refused = ship(&server, &mut tx, 1, lease).await.expect_err("it was shipped");
    assert_eq!(code(&refused), "SM002");
    tx.rollback().await?;
    shop.check_shipped(1);

    // A customer changes his mind.
    let mut tx = pool.begin().await?;
    let (id, _) = order(&server, &mut tx, 2).await?;
    tx.commit().await?;
    let cancel =
        || sqlx::query(server.statement("cancel")).bind(NOW).bind(id).bind("skipped").bind("not wanted");
    cancel().execute(&pool).await?;
    let refused = cancel().execute(&pool).await.expect_err("it was cancelled before");
    assert_eq!(code(&refused), "SM002");
    shop.check_cancelled(2);

    // A delivery of many.
    let orders = (3..6).map(|id| {
        format!(
            r#"{{"namespace":"{}","workflow":"{}","run":"{id}","task":"{}","payload":"{{\"order\":{id}}}"}}"#,
            shop::NAMESPACE,
            shop::WORKFLOW,
            shop::TASK
        )
    });
    let list = format!("[{}]", orders.collect::<Vec<_>>().join(","));
    let rows = sqlx::query(server.statement("enqueue_many")).bind(NOW).bind(list).fetch_all(&pool).await?;
    assert_eq!(rows.len(), 3);
    sqlx::query(server.statement("wake")).execute(&pool).await?;
    let leases = shop.admit_all(&[3, 4, 5]);
    let (ids, epochs): (Vec<i64>, Vec<i64>) = leases.iter().map(|lease| (lease.id, lease.epoch)).unzip();
    sqlx::query(server.statement("start_many")).bind(NOW).bind(&ids).bind(&epochs).execute(&pool).await?;
    sqlx::query(server.statement("finish_many"))
        .bind(NOW)
        .bind(&ids)
        .bind(&epochs)
        .bind(vec!["success"; 3])
        .bind(vec!["by air"; 3])
        .bind(None::<Vec<String>>)
        .bind(None::<Vec<i64>>)
        .execute(&pool)
        .await?;
    (3..6).for_each(|id| shop.check_shipped(id));

    drop(shop);
    sqlx::raw_sql(server.drop_schema()).execute(&pool).await?;
    println!("sqlx, PostgreSQL: orders and tasks committed and vanished together");
    Ok(())
}
