//! Its orders and our tasks in one PostgreSQL database and one transaction.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_query;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text};

use crate::server::Server;
use crate::shop::{self, Lease, NOW};
use crate::{Status, orders};

#[derive(QueryableByName)]
struct Enqueued {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_new: bool,
}

fn order(server: &Server, db: &mut PgConnection, id: i64) -> QueryResult<Enqueued> {
    diesel::insert_into(orders::table).values((orders::id.eq(id), orders::state.eq("new"))).execute(db)?;
    sql_query(server.statement("enqueue"))
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
        .get_result(db)
}

fn ship(server: &Server, db: &mut PgConnection, id: i64, lease: Lease) -> QueryResult<()> {
    diesel::update(orders::table.find(id)).set(orders::state.eq("shipped")).execute(db)?;
    sql_query(server.statement("finish"))
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

fn state_of_order(db: &mut PgConnection, id: i64) -> Option<String> {
    orders::table.find(id).select(orders::state).first(db).optional().expect("the orders can be read")
}

/// The text of a refusal. diesel does not show the SQLSTATE.
fn refusal<T: std::fmt::Debug>(answer: QueryResult<T>) -> String {
    match answer {
        Err(Error::DatabaseError(DatabaseErrorKind::Unknown, told)) => told.message().to_owned(),
        other => panic!("{other:?}"),
    }
}

pub fn run() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new("diesel");
    let shop = server.shop();
    let mut db = PgConnection::establish(&server.url)?;
    let db = &mut db;
    sql_query(format!("SET search_path = {}", server.schema)).execute(db)?;
    sql_query("CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT NOT NULL)").execute(db)?;

    let undone = db.transaction(|db| {
        order(&server, db, 1)?;
        Err::<(), _>(Error::RollbackTransaction)
    });
    assert_eq!((undone, state_of_order(db, 1), shop.task(1)), (Err(Error::RollbackTransaction), None, None));

    let enqueued = db.build_transaction().serializable().run(|db| order(&server, db, 1))?;
    assert_eq!(state_of_order(db, 1).as_deref(), Some("new"));
    assert_eq!((Some(enqueued.id), enqueued.is_new), (shop.task(1).map(|task| task.id.0), true));
    let stale = shop.admit(1);
    shop.lose();
    let lease = shop.admit(1);

    let status: Status = sql_query(server.statement("status"))
        .bind::<Text, _>(shop::NAMESPACE)
        .bind::<Text, _>(shop::WORKFLOW)
        .bind::<Text, _>("1")
        .bind::<Text, _>(shop::TASK)
        .bind::<Nullable<BigInt>, _>(None::<i64>)
        .get_result(db)?;
    assert_eq!((status.epoch, status.state.as_str()), (lease.epoch, "queued"));
    sql_query(server.statement("start"))
        .bind::<BigInt, _>(NOW)
        .bind::<BigInt, _>(lease.id)
        .bind::<BigInt, _>(lease.epoch)
        .execute(db)?;
    let status: Status =
        sql_query(server.statement("status_by_id")).bind::<BigInt, _>(lease.id).get_result(db)?;
    assert_eq!(status.state, "running");

    assert!(shop::is_stale(&refusal(db.transaction(|db| ship(&server, db, 1, stale)))));
    assert_eq!(state_of_order(db, 1).as_deref(), Some("new"), "the order was not shipped twice");
    db.transaction(|db| ship(&server, db, 1, lease))?;
    assert_eq!(state_of_order(db, 1).as_deref(), Some("shipped"));
    let repeated = refusal(db.transaction(|db| ship(&server, db, 1, lease)));
    assert!(repeated.starts_with("stationmaster: finished like this before"), "{repeated}");
    shop.check_shipped(1);

    // A customer changes his mind.
    let enqueued = db.transaction(|db| order(&server, db, 2))?;
    let mut cancel = || {
        sql_query(server.statement("cancel"))
            .bind::<BigInt, _>(NOW)
            .bind::<BigInt, _>(enqueued.id)
            .bind::<Text, _>("skipped")
            .bind::<Text, _>("not wanted")
            .execute(db)
    };
    cancel()?;
    let repeated = refusal(cancel());
    assert!(repeated.starts_with("stationmaster: cancelled like this before"), "{repeated}");
    shop.check_cancelled(2);

    // A delivery of many.
    for id in 3..6 {
        db.transaction(|db| order(&server, db, id))?;
    }
    let leases = shop.admit_all(&[3, 4, 5]);
    let (ids, epochs): (Vec<i64>, Vec<i64>) = leases.iter().map(|lease| (lease.id, lease.epoch)).unzip();
    sql_query(server.statement("finish_many"))
        .bind::<BigInt, _>(NOW)
        .bind::<Array<BigInt>, _>(ids)
        .bind::<Array<BigInt>, _>(epochs)
        .bind::<Array<Text>, _>(vec!["success"; 3])
        .bind::<Array<Text>, _>(vec!["by air"; 3])
        .bind::<Nullable<Array<Text>>, _>(None::<Vec<String>>)
        .bind::<Nullable<Array<BigInt>>, _>(None::<Vec<i64>>)
        .execute(db)?;
    (3..6).for_each(|id| shop.check_shipped(id));

    drop(shop);
    sql_query(server.drop_schema()).execute(db)?;
    println!("diesel, PostgreSQL: orders and tasks committed and vanished together");
    Ok(())
}
