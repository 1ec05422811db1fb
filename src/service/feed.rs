//! Reads the feed of task events for a named consumer.

use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::driver::{LoopHandle, Report, Service};
use super::incarnation;
use super::numbers::latest_changes;
use super::observer::metrics::EVENTS;
#[cfg(feature = "tracing")]
use super::observer::spans::debug_or_warn;
use super::observer::{Emitter, Observer, Reported, Tick, spans};
use super::wanted::Wanted;
use crate::base::setters;
use crate::core::feed::turn::{Turn, lost_before, others_until, take};
use crate::error::Result;
use crate::feed::{Consumer, TaskEvent};
use crate::id::Holder;
use crate::store::Store;
use crate::store::serving::for_service;
use crate::time::Timestamp;

/// How many events are read at once. Not many, because their texts may be long.
const PAGE: usize = 64;

/// The first pause before a refused event is delivered again, and the longest one. The pause doubles each time.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Passes the events of tasks to a handler, for a named consumer: see `docs/feed.md`.
///
/// A task is in the feed if it was enqueued with [`NewTask::feed`](crate::NewTask::feed). A [driver](super::drive)
/// calls the reader. On PostgreSQL, `PostgresStore::on_change` says when to wake it; elsewhere it looks every second.
///
/// # Guarantees
///
/// * *At least once.* The consumer's cursor moves after its handler accepted an event. If the process dies in between,
///   the event is delivered again. Its [`seq`](TaskEvent::seq) is unique in the store forever.
/// * *In order.* A handler gets the events in the order of their numbers. Events of one task are in the order in which
///   they happened. An event that it refuses is delivered again, after a second, then after longer pauses up to a
///   minute. Later events wait.
/// * *Consumers are independent.* Each has its own cursor. Two readers with the same name take turns.
/// * *A new consumer* begins with the oldest event that is still there.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::feed::TaskEvent;
/// use stationmaster::ops::Mark;
/// use stationmaster::service::{FeedReader, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::task::Feed;
/// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
///
/// let (store, now) = (Arc::new(MemoryStore::new()), Timestamp::UNIX_EPOCH);
/// let key = TaskKey::new("prod", "nightly", "r1", "load")?;
/// store.write(|tx| {
///     tx.enqueue(now, &[NewTask::new(key.clone()).feed(Feed::Ends)])?;
///     tx.mark(now, &[Mark::new(key.clone(), TaskState::Failed, "not today")])
/// })?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let mut reader = FeedReader::new(store, "mailer".try_into()?, move |event: &TaskEvent| {
///     sender.send((event.task.clone(), event.state))?;
///     Ok(())
/// });
/// assert_eq!(reader.tick(now)?.accepted, 1);
/// assert_eq!(receiver.recv().ok(), Some((key, TaskState::Failed)));
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub struct FeedReader {
    store: Arc<dyn Store>,
    name: Holder,
    reader: i64,
    handler: Handler,
    limit: usize,
    turn: Duration,
    refresh_every: Duration,
    pause: Duration,
    /// When a refused event is delivered again.
    again_at: Option<Timestamp>,
    emitter: Emitter,
}

type Handler = Box<dyn FnMut(&TaskEvent) -> Result<(), Box<dyn StdError + Send + Sync>> + Send>;

/// What one tick of a [`FeedReader`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedReport {
    /// How many events the handler accepted.
    pub accepted: usize,
    /// How many events were deleted before this consumer received them, because it was dropped or they were too old.
    pub lost: u64,
    /// The event that the handler refused, with the handler's error.
    pub refused: Option<(TaskEvent, String)>,
    /// Whether this reader has the turn. `false` while another one with its name reads.
    pub has_turn: bool,
    /// When the next tick is due. It is due at once if there may be more events.
    pub next_due: Option<Timestamp>,
}

impl Report for FeedReport {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }
}

impl Reported for FeedReport {
    fn emit(&self, to: &Emitter) {
        to.counter(&EVENTS, &[("result", "accepted")], self.accepted);
        to.counter(&EVENTS, &[("result", "refused")], usize::from(self.refused.is_some()));
        to.counter(&EVENTS, &[("result", "lost")], usize::try_from(self.lost).unwrap_or(usize::MAX));
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let (accepted, lost, refused, has_turn) =
            (self.accepted, self.lost, self.refused.is_some(), self.has_turn);
        debug_or_warn!(refused || lost > 0, target: "stationmaster::feed", accepted, lost, refused, has_turn, took_s, "read");
        if let Some((event, error)) = &self.refused {
            tracing::debug!(target: "stationmaster::feed", task = %event.task, seq = event.seq, error, "event refused");
        }
    }
}

