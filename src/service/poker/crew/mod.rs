//! The threads that poke, and the async pokes that need none.
//!
//! The poker queues jobs by kind. Threads take them, about a millisecond's worth of quick pokes at a time.
//! Each thread records its answers on its own `Desk`, from which the tick collects them. If a
//! call passes its deadline, the tick takes over its desk. It answers the call's jobs, returns the remaining
//! ones to the queue, and lets another thread take its place. If the call returns after all, its answers are
//! dropped and its thread ends. Async pokes are tasks of a runtime instead: see [`async_calls`].

mod async_calls;
mod board;
mod call;
mod desk;
mod thread;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use board::{KindQueue, Shared};
use desk::Desk;

use super::distant::Way;
use crate::id::SensorKind;
use crate::sensor::plan::{Answer, GroupRef, Job};
use crate::service::driver::LoopHandle;

/// The most jobs of a kind that wait in a queue.
const QUEUE: usize = 4096;

/// Jobs behind a call that takes longer than this are reassigned to other threads.
const STUCK: Duration = Duration::from_millis(20);

/// The threads of a poker, as its ticks see them.
pub(super) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<(Arc<Desk>, JoinHandle<()>)>,
    size: usize,
    max_hung: usize,
    former: Former,
    /// The number of notifications from threads when the desks were last inspected.
    heard: u64,
}

/// Crews that were closed while some of their threads hung.
#[derive(Default)]
pub(super) struct Former(Vec<Arc<Shared>>);

impl Former {
    /// Returns how many of their threads still hang.
    fn hung(&mut self) -> usize {
        let mut hung = 0;
        self.0.retain(|shared| {
            let still = shared.board.lock().hung;
            hung += still;
            still > 0
        });
        hung
    }
}

/// What the ticks collect.
#[derive(Default)]
pub(super) struct Haul {
    pub(super) answers: Vec<Answer>,
    /// Groups whose hung poke has returned.
    pub(super) returned: Vec<GroupRef>,
}

/// The state of the threads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    /// Jobs that no thread has begun.
    pub(super) queued: usize,
    /// Pokes that run and do not hang.
    pub(super) running: usize,
    pub(super) hung: usize,
    /// The earliest deadline of a call that runs.
    pub(super) deadline: Option<Instant>,
    /// True if jobs wait behind a call.
    pub(super) stuck: bool,
}

impl Crew {
    pub(super) fn new(size: usize, max_hung: usize, former: Former) -> Self {
        let shared = Shared::new();
        shared.board.lock().max_hung = max_hung;
        Self { shared, threads: Vec::new(), size: size.max(1), max_hung, former, heard: 0 }
    }

    /// Adds a kind, with the next number.
    pub(super) fn add_kind(&mut self, name: SensorKind, way: Way, at_once: Option<NonZeroUsize>) {
        let at_once = at_once.map_or_else(|| way.usual_at_once(), NonZeroUsize::get);
        self.shared.board.lock().kinds.push(KindQueue::new(name, way, at_once));
    }

    /// Wakes this loop when answers come that no tick waits for.
    pub(super) fn wake(&self, handle: LoopHandle) {
        self.shared.board.lock().handle = Some(handle);
    }

    pub(super) fn begin_until(&self, until: Option<Instant>) {
        self.shared.begin_until(until);
        self.shared.launch_all();
    }

    pub(super) fn may_begin(&self) -> bool {
        self.shared.may_begin(Instant::now())
    }

    /// Records that the tick with this number has read the store.
    pub(super) fn followed(&mut self, tick: u64) {
        self.shared.followed.store(tick, Ordering::Release);
        let former = self.former.hung();
        let mut board = self.shared.board.lock();
        (board.woken, board.former) = (false, former);
    }

    /// Returns how many more jobs of this kind the queue takes.
    pub(super) fn places(&self, kind: usize) -> usize {
        let board = self.shared.board.lock();
        board.kinds.get(kind).map_or(0, |kind| QUEUE.saturating_sub(kind.jobs.len()))
    }

    /// Queues jobs of a kind.
    pub(super) fn hand_out(&mut self, kind: usize, jobs: Vec<Job>) {
        let mut board = self.shared.board.lock();
        if let Some(kind) = board.kinds.get_mut(kind) {
            kind.jobs.extend(jobs);
        }
        drop(board);
        self.staff();
        self.shared.launch(kind);
    }

    /// Wakes or creates as many threads as the queued work needs.
    fn staff(&mut self) {
        let mut board = self.shared.board.lock();
        let wanted = board.wanted();
        (0..wanted.min(board.idle)).for_each(|_| {
            self.shared.work.notify_one();
        });
        let allowed = self.size.saturating_sub(board.hung_in_all().saturating_sub(self.max_hung));
        let more = wanted.saturating_sub(board.idle).min(allowed.saturating_sub(board.active));
        for _ in 0..more {
            let (desk, shared) = (Arc::new(Desk::default()), Arc::clone(&self.shared));
            let place = Arc::clone(&desk);
            let thread = std::thread::Builder::new().name("stationmaster-poke".into());
            // If the system has no more threads, those that are there do the work, or a later tick tries
            // again.
            let Ok(handle) = thread.spawn(move || thread::run(&shared, &place)) else { return };
            self.threads.push((desk, handle));
            board.active += 1;
        }
    }

    /// Returns how many threads may poke.
    pub(super) fn usable(&self) -> usize {
        let hung = self.shared.board.lock().hung_in_all();
        self.size.saturating_sub(hung.saturating_sub(self.max_hung))
    }

