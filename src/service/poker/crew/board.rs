//! What the threads of a poker share: queues by kind, and counts of threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::async_calls::Air;
use crate::id::SensorKind;
use crate::sensor::plan::{GroupRef, Job};
use crate::service::driver::LoopHandle;
use crate::service::poker::distant::{AsyncProbe, Way};
use crate::service::poker::probe::Probe;

/// A thread takes about this much quick work at once.
const STINT: Duration = Duration::from_millis(1);

/// The most pokes of a quick kind that a thread takes at once.
const LONGEST_STINT: u64 = 256;

/// What the poker and its threads share.
pub(super) struct Shared {
    pub(super) board: Mutex<Board>,
    /// Threads wait for work.
    pub(super) work: Condvar,
    /// The tick waits for answers.
    pub(super) news: Condvar,
    /// No poke begins after this many nanoseconds since `base`.
    begin_until: AtomicU64,
    base: Instant,
    /// The last tick that has read the store.
    pub(super) followed: AtomicU64,
}

/// The queues and counts.
#[derive(Default)]
pub(super) struct Board {
    pub(super) kinds: Vec<KindQueue>,
    /// The kind whose turn is next.
    turn: usize,
    /// Threads that wait for work.
    pub(super) idle: usize,
    /// Threads that do not hang.
    pub(super) active: usize,
    pub(super) hung: usize,
    /// Threads of earlier crews that still hang.
    pub(super) former: usize,
    /// How many hung threads are replaced.
    pub(super) max_hung: usize,
    pub(super) closing: bool,
    /// Pokes that are futures.
    pub(super) air: Air,
    /// Groups whose hung poke has returned.
    pub(super) returned: Vec<GroupRef>,
    /// Counts the notifications from threads.
    pub(super) told: u64,
    /// True while the tick waits.
    pub(super) awaited: bool,
    /// Woken when answers have arrived and no tick waits.
    pub(super) handle: Option<LoopHandle>,
    pub(super) woken: bool,
}

/// The work of one kind.
pub(super) struct KindQueue {
    pub(super) name: SensorKind,
    pub(super) way: Way,
    pub(super) jobs: VecDeque<Job>,
    /// Calls that run and do not hang.
    pub(super) running: usize,
    /// Calls that hang.
    pub(super) hung: usize,
    pub(super) at_once: usize,
    /// About how long a poke takes, in nanoseconds. `None` if not known.
    pub(super) pace: Option<u64>,
}

/// How many threads hang, and how many hung ones are replaced.
#[derive(Debug, Clone, Copy)]
struct Hanging {
    hung: usize,
    max_hung: usize,
}

/// What a thread does next.
pub(super) struct Stint {
    pub(super) kind: usize,
    pub(super) name: SensorKind,
    pub(super) probe: Probe,
    pub(super) jobs: VecDeque<Job>,
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            board: Mutex::default(),
            work: Condvar::new(),
            news: Condvar::new(),
            begin_until: AtomicU64::new(0),
            base: Instant::now(),
            followed: AtomicU64::new(0),
        })
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns true while pokes may begin.
    pub(super) fn may_begin(&self, now: Instant) -> bool {
        self.nanos(now) < self.begin_until.load(Ordering::Relaxed)
    }

    /// Lets pokes begin until this instant. With `None`, no poke may begin.
    pub(super) fn begin_until(&self, until: Option<Instant>) {
        let until = until.map_or(0, |until| self.nanos(until));
        let before = self.begin_until.swap(until, Ordering::Relaxed);
        let board = self.board.lock();
        if until > before && board.queued() > 0 {
            self.work.notify_all();
        }
    }

    /// Tells the tick that there are answers, or wakes its loop.
    ///
    /// The board's lock is released meanwhile, because waking a future that waits on the handle runs the
    /// host's code.
    pub(super) fn tell(&self, board: &mut MutexGuard<'_, Board>) {
        board.told += 1;
        if board.awaited {
            self.news.notify_one();
        } else if !board.woken {
            board.woken = true;
            if let Some(handle) = board.handle.clone() {
                MutexGuard::unlocked(board, || handle.wake());
            }
        }
    }
}

impl Board {
    pub(super) fn queued(&self) -> usize {
        self.kinds.iter().map(|kind| kind.jobs.len()).sum()
    }