impl fmt::Debug for FeedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedReader").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FeedReader {
    /// Creates a reader for the consumer of this name. Its first tick registers the consumer.
    ///
    /// If the handler returns an error or panics, the event is delivered again.
    pub fn new(
        store: Arc<dyn Store>,
        name: Holder,
        handler: impl FnMut(&TaskEvent) -> Result<(), Box<dyn StdError + Send + Sync>> + Send + 'static,
    ) -> Self {
        Self {
            store: for_service(store),
            name,
            reader: incarnation::draw().cast_signed(),
            handler: Box::new(handler),
            limit: PAGE,
            turn: Duration::from_secs(30),
            refresh_every: Duration::from_secs(1),
            pause: PAUSES.0 / 2,
            again_at: None,
            emitter: Emitter::default(),
        }
    }

    setters! {
        /// Sets the most events that one tick delivers; at least 1. Default: 64.
        ///
        /// The cursor moves once per tick. So a larger limit makes fewer transactions, but more events are delivered
        /// again after a crash. No more than 64 events are in memory at a time.
        limit: usize;
        /// Sets how often it looks for new events, each time with one read of the store. Default: one second.
        refresh_every: Duration;
        /// Sets the length of its turn: a lease on the consumer's name, which each tick renews. Other readers with that
        /// name read nothing until it ends. It must be longer than the handler needs for one event, otherwise another
        /// reader gets that event, too. Default: 30 seconds.
        turn: Duration;
        /// Reports what it counts and measures to this observer.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
    }

    /// Returns the report of a tick that has nothing to write: another reader has the turn, or this one has it for
    /// long enough and has read everything.
    fn rests(&self, now: Timestamp) -> Result<Option<FeedReport>> {
        let follow = now + self.refresh_every;
        let (mine, last) = self.store.read(|tx| {
            let mine = tx.raw().consumers()?.into_iter().find(|consumer| consumer.name == self.name);
            Ok((mine, tx.raw().feed_last()?))
        })?;
        let Some(mine) = mine else { return Ok(None) };
        if let Some(until) = others_until(&mine, self.reader, (now, self.turn)) {
            return Ok(Some(FeedReport { next_due: Some(until.min(follow)), ..FeedReport::default() }));
        }
        let is_mine = mine.reader == self.reader && mine.until > now + self.turn / 2;
        let rests = FeedReport { has_turn: true, next_due: Some(follow), ..FeedReport::default() };
        Ok((is_mine && !mine.dropped && mine.cursor == last).then_some(rests))
    }

    /// Takes the turn, and reads the next events.
    fn begin(&self, now: Timestamp) -> Result<(Turn, Vec<TaskEvent>, u64)> {
        self.store.write(|tx| {
            let raw = tx.writes()?;
            let was = raw.hold_consumer(&self.name)?;
            // The last number is read first, so the next read finds every event up to it that still exists.
            let last = raw.feed_last()?;
            let first = if was.is_some() { None } else { raw.feed(0, 1)?.into_iter().next() };
            let begin = first.map_or(last, |first| first.seq - 1);
            let turn = take(was, (&self.name, self.reader), (now, self.turn), begin);
            let Turn::Mine(mine) = &turn else { return Ok((turn, Vec::new(), last)) };
            raw.put_consumer(mine)?;
            let events = raw.feed(mine.cursor, self.page(0))?;
            Ok((turn, events, last))
        })
    }

    /// Returns how many events are read next, after this many were accepted.
    fn page(&self, accepted: usize) -> usize {
        self.limit.max(1).saturating_sub(accepted).min(PAGE)
    }

    fn give(&mut self, event: &TaskEvent) -> Result<(), String> {
        let handler = &mut self.handler;
        match catch_unwind(AssertUnwindSafe(|| handler(event))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(format!("the handler panicked: {}", text.as_deref().unwrap_or("no message")))
            }
        }
    }

    /// Moves the cursor, unless another reader has taken the turn. That reader then delivers the events again.
    fn accept(&self, done: &Consumer) -> Result<bool> {
        self.store.write(|tx| {
            let raw = tx.writes()?;
            let is_mine = raw.hold_consumer(&self.name)?.is_some_and(|was| was.reader == self.reader);
            if is_mine {
                raw.put_consumer(done)?;
            }
            Ok(is_mine)
        })
    }

    /// Passes events to the handler, page by page. Stops at the limit, after half a turn, after a refusal, or when
    /// none is left. Returns whether there may be more.
    fn give_all(
        &mut self,
        called: Instant,
        mine: &mut Consumer,
        mut events: Vec<TaskEvent>,
        report: &mut FeedReport,
    ) -> Result<bool> {
        loop {
            let is_full = events.len() == self.page(report.accepted);
            for event in events {
                // Stops before the turn ends, so that no other reader has begun with these events.
                if report.accepted > 0 && called.elapsed() >= self.turn / 2 {
                    return Ok(true);
                }
                report.lost += lost_before(mine.cursor, &event);
                mine.cursor = event.seq - 1;
                if let Err(why) = self.give(&event) {
                    report.refused = Some((event, why));
                    return Ok(false);
                }
                mine.cursor = event.seq;
                report.accepted += 1;
            }
            let next = self.page(report.accepted);
            if !is_full || next == 0 {
                return Ok(is_full);
            }
            events = self.store.read(|tx| tx.feed(mine.cursor, next))?;
        }
    }

    fn read(&mut self, now: Timestamp) -> Result<FeedReport> {
        // After a clock was set back, it must not wait longer than the longest pause.
        if let Some(at) = self.again_at.filter(|at| now < *at && *at <= now + PAUSES.1) {
            return Ok(FeedReport { has_turn: true, next_due: Some(at), ..FeedReport::default() });
        }
        let unnumbered = latest_changes(&*self.store)?.unnumbered;
        // Another process is numbering events right now.
        let follow = now + if unnumbered { self.refresh_every / 16 } else { self.refresh_every };
        if let Some(rests) = self.rests(now)? {
            let next_due = rests.next_due.map(|due| if rests.has_turn { due.min(follow) } else { due });
            return Ok(FeedReport { next_due, ..rests });
        }
        let called = Instant::now();
        let (turn, events, last) = self.begin(now)?;
        let mut mine = match turn {
            Turn::Mine(mine) => mine,
            Turn::Others(until) => {
                let next_due = Some(until.min(now + self.refresh_every));
                return Ok(FeedReport { next_due, ..FeedReport::default() });
            }
        };
        let (began, mut report) = (mine.clone(), FeedReport { has_turn: true, ..FeedReport::default() });
        if events.is_empty() {
            report.lost = last.saturating_sub(mine.cursor);
            mine.cursor = mine.cursor.max(last);
        }
        let more = self.give_all(called, &mut mine, events, &mut report);
        mine.lost = mine.lost.saturating_add(report.lost);
        mine.until = now + called.elapsed() + self.turn;
        // Also stores the cursor of events that were accepted before a read failed.
        if mine.cursor != began.cursor {
            report.has_turn = self.accept(&mine)?;
        }
        let more = more?;
        self.again_at = None;
        if report.refused.is_some() {
            self.pause = if report.accepted == 0 { (self.pause * 2).min(PAUSES.1) } else { PAUSES.0 };
            self.again_at = Some(now + self.pause);
        } else {
            self.pause = PAUSES.0 / 2;
        }
        report.next_due = Some(self.again_at.unwrap_or(if more { now } else { follow }));
        Ok(report)
    }
}

impl Service for FeedReader {
    type Report = FeedReport;

    fn woken_by(&mut self, handle: &LoopHandle) {
        handle.wants(Wanted::EVENTS);
    }

    /// Passes the next events to the handler, and moves the consumer's cursor.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails. Events that were accepted are then delivered again.
    fn tick(&mut self, now: Timestamp) -> Result<FeedReport> {
        let tick = Tick::begin("feed", spans::feed(&self.name));
        let answer = self.read(now);
        self.emitter.ticked(&tick, answer.as_ref().ok(), answer.as_ref().err());
        answer
    }
}
