//! Transactions of one statement that are sent as the statement alone.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::{AdmitRequest, Finish, Finished};
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use stationmaster::store::postgres::{Connector, Wake};
use stationmaster::store::{Inserted, PostgresStore};
use stationmaster::{LeaseRef, Result, TaskRecord, TaskState, Timestamp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::interrupted::interrupted;
use crate::scratch::rekeyed::dial;
use crate::scratch::{Scratch, query, rows, url, with_client};
use crate::{kind, pool, pools, task};

/// Keeps what the client says.
struct Heard {
    stream: TcpStream,
    said: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = written {
            self.said.lock().unwrap().extend(&buf[..count]);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A store with one connection, and what is said on it.
struct Side {
    store: PostgresStore,
    said: Arc<Mutex<Vec<u8>>>,
    scratch: Scratch,
}

impl Side {
    fn open() -> Self {
        Self::with("")
    }

    /// `settings` are those that the role or the database has.
    fn with(settings: &str) -> Self {
        let (said, scratch) = (Arc::<Mutex<Vec<u8>>>::default(), Scratch::new());
        let mut config: Config = url().parse().unwrap();
        config.options(settings);
        let heard = Arc::clone(&said);
        let connector = Connector::new(move || {
            let (said, config) = (Arc::clone(&heard), config.clone());
            async move {
                let stream = Heard { stream: dial(&config).await?, said };
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(config.connect_raw(stream, NoTls).await?)
            }
        });
        let options = scratch.options().connections(1).wake(Wake::Never);
        Self { store: PostgresStore::open(connector, options).unwrap(), said, scratch }
    }

    fn enqueue(&self, name: &str) -> Result<Inserted> {
        let inserted =
            self.store.write(|tx| tx.last(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task(name)])))?;
        Ok(inserted[0].clone())
    }

    /// Has this many tasks granted and started.
    fn leases(&self, count: usize) -> Vec<LeaseRef> {
        let tasks: Vec<_> = (0..count).map(|nth| task(&format!("leased {nth}"))).collect();
        let holder = "h".try_into().unwrap();
        let order =
            AdmitRequest::new(holder, "t".try_into().unwrap(), count, Duration::from_secs(60)).started();
        self.store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
        let granted = self.store.write(|tx| tx.admit(Timestamp::from_micros(1), &order)).unwrap().granted;
        granted.iter().map(TaskRecord::lease_ref).collect()
    }

    fn finish(&self, leases: &[LeaseRef]) -> Result<()> {
        let ends: Vec<_> = leases.iter().map(|lease| Finish::success(*lease)).collect();
        let ended = self.store.write(|tx| tx.last(|tx| tx.finish(Timestamp::from_micros(2), &ends)))?;
        assert_eq!(ended, vec![Finished::Ended(TaskState::Success); leases.len()]);
        Ok(())
    }

    /// Makes a tick after that of [`Self::leases`].
    fn tick(&self, name: &str) {
        let holder = "h".try_into().unwrap();
        let order = AdmitRequest::new(holder, name.try_into().unwrap(), 3, Duration::from_secs(60));
        let order = order.started().answered("t".try_into().unwrap());
        self.store.write(|tx| tx.last(|tx| tx.admit(Timestamp::from_micros(1), &order))).unwrap();
    }

    /// Enqueues new tasks until statements are sent alone.
    fn warm(&self) {
        let before = self.tasks();
        for nth in before..before + 3 {
            assert!(is_new(self.enqueue(&format!("warm {nth}")).unwrap()));
        }
        let alone = self.words(|| assert!(is_new(self.enqueue(&format!("warm {}", before + 3)).unwrap())));
        assert_eq!(alone, [0, 0, 0], "it is sent alone");
    }

    /// How often each word was said during `work`: of a begun transaction, of its commit, and of the setting.
    fn words(&self, work: impl FnOnce()) -> [usize; 3] {
        self.said.lock().unwrap().clear();
        work();
        let said = self.said.lock().unwrap();
        let count = |word: &str| said.windows(word.len()).filter(|part| *part == word.as_bytes()).count();
        ["BEGIN", "COMMIT\0", "SET default_transaction_read_only"].map(count)
    }

    fn sql(&self, text: &str) {
        query(&text.replace("sm.", &format!("\"{}\".", self.scratch.0)));
    }

    fn tasks(&self) -> i64 {
        rows(&format!("SELECT count(*) FROM \"{}\".task", self.scratch.0))[0].get(0)
    }

    /// Waits until a lock of these is in the server's list.
    fn until_locked(&self, table: &str, condition: &str) {
        let schema = &self.scratch.0;
        let locked =
            format!("SELECT FROM pg_locks WHERE relation = '\"{schema}\".{table}'::regclass AND {condition}");
        until_found(&locked);
    }

    /// Holds a table until `work` is done.
    fn holding<T>(&self, table: &str, work: impl FnOnce() -> T) -> T {
        let lock = format!("BEGIN; LOCK TABLE \"{}\".{table}", self.scratch.0);
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                with_client(move |client| async move {
                    client.batch_execute(&lock).await.unwrap();
                    let _ = is_done.recv();
                    client.batch_execute("ROLLBACK").await.unwrap();
                });
            });
            self.until_locked(table, "granted AND mode = 'AccessExclusiveLock'");
            let worked = work();
            drop(done);
            worked
        })
    }
}

