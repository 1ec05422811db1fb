//! Worker threads: each runs one command at a time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Finish, Finished};
use stationmaster::service::LoopHandle;
use stationmaster::store::Store;
use stationmaster::{Result, TaskRecord};

use crate::child;
use crate::held::{Cut, Held};
use crate::run::{Run, short};
use crate::screen::Screen;
use crate::workflow::Task;

/// The state that all workers share.
pub(crate) struct Workers<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) run: &'a Run,
    pub(crate) held: &'a Held,
    pub(crate) screen: &'a Screen,
    /// Wakes the scheduler.
    pub(crate) scheduler: LoopHandle,
    /// The number of tasks that were handed to the workers and have not ended yet.
    pub(crate) busy: &'a AtomicUsize,
}

impl Workers<'_> {
    /// Runs tasks until the scheduler hangs up.
    pub(crate) fn work(&self, queue: &Mutex<Receiver<TaskRecord>>) {
        loop {
            let next = queue.lock().recv();
            let Ok(task) = next else { return };
            if let Err(error) = self.attempt(&task) {
                self.screen.line("trouble", format_args!("{}: {error}", short(&task.key)));
            }
            // It is no longer renewed: upkeep ends what could not be recorded.
            self.held.release(task.lease_ref());
            self.busy.fetch_sub(1, Ordering::SeqCst);
            self.scheduler.wake();
        }
    }

    fn attempt(&self, task: &TaskRecord) -> Result<()> {
        let lease = task.lease_ref();
        let Some(spec) = self.run.spec(&task.key).filter(|_| self.held.why_cut(lease).is_none()) else {
            return self.end(task, Finish::given_back(lease), "", "");
        };
        let started = self.persist(task, || self.store.write(|tx| tx.start(SystemClock.now(), &[lease])))?;
        if started != [true] {
            return Ok(());
        }
        self.screen.line("start", Attempt(task));
        let began = Instant::now();
        let ran = self.run_command(task, spec);
        let took = format!(" ({:.1} s)", began.elapsed().as_secs_f64());
        let why = match ran {
            Ok(status) if status.success() => return self.end(task, Finish::success(lease), "", &took),
            Ok(status) => match self.held.why_cut(lease) {
                Some(Cut::Stopping | Cut::LeaseLost) => {
                    return self.end(task, Finish::given_back(lease), "", &took);
                }
                // Whatever it reports now, the task ends as cancelled.
                Some(Cut::Cancelled) => "killed: the task was cancelled".to_owned(),
                Some(Cut::TimedOut) => {
                    let limit = spec.timeout_s.unwrap_or_default().as_secs_f64();
                    format!("killed: it took longer than its timeout of {limit} s")
                }
                None => describe(status),
            },
            Err(error) => format!("could not be run: {error}"),
        };
        self.end(task, Finish::failed(lease, &*why), &why, &took)
    }

    fn run_command(&self, task: &TaskRecord, spec: &Task) -> std::io::Result<ExitStatus> {
        let log = self.run.places.log(&task.key, task.attempt);
        if let Some(dir) = log.parent() {
            fs::create_dir_all(dir)?;
        }
        let (stdout, stderr) = child::into_file(File::create(log)?)?;
        let attempt = task.attempt.to_string();
        let index = task.key.map_index.map(|index| index.to_string()).unwrap_or_default();
        let env = [
            ("RUN_ID", OsStr::new(self.run.id())),
            ("TASK", OsStr::new(&spec.name)),
            ("ATTEMPT", OsStr::new(&attempt)),
            ("MAP_INDEX", OsStr::new(&index)),
            ("WORKFLOW_DIR", self.run.workflow_dir.as_os_str()),
        ];
        let dir = self.run.places.data(self.run.id());
        let command = spec.command.as_deref().unwrap_or_default();
        let (mut child, lifeline) = child::start(command, &dir, &env, stdout, stderr)?;
        self.held.attach(task.lease_ref(), lifeline, spec.timeout_s);
        child.wait()
    }

    /// Records the end of an attempt, and in the same transaction its consequences for the run.
    fn end(&self, task: &TaskRecord, end: Finish, why: &str, took: &str) -> Result<()> {
        let ends = [end];
        let finished = self.persist(task, || {
            let now = SystemClock.now();
            self.store.write(|tx| {
                // Two workers that end the last two tasks of a step must see each other, or neither enqueues
                // the next one.
                self.run.take_turn(tx)?;
                let finished = tx.finish(now, &ends)?;
                self.run.advance(tx, now)?;
                Ok(finished)
            })
        })?;
        let task = Attempt(task);
        match finished[..] {
            [Finished::Ended(state)] if why.is_empty() => {
                self.screen.line(state.as_str(), format!("{task}{took}"))
            }
            [Finished::Ended(state)] => self.screen.line(state.as_str(), format!("{task}{took}: {why}")),
            [Finished::RetryAt(at)] => {
                let pause = at.saturating_duration_since(SystemClock.now()).as_secs_f64();
                self.screen.line("retry", format!("{task}: {why}; again in {pause:.1} s"));
            }
            // The first call took effect, although its result was lost.
            [Finished::Already(state)] => self.screen.line(state.as_str(), format!("{task}{took}")),
            [Finished::Ready] => self.screen.line("returned", task),
            _ => self.screen.line("stale", format!("{task}: its lease was lost, its result does not count")),
        }
        Ok(())
    }

    /// Retries while another process holds the database: as long as the lease is renewed, and a few times if
    /// the task was cut. This is safe for a commit of unknown outcome, because starts and ends may be
    /// repeated.
    fn persist<T>(&self, task: &TaskRecord, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        const TRIES: u32 = 5;
        let mut tries = 0;
        loop {
            tries += 1;
            let go_on = || tries < TRIES || self.held.why_cut(task.lease_ref()).is_none();
            match write() {
                Err(error) if (error.is_retryable() || error.is_indeterminate()) && go_on() => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                other => return other,
            }
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A task, and the number of its attempt unless it is the first.
struct Attempt<'a>(&'a TaskRecord);

impl std::fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.attempt {
            1 => f.write_str(&short(&self.0.key)),
            attempt => write!(f, "{} (attempt {attempt})", short(&self.0.key)),
        }
    }
}
