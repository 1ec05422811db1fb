//! The handles that a body receives: one for reading, and one for writing.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::Inserted;
use super::contract::{Change, GrantBatch, Granted, Move, Started, StoreTx, Survey, SurveyQuery};
#[cfg(feature = "postgres")]
use super::postgres::PostgresBackend;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteBackend;
use crate::error::{Error, Invalid, Result, StoreError, StoreErrorKind, StoreResult};
use crate::lease::{LeaseRef, Renewal};
use crate::task::{TaskInsert, TaskRecord, TaskState};
use crate::time::Timestamp;

/// A transaction that reads, with every query that a host can make.
///
/// [`read`](crate::store::MemoryStore::read) passes it to its body. A [`Tx`] dereferences to it.
pub struct ReadTx<'a> {
    inner: Inner<'a>,
}

/// A transaction that writes, with every verb that a host can use. It dereferences to a [`ReadTx`], so it can
/// also read.
///
/// [`write`](crate::store::MemoryStore::write) passes it to its body.
/// [`SqliteTx::attach`](super::sqlite::SqliteTx::attach) and [`postgres::tx`](super::postgres::tx) create it
/// for a transaction that the host owns.
///
/// Verbs on items take many and return one value per item. Each is safe on its own: no sequence of calls
/// makes a counter wrong, unless a host commits its own transaction after an error. A method that returns an
/// error may have done part of its work, so roll back. [`write`](crate::store::MemoryStore::write) does so
/// when its body returns the error.
pub struct Tx<'a> {
    read: ReadTx<'a>,
    effects: Effects,
    /// How the store failed in a verb that writes several times. If set, the transaction must not be
    /// committed.
    broken: Option<StoreErrorKind>,
    /// Whether it has admitted. If so, it may only admit again and read.
    admitted: bool,
    /// Whether its last verb is done. It may then be committed already.
    is_over: bool,
}

enum Inner<'a> {
    Borrowed(&'a mut (dyn StoreTx + 'a)),
    /// Not boxed: a boxed trait object would borrow the host's transaction until it is dropped. The host
    /// could then not commit while its handle is in scope.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteBackend<'a>),
    /// In a transaction that the host owns. The store's own transactions are borrowed.
    #[cfg(feature = "postgres")]
    Postgres(PostgresBackend<'static>),
}

