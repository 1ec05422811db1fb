//! Scenes of several processes on one file. The programs in `tests/hosts` play them too, each on a SQLite of its own.
//!
//! In write-ahead mode every connection keeps a shared lock on the file. It tells the last connection of another process
//! that it is not the last of all. Without that lock the other process deletes the log under the connections that are
//! still there, and what they commit from then on is lost.

#[allow(dead_code, reason = "each program uses its own part")]
#[path = "../respawn/mod.rs"]
mod respawn;

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use respawn::{Respawned, say};
use stationmaster::admission::IfExists;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::Durability;
use stationmaster::store::SqliteStore;
use stationmaster::store::sqlite::rusqlite::Connection;
use stationmaster::store::sqlite::{Prefix, SqliteOptions};
use stationmaster::{Error, error::StoreErrorKind};

/// How many commits the first process and the third one make after the second has ended.
const FIRST: usize = 50;
const THIRD: usize = 60;

/// What the first process does with the file: the store that it then commits to, and whatever else it keeps open.
type Scene = fn(&Path) -> (SqliteStore, Vec<Box<dyn Any>>);

const SCENES: &[(&str, Scene)] = &[
    ("a second store", |path| {
        let first = open(path);
        put(&first, "before", 1);
        (open(path), vec![Box::new(first)])
    }),
    ("a store with another prefix", |path| {
        let first = with_prefix(path, "other_").unwrap();
        put(&first, "before", 1);
        (open(path), vec![Box::new(first)])
    }),
    ("a connection of the host's, then a store", |path| {
        let host = host(path);
        (open(path), vec![Box::new(host)])
    }),
    ("a pool of the host's, then a store", |path| {
        let spawned: Vec<_> =
            (0..4).map(|_| path.to_owned()).map(|path| spawn(move || host(&path))).collect();
        let pool: Vec<Connection> = spawned.into_iter().map(|thread| thread.join().unwrap()).collect();
        (open(path), vec![Box::new(pool)])
    }),
    ("a store that is opened and dropped", |path| {
        let first = open(path);
        put(&first, "before", 1);
        drop(open(path));
        (first, vec![])
    }),
    ("a store that is refused: the tables are others'", |path| {
        let first = open(path);
        put(&first, "before", 1);
        host(path).execute_batch("CREATE TABLE taken_task (x)").unwrap();
        assert_eq!(kind(with_prefix(path, "taken_").unwrap_err()), StoreErrorKind::Schema);
        (first, vec![])
    }),
    ("a store that is refused: the schema is newer", |path| {
        let first = open(path);
        put(&first, "before", 1);
        drop(with_prefix(path, "newer_").unwrap());
        let later = "INSERT INTO newer_migration VALUES (2, '0002_later', 'x', 0, 2)";
        host(path).execute_batch(later).unwrap();
        assert_eq!(kind(with_prefix(path, "newer_").unwrap_err()), StoreErrorKind::Schema);
        (first, vec![])
    }),
];

/// How the first process ends.
const ENDS: [&str; 2] = ["killed", "closed"];

/// Plays every scene; `entry` is where the program calls [`part`].
pub fn play(entry: &str) {
    for (scene, _) in SCENES {
        for end in ENDS {
            play_one(entry, scene, end);
        }
    }
    for journal in ["none", "rollback"] {
        a_write_transaction_of_the_host_keeps_its_lock(entry, journal);
    }
}

/// Plays the part of another process, if this is one. Its caller returns if it returns true.
pub fn part() -> bool {
    let Some(argument) = respawn::argument() else { return false };
    let words: Vec<&str> = argument.split('\n').collect();
    match words[..] {
        ["first", entry, scene, end, path] => first(entry, scene, end, Path::new(path)),
        ["other", name, count, path] => put(&open(Path::new(path)), name, count.parse().unwrap()),
        ["locked", path] => {
            let conn = Connection::open(path).unwrap();
            conn.busy_timeout(Duration::ZERO).unwrap();
            say(&format!("locked={}", conn.execute_batch("BEGIN IMMEDIATE").is_err()));
        }
        _ => panic!("{argument}"),
    }
    true
}

