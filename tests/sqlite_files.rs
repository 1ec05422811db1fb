//! What the SQLite store does with files: its own, newer ones, and those of others.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::error::StoreErrorKind;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::store::sqlite::rusqlite::{Connection, TransactionBehavior, config::DbConfig};
use stationmaster::store::sqlite::{Prefix, SqliteOptions, SqliteTx, migrate, migrations_sql_from};
use stationmaster::store::{Durability, SqliteStore, Store};
use stationmaster::testing::raw;
use stationmaster::{Error, LeaseRef, NewTask, TaskId, TaskKey, Timestamp};

/// Every file of a folder with its bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

fn kind(error: Error) -> StoreErrorKind {
    match error {
        Error::Store(error) => error.kind(),
        other => panic!("{other}"),
    }
}

fn open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(path, SqliteOptions::new())
}

/// Opens the file, which must be refused and left as it is.
fn refused(dir: &Path, path: &Path, expected: StoreErrorKind) {
    let before = files(dir);
    let error = open(path).unwrap_err();
    assert!(error.to_string().contains("untouched"), "{error}");
    assert_eq!(kind(error), expected);
    assert_eq!(files(dir), before, "nothing was written, nothing was left behind");
}

#[test]
fn a_newer_schema_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    drop(open(&path).unwrap());
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("INSERT INTO sm_migration VALUES (2, '0002_future', 'x', 0, 2)").unwrap();
    drop(conn);
    refused(dir.path(), &path, StoreErrorKind::Schema);
}

#[test]
fn a_newer_schema_that_is_still_in_the_log_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    drop(open(&path).unwrap());
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("INSERT INTO sm_migration VALUES (2, '0002_future', 'x', 0, 2)").unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    drop(conn);
    let before = files(dir.path());
    assert!(!before["jobs.db-wal"].is_empty());
    assert_eq!(kind(open(&path).unwrap_err()), StoreErrorKind::Schema);
    let after = files(dir.path());
    for name in ["jobs.db", "jobs.db-wal"] {
        assert!(before[name] == after[name], "{name}");
    }
}

#[test]
fn tables_of_the_prefix_that_are_not_ours_are_refused_untouched() {
    for journal in ["WAL", "DELETE"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(&format!("PRAGMA journal_mode = {journal}; CREATE TABLE sm_task (x)")).unwrap();
        drop(conn);
        refused(dir.path(), &path, StoreErrorKind::Schema);
    }
}

#[test]
fn what_is_no_database_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    for text in ["x".repeat(5000), "SQLite format 3\0 but short".into()] {
        std::fs::write(&path, text).unwrap();
        refused(dir.path(), &path, StoreErrorKind::Corrupt);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_may_not_be_read_or_written_is_refused_untouched() {
    use std::os::unix::fs::PermissionsExt;
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    for (folder, file) in [(0o777, 0o444), (0o777, 0o000), (0o555, 0o666), (0o555, 0o444), (0o555, 0o000)] {
        for journal in ["WAL", "DELETE"] {
            for table in ["sm_task", "app"] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("other.db");
                let conn = Connection::open(&path).unwrap();
                conn.execute_batch(&format!("PRAGMA journal_mode = {journal}; CREATE TABLE {table} (x)"))
                    .unwrap();
                drop(conn);
                let before = files(dir.path());
                allow(&path, file);
                allow(dir.path(), folder);
                let opened = path.clone();
                let answer = std::thread::spawn(move || {
                    // To root everything is allowed. Who is not root cannot become somebody else, and need not.
                    let _ = rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(65534));
                    open(&opened).map(drop)
                });
                let refused = kind(answer.join().unwrap().unwrap_err());
                allow(dir.path(), 0o777);
                allow(&path, 0o666);
                let expected = match (file, table) {
                    (0o000, _) => StoreErrorKind::Io,
                    (_, "app") => StoreErrorKind::ReadOnly,
                    _ => StoreErrorKind::Schema,
                };
                let after = files(dir.path());
                let case = format!("{folder:o} {file:o} {journal} {table}");
                assert_eq!(refused, expected, "{case}");
                assert!(before["other.db"] == after["other.db"], "{case}");
                assert!(table == "app" || before == after, "{case}: nothing was left behind");
            }
        }
    }
}

#[test]
fn a_database_of_somebody_else_gets_our_tables_beside_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE app (x); INSERT INTO app VALUES (7); PRAGMA user_version = 42").unwrap();
    let store = open(&path).unwrap();
    assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
    let left: (i64, i64) = conn
        .query_row("SELECT x, (SELECT user_version FROM pragma_user_version) FROM app", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(left, (7, 42));
}

/// A store with a large pool description that was replaced by a small one.
fn with_free_pages(path: &Path) -> SqliteStore {
    let store = open(path).unwrap();
    for text in ["x".repeat(1 << 20), "y".into()] {
        let pool = PoolSpec::new("p", Slots::Limited(1)).unwrap().described(text);
        store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
    }
    store
}