/// Waits until a query returns a row.
fn until_found(query: &str) {
    let patience = Instant::now() + Duration::from_secs(9);
    while rows(query).is_empty() {
        assert!(Instant::now() < patience, "no row after 9 s: {query}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn is_new(inserted: Inserted) -> bool {
    matches!(inserted, Inserted::New(_))
}

#[test]
fn the_third_of_single_statements_in_a_row_is_sent_alone() {
    let side = Side::open();
    let enqueue = |name: &str| side.words(|| assert!(is_new(side.enqueue(name).unwrap()), "{name}"));
    enqueue("prepares");
    assert_eq!(enqueue("second"), [1, 1, 0]);
    assert_eq!(enqueue("third"), [0, 0, 1], "the session may write from now on");
    assert_eq!(enqueue("fourth"), [0, 0, 0]);
    let read = side.words(|| drop(side.store.read(|tx| tx.all_pools()).unwrap()));
    assert_eq!(read[0], 1);
    assert_eq!(read[2], 1, "before the next BEGIN it may no longer");
    assert_eq!(enqueue("after a read"), [1, 1, 0]);
    // A task that is there is found in a transaction of its own, and for a while no commit goes along.
    side.warm();
    assert!(!is_new(side.enqueue("third").unwrap()));
    assert_eq!(enqueue("apart"), [1, 1, 0]);
    assert_eq!(side.store.read(|tx| tx.audit()).unwrap(), []);
}

/// What is sent along with a BEGIN that fails has no effect, also right after statements alone.
#[test]
fn a_session_of_a_version_that_is_refused_writes_nothing() {
    let side = Side::open();
    side.warm();
    side.sql("ALTER TABLE sm.version_1 RENAME TO version_gone");
    let refused = side.store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace));
    assert_eq!(kind(&refused.unwrap_err()), StoreErrorKind::Schema);
    side.sql("ALTER TABLE sm.version_gone RENAME TO version_1");
    assert_eq!(pools(&side.store), 0);
    side.warm();
    let tasks = side.tasks();
    side.sql("ALTER TABLE sm.version_1 RENAME TO version_gone");
    assert_eq!(kind(&side.enqueue("alone").unwrap_err()), StoreErrorKind::Schema);
    assert_eq!(side.tasks(), tasks);
}