    /// Collects all available answers, and takes over the desks of calls that have passed their deadline.
    ///
    /// Locks are taken in one order: the board, then a desk.
    pub(super) fn collect(&mut self, haul: &mut Haul) {
        // The board stays locked until all desks were inspected. A thread whose desk is taken waits for the
        // board before it counts itself as returned. By then it has been counted as hung.
        let mut board = self.shared.board.lock();
        self.heard = board.told;
        let now = Instant::now();
        let mut freed = false;
        self.threads.retain(|(desk, _)| {
            let mut work = desk.0.lock();
            haul.answers.append(&mut work.done);
            let Some(call) = work.call.as_ref() else { return true };
            let overran = call.deadline().is_some_and(|deadline| deadline <= now);
            if overran {
                haul.answers.extend(call.overran(true));
            }
            // A thread takes a batch of jobs that should be quick together. If its first call turns out slow,
            // the rest goes back to the front of the queue, where another thread finds it. Nothing else
            // happens, and the thread keeps its desk. Only past the call's deadline does it lose the desk,
            // and with it the right to answer.
            let stuck = now.saturating_duration_since(call.began) >= STUCK;
            let kind = work.kind;
            let left = match overran || stuck {
                true => std::mem::take(&mut work.todo),
                false => Default::default(),
            };
            work.taken = overran;
            drop(work);
            if !overran && left.is_empty() {
                return true;
            }
            freed = true;
            if let Some(queue) = board.kinds.get_mut(kind) {
                left.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
                // The next batches of this kind are smaller.
                queue.took(1, STUCK);
                queue.running -= usize::from(overran);
                queue.hung += usize::from(overran);
            }
            if overran {
                board.active -= 1;
                board.hung += 1;
            }
            !overran
        });
        let overdue = board.take_overdue(now);
        haul.answers.append(&mut board.air.answers);
        haul.returned.append(&mut board.returned);
        // Without the lock, because dropping a future runs the host's code.
        drop(board);
        haul.answers.extend(self.shared.ground(overdue));
        self.shared.launch_all();
        // There is work again, or room for a thread that hung ones had denied it.
        if freed || !haul.returned.is_empty() || self.threads.is_empty() {
            self.staff();
        }
    }

    /// Waits for news since the last collection, but not past that instant.
    pub(super) fn wait(&self, until: Instant) {
        let mut board = self.shared.board.lock();
        board.awaited = true;
        self.shared.news.wait_while_until(&mut board, |board| board.told == self.heard, until);
        board.awaited = false;
    }

    pub(super) fn standing(&self) -> Standing {
        let mut standing = Standing::default();
        for (desk, _) in &self.threads {
            let work = desk.0.lock();
            standing.queued += work.todo.len();
            if let Some(call) = &work.call {
                standing.running += call.pokes();
                standing.deadline = standing.deadline.into_iter().chain(call.deadline()).min();
                standing.stuck |= !work.todo.is_empty();
            }
        }
        let board = self.shared.board.lock();
        standing.queued += board.queued();
        standing.running += board.air.pokes();
        standing.deadline = standing.deadline.into_iter().chain(board.air.deadline()).min();
        standing.hung = board.hung_in_all() + board.air.hung();
        standing
    }

    /// Takes back the jobs that no thread has begun and that are no longer wanted.
    pub(super) fn withdraw(&mut self, wanted: impl Fn(&Job) -> bool) -> Vec<GroupRef> {
        let mut withdrawn = Vec::new();
        for kind in &mut self.shared.board.lock().kinds {
            kind.jobs.retain(|job| {
                let keep = wanted(job);
                if !keep {
                    withdrawn.push(job.group);
                }
                keep
            });
        }
        withdrawn
    }

    /// Takes back the jobs of a kind that no thread has begun, if too many of its calls hang to begin
    /// another. Returns `None` if the kind is not held back.
    pub(super) fn hold_back(&mut self, kind: usize) -> Option<Vec<Job>> {
        let mut board = self.shared.board.lock();
        let held_back = board.is_held_back(kind);
        let queue = board.kinds.get_mut(kind).filter(|_| held_back)?;
        Some(queue.jobs.drain(..).collect())
    }

    /// Closes the crew, and returns which of its threads, and of earlier crews' threads, still hang.
    pub(super) fn disband(mut self, haul: &mut Haul) -> Former {
        self.close(haul);
        let mut former = std::mem::take(&mut self.former);
        former.0.push(Arc::clone(&self.shared));
        former
    }

    /// Begins no more pokes, drops async ones, and waits for those on threads, each until its deadline at
    /// most.
    fn close(&mut self, haul: &mut Haul) {
        self.begin_until(None);
        {
            let mut board = self.shared.board.lock();
            board.closing = true;
            board.kinds.iter_mut().for_each(|kind| kind.jobs.clear());
            self.shared.work.notify_all();
            let flying = board.take_flying();
            drop(board);
            // No one waits for their answers, so they are dropped.
            self.shared.ground(flying).for_each(drop);
        }
        loop {
            let active = self.shared.board.lock().active;
            self.collect(haul);
            if active == 0 || self.threads.iter().all(|(_, thread)| thread.is_finished()) {
                break;
            }
            let soon = Instant::now() + STUCK;
            self.wait(self.standing().deadline.map_or(soon, |at| at.min(soon)));
        }
        for (_, handle) in self.threads.drain(..) {
            // It is about to end. If it panicked, the panic was already printed.
            let _ = handle.join();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if !self.threads.is_empty() || self.shared.board.lock().air.pokes() > 0 {
            self.close(&mut Haul::default());
        }
    }
}