#[test]
fn a_backup_made_beside_a_live_store_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backup) = (dir.path().join("jobs.db"), dir.path().join("backup.db"));
    let store = with_free_pages(&path);
    Connection::open(&path).unwrap().execute("VACUUM INTO ?1", [backup.to_str()]).unwrap();
    store.write(|tx| tx.define([PoolSpec::new("later", Slots::Limited(1))?], IfExists::Replace)).unwrap();
    let pools = |store: &SqliteStore| store.read(|tx| Ok((tx.audit()?, tx.all_pools()?.len()))).unwrap();
    assert_eq!(pools(&open(&backup).unwrap()), (vec![], 2));
    assert_eq!(pools(&store), (vec![], 3));
}

#[test]
fn a_file_is_made_smaller_beside_a_live_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = with_free_pages(&path);
    let conn = Connection::open(&path).unwrap();
    let size = || {
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        std::fs::metadata(&path).unwrap().len()
    };
    let before = size();
    assert!(before > 1 << 20, "{before}: nothing was given back");
    conn.execute_batch("VACUUM").unwrap();
    assert!(size() < before / 2);
    store.write(|tx| tx.define([PoolSpec::new("later", Slots::Limited(1))?], IfExists::Replace)).unwrap();
    assert_eq!(store.read(|tx| Ok((tx.audit()?, tx.all_pools()?.len()))).unwrap(), (vec![], 3));
}

#[test]
fn two_prefixes_are_two_stores_in_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let with =
        |prefix| SqliteStore::open(&path, SqliteOptions::new().prefix(Prefix::new(prefix).unwrap())).unwrap();
    let (a, b) = (with("sm_"), with("sm_other_"));
    a.write(|tx| tx.define([PoolSpec::new("only a", Slots::Limited(1))?], IfExists::Replace)).unwrap();
    assert_eq!(a.read(|tx| tx.all_pools()).unwrap().len(), 2);
    assert_eq!(b.read(|tx| tx.all_pools()).unwrap().len(), 1);
    drop((a, b));
    assert_eq!(with("sm_").read(|tx| tx.all_pools()).unwrap().len(), 2);
}

#[test]
fn everything_is_there_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let key = TaskKey::new("n'\"s", "w\u{202E}", "r\n", "😀 ").unwrap().mapped(u32::MAX);
    let task = NewTask::new(key.clone())
        .priority(i32::MIN)
        .payload("p")
        .check(Timestamp::from_micros(i64::MIN))
        .unwrap();
    let store = open(&path).unwrap();
    store.write(|tx| Ok(raw(tx).insert_tasks_if_absent(std::slice::from_ref(&task))?)).unwrap();
    let before = store.read(|tx| tx.tasks(std::slice::from_ref(&key))).unwrap();
    assert!(before[0].as_ref().is_some_and(|found| found.key == key && found.payload == "p"));
    drop(store);
    assert_eq!(files(dir.path()).into_keys().collect::<Vec<_>>(), ["jobs.db"], "the log is gone");
    let again = open(&path).unwrap();
    assert_eq!(again.read(|tx| tx.tasks(std::slice::from_ref(&key))).unwrap(), before);
}

#[test]
fn a_sensor_whose_context_was_changed_behind_the_store_is_not_poked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = open(&path).unwrap();
    let (now, key) = (Timestamp::UNIX_EPOCH, TaskKey::new("n", "w", "r", "t").unwrap());
    let context = PokeContext::from_json(r#"{"path":"/data/a"}"#).unwrap();
    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap();
    let sensor = NewSensor::new(LeaseRef::new(TaskId(1), 0), "file".try_into().unwrap(), context, settings);
    store
        .write(|tx| {
            raw(tx).insert_tasks_if_absent(&[NewTask::new(key.clone()).check(now)?])?;
            Ok(raw(tx).put_sensors(&[sensor.insert(now)])?)
        })
        .unwrap();
    let read = || store.read(|tx| tx.sensors(std::slice::from_ref(&key)));
    assert_eq!(read().unwrap()[0].as_ref().map(|sensor| &sensor.context), Some(&sensor.context));

    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("UPDATE sm_sensor SET context = replace(context, '/a', '/b')").unwrap();
    assert_eq!(kind(read().unwrap_err()), StoreErrorKind::Corrupt);
}

#[test]
fn a_folder_and_a_file_in_a_folder_that_is_not_there_are_io_errors() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(&dir.path().join("no/such/jobs.db")).unwrap_err();
    assert_eq!(kind(error), StoreErrorKind::Io);
    assert_eq!(kind(open(dir.path()).unwrap_err()), StoreErrorKind::Io);
    assert_eq!(kind(open(Path::new(":memory:")).unwrap_err()), StoreErrorKind::Backend);
}

