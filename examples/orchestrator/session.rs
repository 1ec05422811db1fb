//! One process that works on a run: the scheduler on this thread, the keeper, the poker and the workers on their
//! own.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::kinds::builtin;
use stationmaster::service::{Admitter, FeedReader, Keeper, LoopHandle, Poker, Upkeep, drive};
use stationmaster::store::Store;

use crate::held::{Cut, Held};
use crate::kinds;
use crate::run::{Run, is_closed};
use crate::scheduler::{LEASE, Peaks, Scheduler};
use crate::screen::Screen;
use crate::trouble::Trouble;
use crate::worker::Workers;

/// A loop runs again after this long even if nothing is due and it was not woken.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
/// How often in a row the database may fail until we give up.
const PATIENCE: u32 = 10;

/// How the session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    RunOver,
    Interrupted,
}

/// The work of this process, for the report.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) peaks: Peaks,
    pub(crate) pokes: AtomicUsize,
    pub(crate) saved: AtomicUsize,
}

pub(crate) fn work(store: &Arc<dyn Store>, run: &Run, workers: usize, tally: &Tally) -> Result<End, Trouble> {
    let name = name();
    let holder = || name.as_str().try_into().map_err(stationmaster::Error::from);
    let (scheduling, keeping, poking) = (LoopHandle::new(), LoopHandle::new(), LoopHandle::new());
    let interrupted = stop_on_signal(&scheduling)?;
    let (held, busy) = (Held::default(), AtomicUsize::new(0));
    let screen = Screen::new(run.keys.len());
    let (queue, tasks) = mpsc::channel();
    let tasks = Mutex::new(tasks);

    let poker =
        Poker::new(Arc::clone(store), holder()?).lease(LEASE).min_interval(Duration::from_millis(100));
    let poker = kinds::teach(builtin(poker, Arc::clone(store))?)?;
    let mut poker = poker.log(run.places.logs.clone());
    let admitter = Admitter::new(Arc::clone(store), holder()?).lease(LEASE);
    let keeper = admitter.keeper();
    let team = Workers {
        store: store.as_ref(),
        run,
        held: &held,
        screen: &screen,
        scheduler: scheduling.clone(),
        busy: &busy,
    };
    let (sender, ended) = mpsc::channel();
    let feed = FeedReader::new(
        Arc::clone(store),
        "screen".try_into().map_err(stationmaster::Error::from)?,
        move |event| {
            // Workers report how their commands end.
            let Some(reason) = event.reason else { return Ok(()) };
            let how = if reason.as_str() == "landed" { "landed" } else { event.state.as_str() };
            let detail = event.value.as_ref().or(event.message.as_ref()).cloned().unwrap_or_default();
            Ok(sender.send((event.task.clone(), how, detail))?)
        },
    );
    let mut scheduler = Scheduler {
        store: store.as_ref(),
        run,
        held: &held,
        screen: &screen,
        admitter,
        keeper: keeper.clone(),
        upkeep: Upkeep::new(Arc::clone(store)).grace(LEASE),
        workers,
        busy: &busy,
        queue,
        poker: poking.clone(),
        peaks: &tally.peaks,
        reap_at: None,
        feed,
        ended,
    };

    let end = thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| team.work(&tasks));
        }
        scope.spawn(|| keep(keeper, &keeping, &held, &screen));
        scope.spawn(|| poke(&mut poker, &poking, &scheduling, tally, &screen));
        let end = schedule(&mut scheduler, &scheduling, &screen);
        // The children die, and the workers give their leases back. They end when the queue's sender is dropped.
        held.stop();
        drop(scheduler);
        keeping.stop();
        poking.stop();
        end
    });
    let logs = &run.places.logs;
    if let Some(last) = logs.last_failure() {
        screen.line("trouble", format_args!("{} lines of sensors' logs were lost; {last}", logs.failures()));
    }
    screen.close();
    // The last task may have ended while we stopped.
    let record = store.read(|tx| tx.runs(std::slice::from_ref(&run.key)))?;
    if is_closed(&record) {
        return Ok(End::RunOver);
    }
    match end? {
        End::Interrupted if !interrupted.load(Ordering::SeqCst) => {
            Err(Trouble::Broken("the scheduler was stopped".to_owned()))
        }
        end => Ok(end),
    }
}

fn schedule(scheduler: &mut Scheduler<'_>, handle: &LoopHandle, screen: &Screen) -> Result<End, Trouble> {
    let mut failures = 0;
    while !handle.is_stopped() {
        // Read first, so that a wake during the step ends the sleep after it.
        let seen = handle.seen();
        let pause = match scheduler.step(SystemClock.now()) {
            Ok(step) if step.over => return Ok(End::RunOver),
            Ok(step) => {
                failures = 0;
                step.next_due.map_or(LONGEST_SLEEP, |due| due.saturating_duration_since(SystemClock.now()))
            }
            Err(error) => {
                screen.line("trouble", &error);
                failures += 1;
                if failures >= PATIENCE {
                    return Err(error.into());
                }
                Duration::from_millis(5 << failures)
            }
        };
        handle.wait_since(seen, pause.clamp(SHORTEST_SLEEP, LONGEST_SLEEP));
    }
    Ok(End::Interrupted)
}

/// Keeps the leases, and kills the children of those that were lost or cancelled. Has its own thread, so that
/// neither a slow step of the scheduler nor a slow poke delays it.
fn keep(mut keeper: Keeper, handle: &LoopHandle, held: &Held, screen: &Screen) {
    drive(&mut keeper, &SystemClock, handle, LONGEST_SLEEP, |report| {
        match report {
            Ok(report) => {
                for lease in report.lost.iter().chain(&report.expired) {
                    held.cut(*lease, Cut::LeaseLost);
                }
                for lease in &report.cancelled {
                    held.cut(*lease, Cut::Cancelled);
                }
                if let Some(error) = report.error {
                    screen.line("trouble", format_args!("renewing leases: {error}"));
                }
            }
            Err(error) => screen.line("trouble", format_args!("renewing leases: {error}")),
        }
        ControlFlow::Continue(())
    });
}

/// Pokes have their own loop, so that a slow one does not delay the scheduler.
fn poke(poker: &mut Poker, handle: &LoopHandle, scheduler: &LoopHandle, tally: &Tally, screen: &Screen) {
    drive(poker, &SystemClock, handle, LONGEST_SLEEP, |report| {
        match report {
            Ok(report) => {
                tally.pokes.fetch_add(report.poked, Ordering::SeqCst);
                tally.saved.fetch_add(report.saved, Ordering::SeqCst);
                if report.landed + report.failed + report.timed_out > 0 {
                    scheduler.wake();
                }
            }
            Err(error) => screen.line("trouble", format_args!("poking: {error}")),
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = poker.leave() {
        screen.line("trouble", format_args!("giving the shards back: {error}"));
    }
}

/// Returns a name that is unique among all processes that ever worked on the database.
fn name() -> String {
    format!("orchestrator-{}-{}", std::process::id(), SystemClock.now().as_micros())
}

/// The first Ctrl-C or SIGTERM stops the program cleanly, the second one at once.
fn stop_on_signal(handle: &LoopHandle) -> Result<Arc<AtomicBool>, Trouble> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (seen, handle) = (Arc::clone(&interrupted), handle.clone());
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        handle.stop();
    })
    .map_err(|error| Trouble::Broken(format!("cannot catch signals: {error}")))?;
    Ok(interrupted)
}