impl<'a> Tx<'a> {
    /// Runs the body of a transaction on a backend's transaction. For authors of stores: see
    /// [`contract`](super::contract).
    ///
    /// # Errors
    ///
    /// The body's, or [`Self::check_whole`]'s if the body ignored an error. The store rolls back after
    /// either.
    pub fn run<T>(
        backend: &'a mut (dyn StoreTx + 'a),
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mut tx = Self::new(backend);
        let done = body(&mut tx)?;
        tx.check_whole()?;
        Ok(done)
    }

    pub(crate) fn new(backend: &'a mut (dyn StoreTx + 'a)) -> Self {
        Self::inside(Inner::Borrowed(backend))
    }

    #[cfg(feature = "sqlite")]
    pub(super) fn of_sqlite(backend: SqliteBackend<'a>) -> Self {
        Self::inside(Inner::Sqlite(backend))
    }

    #[cfg(feature = "postgres")]
    pub(super) fn of_postgres(backend: PostgresBackend<'static>) -> Self {
        Self::inside(Inner::Postgres(backend))
    }

    fn inside(inner: Inner<'a>) -> Self {
        Self {
            read: ReadTx { inner },
            effects: Effects::default(),
            broken: None,
            admitted: false,
            is_over: false,
        }
    }

    /// Returns the backend's methods, for a verb that writes with one of them.
    pub(crate) fn writes(&mut self) -> Result<&mut (dyn StoreTx + 'a)> {
        self.may_write()?;
        Ok(self.raw())
    }

    /// Returns [`Self::writes`] for a verb that locks and then decides on what it reads. It must see what was
    /// committed before the lock.
    pub(crate) fn decides(&mut self) -> Result<&mut (dyn StoreTx + 'a)> {
        self.may_write()?;
        #[cfg(feature = "postgres")]
        if let Inner::Postgres(backend) = &mut self.read.inner
            && !backend.is_read_committed()?
        {
            return Err(Invalid::AboveReadCommitted.into());
        }
        Ok(self.raw())
    }

    /// Refuses to write after a tick. A store may hold locks from a tick on that stop all other ticks, so a
    /// tick's transaction must not wait for a row afterwards.
    pub(crate) fn may_write(&self) -> Result<(), Invalid> {
        match self {
            Self { is_over: true, .. } => Err(Invalid::AfterLast),
            Self { admitted: true, .. } => Err(Invalid::AfterAdmit),
            _ => Ok(()),
        }
    }

    /// Runs the last verb of the transaction. The commit may be sent along with it, which on PostgreSQL saves
    /// a round trip. Once the verb has returned `Ok`, the transaction is committed whatever the body then
    /// returns.
    ///
    /// The closure calls one verb that writes. Afterwards other verbs are refused, and queries see what was
    /// committed. In a transaction that the host owns, the host still commits.
    ///
    /// # Errors
    ///
    /// The verb's errors, including those of the commit: nothing was changed, unless the error is
    /// [`Indeterminate`](StoreErrorKind::Indeterminate). [`Invalid::AfterLast`] for a second call.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// let enqueued = store.write(|tx| tx.last(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task))))?;
    /// assert_eq!(enqueued.len(), 1);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn last<T>(&mut self, verb: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.is_over {
            return Err(Invalid::AfterLast.into());
        }
        self.raw().last();
        let done = verb(self)?;
        self.is_over = true;
        Ok(done)
    }

    /// Returns true if [`Self::last`] has run its verb.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Runs a tick, after which the transaction writes nothing else.
    pub(crate) fn tick<T>(&mut self, verb: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        #[cfg(feature = "postgres")]
        if matches!(self.read.inner, Inner::Postgres(_)) {
            return Err(Invalid::TickInHostTransaction.into());
        }
        self.check_whole()?;
        if self.is_over {
            return Err(Invalid::AfterLast.into());
        }
        self.admitted = true;
        self.guarded(verb)
    }

    /// Runs a verb that writes several times. If the store fails in it, no further such verb runs, and
    /// [`Self::run`] does not let the transaction be committed.
    pub(crate) fn whole<T>(&mut self, verb: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_whole()?;
        self.may_write()?;
        self.guarded(verb)
    }

    /// Runs a verb, and remembers if it stopped halfway.
    fn guarded<T>(&mut self, verb: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.effects.clone();
        let done = verb(self);
        match &done {
            Err(Error::Store(error)) => self.broken = Some(error.kind()),
            Err(_) if self.effects != before => self.broken = Some(StoreErrorKind::Backend),
            _ => {}
        }
        done
    }

    /// Refuses a transaction in which the store failed halfway through a verb. [`Self::run`] calls this. Call
    /// it before you commit a transaction of your own in which you ignored an error, or in a store that wraps
    /// such a transaction.
    ///
    /// # Errors
    ///
    /// An error of the same kind as the failure. Roll back.
    pub fn check_whole(&self) -> Result<()> {
        match &self.read.inner {
            Inner::Borrowed(_) => {}
            #[cfg(feature = "sqlite")]
            Inner::Sqlite(backend) => backend.check_whole()?,
            #[cfg(feature = "postgres")]
            Inner::Postgres(backend) => backend.check_whole()?,
        }
        // The same kind: after a conflict the whole transaction is worth retrying.
        let Some(kind) = self.broken else { return Ok(()) };
        let text = "an operation failed earlier in this transaction: roll it back and begin again";
        Err(StoreError::new(kind, text).into())
    }

    /// Returns what the verbs have done so far. Decorators of stores read it after the commit.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Counts what was done through another handle on the same transaction.
    #[cfg(feature = "testing")]
    pub(crate) fn absorb(&mut self, effects: &Effects) {
        self.effects.add(effects);
    }
}

impl<'a> ReadTx<'a> {
    /// Returns the backend's own methods.
    pub(crate) fn raw(&mut self) -> &mut (dyn StoreTx + 'a) {
        match &mut self.inner {
            Inner::Borrowed(backend) => *backend,
            #[cfg(feature = "sqlite")]
            Inner::Sqlite(backend) => backend,
            #[cfg(feature = "postgres")]
            Inner::Postgres(backend) => backend,
        }
    }
}

impl<'a> Deref for Tx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &ReadTx<'a> {
        &self.read
    }
}

impl DerefMut for Tx<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.read
    }
}

impl fmt::Debug for ReadTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTx").finish_non_exhaustive()
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("effects", &self.effects).finish_non_exhaustive()
    }
}

/// What a transaction did to tasks and to capacity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effects {
    /// The number of tasks that were enqueued.
    pub enqueued: usize,
    /// Whether tasks may have become ready or capacity may have become free, so that an admitter should look.
    pub wakes_admission: bool,
    /// Whether holders of leases were asked to stop, so that their keepers should renew.
    pub wakes_holders: bool,
    /// Conditional writes that found the row changed. Calls whose lease was already stale when it was read
    /// are not counted.
    pub stale: Stale,
    moves: [usize; TaskState::ALL.len()],
}

/// The number of conditional writes that found the row changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// Tasks that should have started.
    pub start: usize,
    /// Leases that were lost before their renewal. Busy ones are not counted.
    pub renew: usize,
    /// Tasks that should have changed state in any other way.
    pub change: usize,
}

impl Effects {
    /// Returns how many tasks moved to this state.
    pub fn moved_to(&self, state: TaskState) -> usize {
        self.moves[state as usize]
    }

    #[cfg(feature = "testing")]
    fn add(&mut self, more: &Self) {
        self.enqueued += more.enqueued;
        self.wakes_admission |= more.wakes_admission;
        self.wakes_holders |= more.wakes_holders;
        self.stale.start += more.stale.start;
        self.stale.renew += more.stale.renew;
        self.stale.change += more.stale.change;
        for (sum, more) in self.moves.iter_mut().zip(more.moves) {
            *sum += more;
        }
    }
}

