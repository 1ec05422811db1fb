//! The threads that poke, and the pokes that need none.
//!
//! The poker hands out jobs; threads take them from queues by kind, a few at once where pokes are quick, and
//! lay their answers on a desk each. The tick collects from the desks. A call that passes its deadline loses
//! its desk to the tick: its jobs are answered for it, what else lay there goes back to the queue, and
//! another thread takes its place. What the call answers when it returns after all is dropped, and the thread
//! ends. Pokes that are futures fly instead: see [`flights`].

mod board;
mod desk;
mod flights;
mod job;
mod thread;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use board::{KindQueue, Shared};
use desk::Desk;
pub(super) use job::{Answer, Job, Outcome};

use super::distant::Way;
use super::group::GroupRef;
use crate::id::SensorKind;
use crate::service::driver::LoopHandle;

/// The most jobs of a kind that wait in a queue.
const QUEUE: usize = 4096;

/// What lies on a desk behind a call that takes longer than this goes to other threads.
const STUCK: Duration = Duration::from_millis(20);

/// The threads of a poker, as its ticks see them.
pub(super) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<(Arc<Desk>, JoinHandle<()>)>,
    size: usize,
    max_hung: usize,
    former: Former,
    /// How often threads had told of news when the desks were last looked at.
    heard: u64,
}

/// Crews that were closed while threads of theirs hung.
#[derive(Default)]
pub(super) struct Former(Vec<Arc<Shared>>);

impl Former {
    /// How many of their threads still hang.
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
    /// Groups whose poke hung, and has returned.
    pub(super) returned: Vec<GroupRef>,
}

/// How the threads stand.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    /// Jobs that no thread has begun.
    pub(super) queued: usize,
    /// Pokes that run and do not hang.
    pub(super) running: usize,
    pub(super) hung: usize,
    /// The earliest deadline of a call that runs.
    pub(super) deadline: Option<Instant>,
    /// Jobs lie behind a call.
    pub(super) stuck: bool,
}

impl Crew {
    pub(super) fn new(size: usize, max_hung: usize, former: Former) -> Self {
        let shared = Shared::new();
        shared.board.lock().max_hung = max_hung;
        Self { shared, threads: Vec::new(), size: size.max(1), max_hung, former, heard: 0 }
    }

    /// Makes a kind known, as the next number.
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

    /// The tick of this number has read the store.
    pub(super) fn followed(&mut self, tick: u64) {
        self.shared.followed.store(tick, Ordering::Release);
        let former = self.former.hung();
        let mut board = self.shared.board.lock();
        (board.woken, board.former) = (false, former);
    }

    /// How many more jobs of this kind find a place.
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

    /// Wakes or makes as many threads as the queued work is for.
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

    /// How many threads may poke.
    pub(super) fn usable(&self) -> usize {
        let hung = self.shared.board.lock().hung_in_all();
        self.size.saturating_sub(hung.saturating_sub(self.max_hung))
    }

    /// Collects all answers that are there, and takes the desks of calls that have passed their deadline.
    ///
    /// Locks are taken in one order: the board, then a desk.
    pub(super) fn collect(&mut self, haul: &mut Haul) {
        // The board is held until all desks were looked at. A thread whose desk is taken waits for it before
        // it counts itself as returned, and by then it has been counted as hung.
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
            // A thread takes a batch of jobs that should be quick together. When its first call is slow after
            // all, the rest goes back to the front of the queue, where another thread finds it. A slow call
            // alone costs nothing more: the thread keeps its desk. Only past its deadline it loses it, and
            // with it the right to answer.
            let stuck = now.saturating_duration_since(call.began()) >= STUCK;
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
        // Without the lock: dropping a future runs code of the host.
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

    /// Takes back the jobs that no thread has begun and that are not wanted any more.
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

    /// Takes back the jobs of a kind that no thread has begun, if so many of its calls hang that none more is
    /// begun; none if it is not held back.
    pub(super) fn hold_back(&mut self, kind: usize) -> Option<Vec<Job>> {
        let mut board = self.shared.board.lock();
        let held_back = board.is_held_back(kind);
        let queue = board.kinds.get_mut(kind).filter(|_| held_back)?;
        Some(queue.jobs.drain(..).collect())
    }

    /// Closes, and answers which threads of it and of those before it still hang.
    pub(super) fn disband(mut self, haul: &mut Haul) -> Former {
        self.close(haul);
        let mut former = std::mem::take(&mut self.former);
        former.0.push(Arc::clone(&self.shared));
        former
    }

    /// Begins no more pokes, drops those that are futures, and waits for those on threads, each until its
    /// deadline at most.
    fn close(&mut self, haul: &mut Haul) {
        self.begin_until(None);
        {
            let mut board = self.shared.board.lock();
            board.closing = true;
            board.kinds.iter_mut().for_each(|kind| kind.jobs.clear());
            self.shared.work.notify_all();
            let flying = board.take_flying();
            drop(board);
            // Nobody waits for them, so nobody hears of them.
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
            // It is about to end; what it panicked with, if it did, was printed.
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
