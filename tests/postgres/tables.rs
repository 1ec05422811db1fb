//! The schema: made, checked, refused.

use stationmaster::error::StoreErrorKind;
use stationmaster::store::postgres::tokio_postgres::NoTls;
use stationmaster::store::postgres::{PostgresOptions, Schema, migrate, migrations_sql};
use stationmaster::store::{PostgresStore, Store};

use crate::scratch::{Scratch, query, rows, url, with_client};
use crate::{kind, pools, put};

/// What an opening by these options answers, and whether it left the schema as it was.
fn refusal(scratch: &Scratch, options: PostgresOptions) -> StoreErrorKind {
    let look = format!(
        "SELECT coalesce(string_agg(relname || attname || atttypid, ',' ORDER BY relname, attnum), '') \
         FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid \
         WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = '{}')",
        scratch.0
    );
    let before: String = rows(&look)[0].get(0);
    let refused = PostgresStore::connect(&url(), options).unwrap_err();
    assert_eq!(rows(&look)[0].get::<_, String>(0), before, "{refused}");
    kind(&refused)
}

#[test]
fn newer_and_foreign_tables_are_refused_and_left_untouched() {
    for foreign in [
        "CREATE SCHEMA \"{}\"; CREATE TABLE \"{}\".task (x INT)",
        "CREATE SCHEMA \"{}\"; CREATE VIEW \"{}\".lane AS SELECT 1",
        "CREATE SCHEMA \"{}\"; CREATE TABLE \"{}\".migration (id INT)",
        "SQL; UPDATE \"{}\".migration SET checksum = 'x'",
        "SQL; INSERT INTO \"{}\".migration VALUES (2, '0002_later', 'x', 0, 2)",
        "SQL; INSERT INTO \"{}\".migration VALUES (3, '0003_later', 'x', 0, 1)",
        "SQL; DROP TABLE \"{}\".task CASCADE",
    ] {
        let scratch = Scratch::new();
        let sql = foreign.replace("{}", scratch.0.as_str()).replace("SQL", &migrations_sql(&scratch.0));
        query(&sql);
        assert_eq!(refusal(&scratch, scratch.options()), StoreErrorKind::Schema, "{foreign}");
    }
}

#[test]
fn tables_that_are_missing_are_made_only_if_that_is_wanted() {
    let scratch = Scratch::new();
    let check = scratch.options().apply_migrations(false);
    assert_eq!(refusal(&scratch, check.clone()), StoreErrorKind::Schema);
    query(&migrations_sql(&scratch.0));
    let store = PostgresStore::connect(&url(), check).unwrap();
    put(&store, "p").unwrap();
    assert_eq!((pools(&store), store.info().schema), (1, 1));
}

#[test]
fn a_schema_with_tables_of_the_host_s_is_shared() {
    let scratch = Scratch::new();
    query(&format!("CREATE SCHEMA \"{0}\"; CREATE TABLE \"{0}\".orders (id INT)", scratch.0));
    put(&scratch.open(|options| options), "p").unwrap();
}

#[test]
fn whoever_opens_at_the_same_time_waits_for_the_tables() {
    for _ in 0..3 {
        let scratch = Scratch::new();
        std::thread::scope(|scope| {
            for n in 0..4 {
                let scratch = &scratch;
                scope.spawn(move || put(&scratch.open(|options| options), &n.to_string()).unwrap());
            }
        });
        assert_eq!(pools(&scratch.open(|options| options)), 4);
    }
}

#[test]
fn a_host_migrates_with_a_connection_of_its_own() {
    let scratch = Scratch::new();
    let schema = scratch.0.clone();
    with_client(move |mut client| async move {
        migrate(&mut client, &schema).await.unwrap();
        migrate(&mut client, &schema).await.unwrap();
    });
    let store = scratch.open(|options| options.apply_migrations(false));
    assert_eq!(pools(&store), 0);
    query(&format!("DROP SCHEMA \"{}\" CASCADE", scratch.0));
    assert_eq!(kind(&put(&store, "p").unwrap_err()), StoreErrorKind::Schema);
}