    pub(super) fn hung_in_all(&self) -> usize {
        self.hung + self.former
    }

    fn hanging(&self) -> Hanging {
        Hanging { hung: self.hung_in_all(), max_hung: self.max_hung }
    }

    /// Returns the futures of this kind and the jobs of one of them, if the kind may have one more call.
    pub(super) fn take_futures(&mut self, kind: usize) -> Option<(Arc<dyn AsyncProbe>, Vec<Job>)> {
        let hanging = self.hanging();
        let kind = self.kinds.get_mut(kind).filter(|kind| kind.has_work(hanging))?;
        let Way::Futures(probe, most) = &kind.way else { return None };
        let (probe, most) = (Arc::clone(probe), *most);
        kind.running += 1;
        let length = most.clamp(1, kind.jobs.len());
        Some((probe, kind.jobs.drain(..length).collect()))
    }

    /// Returns true if too many calls of this kind hang to begin another.
    pub(super) fn is_held_back(&self, kind: usize) -> bool {
        self.kinds.get(kind).is_some_and(|kind| kind.is_held_back(self.hanging()))
    }

    /// Returns work for one thread. Kinds take turns, except those at their limit.
    pub(super) fn take(&mut self) -> Option<Stint> {
        let (kinds, active, hanging) = (self.kinds.len(), self.active.max(1), self.hanging());
        for step in 0..kinds {
            let at = (self.turn + step) % kinds;
            let Some(kind) = self.kinds.get_mut(at).filter(|kind| kind.has_work(hanging)) else { continue };
            let Way::Threads(probe) = kind.way.clone() else { continue };
            let fair = kind.jobs.len().div_ceil(active.min(kind.at_once - kind.running));
            let most = kind.stint();
            let length = if matches!(probe, Probe::One(_)) { most.min(fair) } else { most };
            let length = length.clamp(1, kind.jobs.len());
            kind.running += 1;
            self.turn = at + 1;
            return Some(Stint {
                kind: at,
                name: kind.name.clone(),
                probe,
                jobs: kind.jobs.drain(..length).collect(),
            });
        }
        None
    }

    /// Returns how many threads the queued work needs.
    pub(super) fn wanted(&self) -> usize {
        let hanging = self.hanging();
        let of = |kind: &KindQueue| match kind.is_held_back(hanging) || !kind.needs_threads() {
            true => 0,
            false => kind.jobs.len().div_ceil(kind.stint()).min(kind.at_once.saturating_sub(kind.running)),
        };
        self.kinds.iter().map(of).sum()
    }
}

impl KindQueue {
    pub(super) fn new(name: SensorKind, way: Way, at_once: usize) -> Self {
        Self { name, way, jobs: VecDeque::new(), running: 0, hung: 0, at_once, pace: None }
    }

    fn needs_threads(&self) -> bool {
        matches!(self.way, Way::Threads(_))
    }

    fn has_work(&self, hanging: Hanging) -> bool {
        !self.jobs.is_empty() && self.running < self.at_once && !self.is_held_back(hanging)
    }

    /// Returns true if a kind has used its share of the hung threads that are replaced. Once no more are
    /// replaced, the remaining threads are for kinds that do not hang.
    fn is_held_back(&self, Hanging { hung, max_hung }: Hanging) -> bool {
        self.hung > 0 && (self.hung >= (max_hung / 2).max(1) || hung >= max_hung)
    }

    /// Returns how many jobs a thread takes at once.
    fn stint(&self) -> usize {
        match (&self.way, self.pace) {
            (Way::Threads(Probe::Many(_, most)) | Way::Futures(_, most), _) => *most,
            (Way::Threads(Probe::One(_)), None) => 1,
            (Way::Threads(Probe::One(_)), Some(pace)) => {
                let fit = u64::try_from(STINT.as_nanos()).unwrap_or(u64::MAX) / pace.max(1);
                usize::try_from(fit.clamp(1, LONGEST_STINT)).unwrap_or(1)
            }
        }
    }

    /// Records that this many pokes took this long.
    pub(super) fn took(&mut self, pokes: usize, length: Duration) {
        let Some(pokes) = u64::try_from(pokes).ok().filter(|pokes| *pokes > 0) else { return };
        let pace = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) / pokes;
        self.pace = Some(self.pace.map_or(pace, |before| before.saturating_mul(3).saturating_add(pace) / 4));
    }
}