fn stale(results: &[bool]) -> usize {
    results.iter().filter(|result| !**result).count()
}

/// The contract's writes that have effects to record.
impl Tx<'_> {
    pub(crate) fn insert_tasks(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<Inserted>> {
        let results = self.raw().insert_tasks_if_absent(tasks)?;
        self.inserted(&results);
        Ok(results)
    }

    pub(crate) fn insert_uncapped(&mut self, tasks: &[TaskInsert]) -> Result<Option<Vec<Inserted>>> {
        let results = self.writes()?.insert_tasks_if_uncapped(tasks)?;
        results.iter().for_each(|results| self.inserted(results));
        Ok(results)
    }

    fn inserted(&mut self, results: &[Inserted]) {
        self.effects.enqueued += results.iter().filter(|result| matches!(result, Inserted::New(_))).count();
        self.effects.wakes_admission = true;
    }

    pub(crate) fn grant(&mut self, batch: &GrantBatch<'_>) -> StoreResult<Granted> {
        let granted = self.raw().grant_if_open(batch)?;
        self.granted(&granted.tasks);
        Ok(granted)
    }

    /// Surveys for a tick, which may grant ahead.
    pub(crate) fn survey(&mut self, query: &SurveyQuery) -> StoreResult<Survey> {
        let survey = self.raw().survey(query)?;
        self.granted(survey.ahead.as_deref().unwrap_or_default());
        Ok(survey)
    }

    fn granted(&mut self, tasks: &[TaskRecord]) {
        self.effects.moves[TaskState::Queued as usize] += tasks.len();
        let started = tasks.iter().filter(|task| task.state == TaskState::Running).count();
        self.effects.moves[TaskState::Running as usize] += started;
    }

    pub(crate) fn start_queued(
        &mut self,
        leases: &[LeaseRef],
        now: Timestamp,
    ) -> StoreResult<Vec<Option<Started>>> {
        let results = self.raw().start_if_queued(leases, now)?;
        self.effects.moves[TaskState::Running as usize] += results.iter().flatten().count();
        Ok(results)
    }

    /// Records starts that found their lease stale.
    pub(crate) fn starts_were_stale(&mut self, starts: usize) {
        self.effects.stale.start += starts;
    }

    pub(crate) fn renew_leases(
        &mut self,
        leases: &[LeaseRef],
        expires_at: Timestamp,
    ) -> Result<Vec<Renewal>> {
        let results = self.writes()?.renew_if_leased(leases, expires_at)?;
        self.effects.stale.renew += results.iter().filter(|result| result.is_lost()).count();
        Ok(results)
    }

    pub(crate) fn note_leases(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> Result<Vec<bool>> {
        Ok(self.writes()?.note_if_leased(notes)?)
    }

    pub(crate) fn cancel_leases(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> StoreResult<Vec<Option<Timestamp>>> {
        let asked = self.raw().cancel_if_leased(leases, deadline, message)?;
        self.effects.wakes_holders |= asked.iter().any(Option::is_some);
        Ok(asked)
    }

    pub(crate) fn move_tasks(&mut self, moves: &[Move]) -> StoreResult<Vec<bool>> {
        let results = self.raw().move_if(moves)?;
        self.effects.stale.change += stale(&results);
        for (to, _) in moves.iter().zip(&results).filter(|(_, result)| **result) {
            self.effects.moves[to.to as usize] += 1;
        }
        self.effects.wakes_admission = true;
        Ok(results)
    }

    pub(crate) fn change_tasks(&mut self, changes: &[Change]) -> StoreResult<Vec<bool>> {
        let results = self.raw().change_if(changes)?;
        self.effects.stale.change += stale(&results);
        self.effects.wakes_admission = true;
        Ok(results)
    }

    pub(crate) fn delete_tasks(&mut self, tasks: &[(LeaseRef, TaskState)]) -> StoreResult<Vec<bool>> {
        let results = self.raw().delete_if(tasks)?;
        // Tasks behind the leaving task may be admitted now: a policy may have kept slots free for it.
        let waited =
            tasks.iter().zip(&results).any(|((_, from), gone)| *gone && *from == TaskState::Scheduled);
        self.effects.wakes_admission |= waited;
        Ok(results)
    }

    pub(crate) fn end_leased(&mut self, ends: &[Move]) -> StoreResult<Vec<Option<bool>>> {
        let results = self.raw().end_if_leased(ends)?;
        for (end, _) in ends.iter().zip(&results).filter(|(_, result)| result.is_some()) {
            self.effects.moves[end.to as usize] += 1;
            self.effects.wakes_admission = true;
        }
        Ok(results)
    }

    /// Records that pools or limits were changed.
    pub(crate) fn capacity_changed(&mut self) {
        self.effects.wakes_admission = true;
    }
}