#[test]
fn another_encoding_than_utf_8_is_refused() {
    let name = format!("sm_latin1_{}", std::process::id());
    query(&format!(
        "CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    ));
    let mut config: stationmaster::store::postgres::tokio_postgres::Config = url().parse().unwrap();
    config.dbname(&name);
    let connector = stationmaster::store::postgres::Connector::new(move || {
        let config = config.clone();
        async move { config.connect(NoTls).await }
    });
    let refused = PostgresStore::open(connector, PostgresOptions::new()).unwrap_err();
    query(&format!("DROP DATABASE {name} WITH (FORCE)"));
    assert_eq!(kind(&refused), StoreErrorKind::Schema, "{refused}");
}

/// The grants that the documentation lists are enough.
#[test]
fn a_role_with_the_documented_grants_can_do_everything_but_migrate() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let role = format!("{}_app", scratch.0);
    let grants =
        include_str!("../../docs/postgresql.md").split("<!-- grants -->").nth(1).expect("the grants");
    let grants = grants.replace("```sql", "").replace("```", "").replace("stationmaster", scratch.0.as_str());
    query(&format!("CREATE ROLE {role} LOGIN; {}", grants.replace("jobs_app", &role)));
    let mut config: stationmaster::store::postgres::tokio_postgres::Config = url().parse().unwrap();
    config.user(&role);
    let connector = stationmaster::store::postgres::Connector::new(move || {
        let config = config.clone();
        async move { config.connect(NoTls).await }
    });
    let store = PostgresStore::open(connector, scratch.options().apply_migrations(false));
    let used = store.and_then(|store| {
        put(&store, "p")?;
        store.read(|tx| tx.audit())
    });
    query(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    assert_eq!(used.unwrap(), []);
}

#[test]
fn schemas_are_apart() {
    let (one, other) = (Scratch::new(), Scratch::new());
    let (one_store, other_store) = (one.open(|options| options), other.open(|options| options));
    put(&one_store, "p").unwrap();
    assert_eq!((pools(&one_store), pools(&other_store)), (1, 0));
    assert_ne!(one.0, other.0);
    assert!(Schema::new("Robert'); DROP").is_err());
}

/// For change data capture, and upgrades by logical replication: the server refuses to update a published table without a key.
#[test]
fn a_schema_that_is_published_can_be_written() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let published = format!(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = '{}'",
        scratch.0
    );
    let tables: Vec<String> = rows(&published).iter().map(|row| row.get(0)).collect();
    let publish = format!("CREATE PUBLICATION \"{}\" FOR TABLE {}", scratch.0, tables.join(", "));
    // The server warns where it is not set up for replication; it refuses all the same.
    query(&format!("SET LOCAL client_min_messages = error; {publish}"));
    let written = put(&store, "p");
    let keyless = format!(
        "SELECT relname::text FROM pg_class WHERE relnamespace = '\"{}\"'::regnamespace AND relkind = 'r' \
         AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)",
        scratch.0
    );
    let keyless: Vec<String> = rows(&keyless).iter().map(|row| row.get(0)).collect();
    query(&format!("DROP PUBLICATION \"{}\"", scratch.0));
    written.unwrap();
    assert_eq!(keyless, Vec::<String>::new(), "so nothing else that is updated is refused");
}

/// As a newer version of the crate does it: first what this one can go on beside, then what it cannot.
#[test]
fn a_store_that_is_connected_goes_on_beside_a_newer_schema_until_it_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    put(&store, "a").unwrap();
    query(&format!(
        "ALTER TABLE \"{0}\".pool ADD COLUMN later TEXT; CREATE TABLE \"{0}\".version_2 (one INTEGER PRIMARY KEY); \
         INSERT INTO \"{0}\".migration VALUES (2, '0002_later', 'x', 0, 1)",
        scratch.0
    ));
    put(&store, "b").unwrap();
    put(&scratch.open(|options| options), "c").unwrap();
    query(&format!(
        "DROP TABLE \"{0}\".version_1; INSERT INTO \"{0}\".migration VALUES (3, '0003_less', 'x', 0, 2)",
        scratch.0
    ));
    let refused = |error: stationmaster::Error| {
        let text = error.to_string();
        assert!(text.contains("works at 2 or later") && text.contains("stop this process"), "{text}");
        assert_eq!(kind(&error), StoreErrorKind::Schema);
    };
    for _ in 0..2 {
        refused(put(&store, "d").unwrap_err());
        refused(store.read(|tx| tx.all_pools()).unwrap_err());
    }
    refused(PostgresStore::connect(&url(), scratch.options()).unwrap_err());
    let schema = scratch.0.clone();
    let told = with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        stationmaster::store::postgres::tx(&transaction, &schema, |tx| tx.all_pools()).await.unwrap_err()
    });
    assert_eq!(kind(&told), StoreErrorKind::Schema);
    assert!(told.to_string().contains("stop this process"), "{told}");
}

/// Others would wait behind it, so it gives up early.
#[test]
fn a_step_that_waited_too_long_is_tried_again() {
    let scratch = Scratch::new();
    let schema = scratch.0.clone();
    query(&format!("CREATE SCHEMA \"{schema}\""));
    // Who creates the tables waits for this lock, as a later step would for that of a table.
    let began = std::time::Instant::now();
    let (held, holds) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let name = schema.clone();
        scope.spawn(move || {
            with_client(move |mut client| async move {
                let transaction = client.transaction().await.unwrap();
                let lock = format!("DROP SCHEMA \"{name}\"");
                transaction.batch_execute(&lock).await.unwrap();
                held.send(()).unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
                transaction.rollback().await.unwrap();
            });
        });
        holds.recv().unwrap();
        put(&scratch.open(|options| options), "p").unwrap();
    });
    assert!(began.elapsed() > std::time::Duration::from_secs(2), "it had to wait");
}