/// A step that refuses this version waits for the statement, or the statement for the step. It holds nothing else then,
/// so neither can wait for the other.
#[test]
fn a_statement_alone_locks_the_gate_before_everything_else() {
    let side = Side::open();
    let leases = side.leases(9);
    let ends = |leases: &[LeaseRef]| side.finish(leases).unwrap();
    let verbs: [(&str, &(dyn Fn(usize) + Sync)); 4] = [
        // First, while there is little to fold.
        ("a tick", &|nth| side.tick(&format!("{nth}"))),
        ("an enqueue", &|nth| assert!(is_new(side.enqueue(&format!("{nth}")).unwrap()))),
        ("an end", &|nth| ends(&leases[nth..=nth])),
        ("two ends", &|nth| ends(&leases[3 + 2 * nth..5 + 2 * nth])),
    ];
    for (name, verb) in verbs {
        side.warm();
        // Prepares it.
        verb(0);
        assert_eq!(side.words(|| verb(2)), [0, 0, 0], "{name}");
        thread::scope(|scope| {
            let waiting = side.holding("version_1", || {
                let waiting = scope.spawn(|| verb(1));
                side.until_locked("version_1", "NOT granted");
                let held = rows(&format!(
                    "SELECT relation::regclass::text FROM pg_locks WHERE granted AND locktype = 'relation' \
                     AND pid IN (SELECT pid FROM pg_locks WHERE NOT granted AND relation = '\"{}\".version_1'::regclass)",
                    side.scratch.0
                ));
                let held: Vec<String> = held.iter().map(|row| row.get(0)).collect();
                assert!(held.is_empty(), "{name} holds {held:?}");
                waiting
            });
            waiting.join().unwrap();
        });
    }
    thread::scope(|scope| {
        let enqueued = side.holding("ready", || {
            let enqueued = scope.spawn(|| side.enqueue("in the middle"));
            side.until_locked("ready", "NOT granted");
            side.until_locked("version_1", "granted AND mode = 'AccessShareLock'");
            enqueued
        });
        assert!(is_new(enqueued.join().unwrap().unwrap()));
    });
    assert_eq!(side.store.read(|tx| tx.audit()).unwrap(), []);
}

/// What was sent may have been done, unless it was to be followed by more.
#[test]
fn a_connection_that_is_lost_at_the_setting_is_replaced() {
    let scratch = Scratch::new();
    let hang_up = interrupted(b"SET default_transaction_read_only = on\0", |_, _, _| {});
    let store = PostgresStore::open(hang_up, scratch.options().connections(1).wake(Wake::Never)).unwrap();
    for nth in 0..4 {
        let tasks = [task(&format!("{nth}"))];
        store.write(|tx| tx.last(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks))).unwrap();
    }
    assert_eq!(pools(&store), 0, "it is read again on another connection");
}

/// At a stricter level it would have to run again whenever another transaction was first.
#[test]
fn a_statement_alone_is_read_committed_whatever_the_role_has_set() {
    for level in ["serializable", "repeatable\\ read"] {
        let side = Side::with(&format!("-c default_transaction_isolation={level}"));
        side.warm();
        side.sql(
            "CREATE TABLE sm.levels AS SELECT ''::text AS level; \
             CREATE FUNCTION sm.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               UPDATE sm.levels SET level = current_setting('transaction_isolation'); RETURN NULL; END $$; \
             CREATE TRIGGER note AFTER INSERT ON sm.task EXECUTE FUNCTION sm.note()",
        );
        assert_eq!(side.words(|| drop(side.enqueue("t").unwrap())), [0, 0, 0]);
        let levels = rows(&format!("SELECT level FROM \"{}\".levels", side.scratch.0));
        assert_eq!(levels[0].get::<_, &str>(0), "read committed");
    }
}

/// The statement commits. So of a connection that is lost meanwhile it is not known whether it did.
#[test]
fn a_statement_alone_fails_as_a_commit_does() {
    for (end, expected) in
        [("pg_terminate_backend", StoreErrorKind::Indeterminate), ("pg_cancel_backend", StoreErrorKind::Busy)]
    {
        let side = Side::open();
        side.warm();
        thread::scope(|scope| {
            side.holding("ready", || {
                let enqueued = scope.spawn(|| side.enqueue("t"));
                side.until_locked("ready", "NOT granted");
                query(&format!(
                    "SELECT {end}(pid) FROM pg_locks WHERE NOT granted AND relation = '\"{}\".ready'::regclass",
                    side.scratch.0
                ));
                let failed = enqueued.join().unwrap().unwrap_err();
                assert_eq!(kind(&failed), expected, "{failed}");
                assert_ne!(failed.is_retryable(), failed.is_indeterminate(), "{failed}");
            });
        });
        assert!(is_new(side.enqueue("t").unwrap()));
    }
}