#[test]
fn the_info_tells_what_a_commit_survives() {
    let dir = tempfile::tempdir().unwrap();
    let durability = |name: &str, synchronous| {
        let options = SqliteOptions::new().durability(synchronous);
        SqliteStore::open(dir.path().join(name), options).unwrap().info().durability
    };
    assert_eq!(durability("full.db", Durability::Power), Durability::Power);
    assert_eq!(durability("normal.db", Durability::Process), Durability::Process);
    let memory = SqliteStore::in_memory(SqliteOptions::new()).unwrap().info();
    assert_eq!((memory.durability, memory.schema), (Durability::None, 1));
}

#[test]
fn many_open_one_new_file_at_once() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let store = open(&path).unwrap();
                    assert_eq!(store.read(|tx| tx.all_pools()).unwrap().len(), 1);
                });
            }
        });
    }
}

/// As a newer version of the crate does it: first what this one can go on beside, then what it cannot.
#[test]
fn a_store_that_is_open_goes_on_beside_a_newer_schema_until_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = open(&path).unwrap();
    let put = |store: &SqliteStore| {
        store.write(|tx| tx.define([PoolSpec::new("p", Slots::Limited(1))?], IfExists::Replace)).map(drop)
    };
    let mut host = Connection::open(&path).unwrap();
    let expand =
        "ALTER TABLE sm_pool ADD COLUMN later TEXT; CREATE TABLE sm_version_2 (one INTEGER PRIMARY KEY);
        INSERT INTO sm_migration VALUES (2, '0002_later', 'x', 0, 1);";
    host.execute_batch(expand).unwrap();
    put(&store).unwrap();
    put(&open(&path).unwrap()).unwrap();

    let contract = "DROP TABLE sm_version_1; INSERT INTO sm_migration VALUES (3, '0003_less', 'x', 0, 2);";
    host.execute_batch(contract).unwrap();
    let tx = host.transaction().unwrap();
    let refused = [
        put(&store).unwrap_err(),
        store.read(|tx| tx.all_pools()).unwrap_err(),
        open(&path).unwrap_err(),
        SqliteTx::attach(&tx, &Prefix::default()).unwrap_err().into(),
    ];
    for refused in refused {
        let text = refused.to_string();
        assert!(text.contains("works at 2 or later") && text.contains("stop this process"), "{text}");
        assert_eq!(kind(refused), StoreErrorKind::Schema);
    }
}

#[test]
fn a_file_is_opened_for_reading_alone_and_stays_as_it_is() {
    let options = || SqliteOptions::new().read_only(true);
    for journal in ["WAL", "DELETE"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let missing = SqliteStore::open(&path, options()).unwrap_err();
        assert_eq!(kind(missing), StoreErrorKind::Io);
        assert!(files(dir.path()).is_empty(), "it was not created");

        let mut host = Connection::open(&path).unwrap();
        host.execute_batch(&format!("PRAGMA journal_mode = {journal}; CREATE TABLE app (x)")).unwrap();
        let none = SqliteStore::open(&path, options()).unwrap_err();
        assert!(none.to_string().contains("create them with `sqlite::migrate`"), "{none}");
        migrate(&host, &Prefix::default()).unwrap();
        let task = NewTask::new(TaskKey::new("n", "w", "r", "t").unwrap());
        let enqueue = |host: &mut Connection| {
            let tx = host.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            let mut ours = SqliteTx::attach(&tx, &Prefix::default()).unwrap();
            ours.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task)).unwrap();
            drop(ours);
            tx.commit().unwrap();
        };
        // Reading the bytes here would cost the connections their locks.
        let written_at = || std::fs::metadata(&path).unwrap().modified().unwrap();
        let before = written_at();
        {
            let store = SqliteStore::open(&path, options()).unwrap();
            assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
            let written =
                store.write(|tx| tx.define([PoolSpec::new("p", Slots::Limited(1))?], IfExists::Replace));
            assert_eq!(kind(written.unwrap_err()), StoreErrorKind::ReadOnly, "{journal}");
            assert_eq!(written_at(), before, "{journal}");
            enqueue(&mut host);
            let found = store.read(|tx| tx.tasks(std::slice::from_ref(&task.key))).unwrap();
            assert!(found[0].is_some(), "{journal}: it sees what others commit");
        }
        let mode: String = host.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(mode.to_uppercase(), journal);
    }
}

#[test]
fn a_host_that_migrates_itself_learns_what_is_missing() {
    let options = || SqliteOptions::new().apply_migrations(false);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    assert_eq!(kind(SqliteStore::open(&path, options()).unwrap_err()), StoreErrorKind::Io);
    assert!(files(dir.path()).is_empty(), "it was not created");
    let host = Connection::open(&path).unwrap();
    host.execute_batch("CREATE TABLE app (x)").unwrap();
    assert_eq!(kind(SqliteStore::open(&path, options()).unwrap_err()), StoreErrorKind::Schema);
    let mode: String = host.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete", "what was refused is left as it was");
    host.execute_batch(&format!("BEGIN; {} COMMIT", migrations_sql_from(&Prefix::default(), 0))).unwrap();
    let store = SqliteStore::open(&path, options()).unwrap();
    store.write(|tx| tx.define([PoolSpec::new("p", Slots::Limited(1))?], IfExists::Replace)).unwrap();
}