fn first(entry: &str, scene: &str, end: &str, path: &Path) {
    let (_, play) = SCENES.iter().find(|(name, _)| *name == scene).unwrap();
    let (store, _held) = play(path);
    put(&store, "mine", 1);
    other(entry, &format!("other\nsecond\n1\n{}", path.display()));
    let has_log = path.with_extension("db-wal").exists();
    put(&store, "first", FIRST);
    other(entry, &format!("other\nthird\n{THIRD}\n{}", path.display()));
    say(&format!("log={has_log} lock={}", has_lock(path)));
    if end == "killed" {
        loop {
            std::thread::park();
        }
    }
}

fn play_one(entry: &str, scene: &str, end: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    drop(open(&path));
    let child = Respawned::new(entry, &format!("first\n{entry}\n{scene}\n{end}\n{}", path.display()));
    let seen = child.line();
    if seen.is_some() && end == "killed" {
        child.kill()
    } else {
        child.join()
    };

    let found = open(&path).read(|tx| tx.all_pools()).unwrap();
    let of = |name: &str| found.iter().filter(|pool| pool.spec.name.as_str().starts_with(name)).count();
    assert_eq!(
        (of("first"), of("third"), seen.as_deref()),
        (FIRST, THIRD, Some("log=true lock=true")),
        "{scene}, {end}: commits found of the first and the third process, and what the first one saw"
    );
}

/// Before write-ahead mode the lock keeps the second writer out.
fn a_write_transaction_of_the_host_keeps_its_lock(entry: &str, journal: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let host = Connection::open(&path).unwrap();
    if journal == "rollback" {
        host.execute_batch("CREATE TABLE app (x)").unwrap();
    }
    host.execute_batch("BEGIN IMMEDIATE; CREATE TABLE app_2 (x)").unwrap();
    let options = SqliteOptions::new().busy_timeout(Duration::from_millis(10));
    assert_eq!(kind(SqliteStore::open(&path, options).unwrap_err()), StoreErrorKind::Busy);
    let seen = other(entry, &format!("locked\n{}", path.display()));
    assert_eq!(seen, ["locked=true"], "journal: {journal}; a second process cannot write beside the host");
    host.execute_batch("COMMIT").unwrap();
    put(&open(&path), "after", 1);
}

fn other(entry: &str, argument: &str) -> Vec<String> {
    Respawned::new(entry, argument).join()
}

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    std::thread::spawn(work)
}

fn open(path: &Path) -> SqliteStore {
    with_prefix(path, "sm_").unwrap()
}

fn with_prefix(path: &Path, prefix: &str) -> Result<SqliteStore, Error> {
    let options = SqliteOptions::new().durability(Durability::Process).prefix(Prefix::new(prefix).unwrap());
    SqliteStore::open(path, options)
}

/// The host's own connection, which has read and written.
fn host(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn.execute_batch("CREATE TABLE IF NOT EXISTS app (x); INSERT INTO app VALUES (1)").unwrap();
    conn
}

fn put(store: &SqliteStore, name: &str, count: usize) {
    for at in 0..count {
        let pool = PoolSpec::new(format!("{name} {at}"), Slots::Limited(1)).unwrap();
        store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
    }
}

fn kind(error: Error) -> StoreErrorKind {
    match error {
        Error::Store(error) => error.kind(),
        other => panic!("{other}"),
    }
}

/// Whether this process has SQLite's shared lock on the file. Asks the system; only Linux tells.
fn has_lock(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = format!(":{}", std::fs::metadata(path).unwrap().ino());
        let (me, shared) = (std::process::id().to_string(), "1073741826");
        std::fs::read_to_string("/proc/locks").unwrap().lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            matches!(words[..], [_, "POSIX", _, "READ", pid, file, start, _]
                if pid == me && file.ends_with(&inode) && start == shared)
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        true
    }
}
