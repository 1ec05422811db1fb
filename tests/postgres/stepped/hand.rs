//! A host's connection that a test drives by hand, one call at a time.
//!
//! A call either returns or waits for a lock. Which of the two is asked of the server, so no test depends on
//! how fast the machine is.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stationmaster::Result;
use stationmaster::store::Tx;
use stationmaster::store::postgres::tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};
use stationmaster::store::postgres::{self, Schema};

use crate::postgres_server::Plain;
use crate::scratch::url;

/// How long a call may neither return nor wait for a lock. Far above what any takes.
const PATIENCE: Duration = Duration::from_secs(30);

type Body = Box<dyn FnOnce(&mut Tx<'_>) -> Result<String> + Send>;

enum Command {
    Sql(String),
    Call(Body),
}

/// What became of a call.
#[derive(Debug)]
pub enum Step {
    /// It returned: what the body made of its result, or the error.
    Done(Result<String, String>),
    /// It waits for locks of these transactions. [`Hand::rest`] returns its result.
    #[expect(dead_code, reason = "a failed test shows it")]
    Waits(String),
}

impl Step {
    /// Returns what the call returned. Fails the test if it waits or failed.
    #[track_caller]
    pub fn done(self) -> String {
        match self {
            Self::Done(Ok(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    /// Fails the test unless the call waits.
    #[track_caller]
    pub fn waits(self) {
        assert!(matches!(self, Self::Waits(_)), "{self:?}");
    }
}

/// A host's connection.
#[derive(Debug)]
pub struct Hand {
    pid: i32,
    commands: Option<Sender<Command>>,
    answers: Receiver<Result<String, String>>,
    thread: Option<JoinHandle<()>>,
}

impl Hand {
    /// Connects.
    pub fn new(schema: &Schema) -> Self {
        let (commands, orders) = channel();
        let (answer, answers) = channel();
        let (tell, told) = channel();
        let schema = schema.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let config: Config = url().parse().unwrap();
                let (client, connection) = config.connect(NoTls).await.unwrap();
                tokio::spawn(connection);
                let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
                tell.send(pid).unwrap();
                let schema = Arc::new(schema);
                // The connection is driven by this thread alone, so the next order is awaited off it.
                let orders = Arc::new(Mutex::new(orders));
                loop {
                    let next = Arc::clone(&orders);
                    let order = tokio::task::spawn_blocking(move || next.lock().unwrap().recv());
                    let Ok(Ok(order)) = order.await else { return };
                    if answer.send(run(&client, &schema, order).await).is_err() {
                        return;
                    }
                }
            });
        });
        Self { pid: told.recv().unwrap(), commands: Some(commands), answers, thread: Some(thread) }
    }

    /// Connects and begins a transaction at this level.
    pub fn begin(schema: &Schema, level: &str) -> Self {
        let hand = Self::new(schema);
        hand.sql(&format!("BEGIN ISOLATION LEVEL {level}")).done();
        hand
    }

    /// Runs SQL without parameters, and returns its rows: one a line, with `|` between columns. Transactions that notify commit one after the other in the whole server: that
    /// one waits for another's commit is not told.
    pub fn sql(&self, sql: &str) -> Step {
        match self.send(Command::Sql(sql.to_owned())) {
            Step::Waits(_) if sql == "COMMIT" => self.rest(),
            step => step,
        }
    }

    /// Calls verbs in the transaction that was begun.
    pub fn call(&self, body: impl FnOnce(&mut Tx<'_>) -> Result<String> + Send + 'static) -> Step {
        self.send(Command::Call(Box::new(body)))
    }

    /// Waits for the result of a call that waited.
    pub fn rest(&self) -> Step {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => Step::Done(answer),
            Err(error) => panic!("a call that waited for a lock did not return: {error}"),
        }
    }

    /// Commits.
    #[track_caller]
    pub fn commit(self) {
        self.sql("COMMIT").done();
    }

    /// Rolls back.
    #[track_caller]
    pub fn rollback(self) {
        self.sql("ROLLBACK").done();
    }

    fn send(&self, command: Command) -> Step {
        self.commands.as_ref().unwrap().send(command).unwrap();
        let began = Instant::now();
        loop {
            match self.answers.recv_timeout(Duration::from_millis(2)) {
                Ok(answer) => return Step::Done(answer),
                Err(RecvTimeoutError::Timeout) if began.elapsed() < PATIENCE => {
                    if let Some(others) = self.blockers() {
                        return Step::Waits(others);
                    }
                }
                Err(error) => panic!("a call neither returned nor waited for a lock: {error}"),
            }
        }
    }

    /// Returns what those do for whom the connection waits, if it waits.
    fn blockers(&self) -> Option<String> {
        let sql = format!(
            "SELECT string_agg(pid || ' ' || backend_type || ' ' || coalesce(state, '') || ': ' || query, '; ') \
             FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids({}))",
            self.pid
        );
        watcher().lock().unwrap().ask(&sql).remove(0).remove(0)
    }
}

/// A connection that asks the server who waits for whom.
fn watcher() -> &'static Mutex<Plain> {
    static WATCHER: OnceLock<Mutex<Plain>> = OnceLock::new();
    WATCHER.get_or_init(|| Mutex::new(Plain::connect(&url())))
}

/// Waits until a statement on this schema, of whatever connection, waits for a lock.
pub fn until_one_waits(schema: &Schema) {
    until_so_many_wait(schema, 1);
}

/// Waits until this many statements on this schema wait for a lock.
pub fn until_so_many_wait(schema: &Schema, many: i64) {
    let began = Instant::now();
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%\"{schema}\".%'"
    );
    while watcher().lock().unwrap().number(&waiting) < many {
        assert!(began.elapsed() < PATIENCE, "fewer than {many} wait");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // A call that still waits would never end: its connection is closed with the test's schema.
            if thread.is_finished() || !std::thread::panicking() {
                let _ = thread.join();
            }
        }
    }
}

async fn run(client: &Client, schema: &Schema, order: Command) -> Result<String, String> {
    match order {
        Command::Sql(sql) => {
            let done = client.simple_query(&sql).await;
            done.map(|answer| text(&answer)).map_err(|error| match error.code() {
                Some(code) => code.code().to_owned(),
                None => error.to_string(),
            })
        }
        Command::Call(body) => {
            let done = postgres::tx(client, schema, body).await;
            done.map_err(|error| format!("{}: {error}", code(&error)))
        }
    }
}

fn text(answer: &[SimpleQueryMessage]) -> String {
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or("")).collect::<Vec<_>>().join("|"))
        }
        _ => None,
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// Returns the kind of a store's error.
fn code(error: &stationmaster::Error) -> String {
    match error {
        stationmaster::Error::Store(error) => format!("{:?}", error.kind()),
        _ => "Invalid".into(),
    }
}
