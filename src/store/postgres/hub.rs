//! The callbacks of a store, and the one connection that listens for all of them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_postgres::Notification;

use super::dial::{Dialer, PAUSES, Tables};
use super::error::Failure;
use super::listen::{Change, Listening};
use super::listen_connection::Listener;
use super::news::{self, Channel, NewsSet, StoreMark};
use super::pool::{Lease, Pool};
use super::request::Request;
use super::{Connector, PostgresOptions, Timekeeper};
use crate::error::{StoreError, StoreErrorKind, StoreResult};

/// A receiver of changes.
pub(super) struct Inbox {
    /// Called at once, on the thread that has the news. If `None`, news is kept until a thread asks for it.
    at_once: Option<Call>,
    /// News that was received and not delivered yet, coalesced into one call.
    pending: Mutex<Pending>,
    changed: Condvar,
}

/// A callback that does not block.
type Call = Box<dyn Fn(Change) + Send + Sync>;

#[derive(Debug, Default)]
struct Pending {
    news: NewsSet,
    closed: bool,
}

impl Inbox {
    fn new(at_once: Option<Call>) -> Arc<Self> {
        Arc::new(Self { at_once, pending: Mutex::default(), changed: Condvar::new() })
    }

    fn note(&self, news: NewsSet) {
        if let Some(call) = &self.at_once {
            return call(Change(news));
        }
        let mut pending = self.pending.lock();
        pending.news = pending.news.and(news);
        drop(pending);
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        self.pending.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for news. Returns `None` once it is closed.
    fn next(&self) -> Option<Change> {
        let mut pending = self.pending.lock();
        while !pending.closed && pending.news.is_empty() {
            self.changed.wait(&mut pending);
        }
        (!pending.closed).then(|| Change(std::mem::take(&mut pending.news)))
    }
}

/// Delivers to the callbacks of one store.
pub(super) struct Hub {
    channel: Channel,
    mark: StoreMark,
    state: Mutex<State>,
    /// Locked while the connection is being opened. Others wait for that.
    starting: Mutex<()>,
}

#[derive(Default)]
struct State {
    inboxes: Vec<Arc<Inbox>>,
    /// Aborts the task that keeps the connection, while there is a callback.
    listener: Option<AbortHandle>,
    /// Increases when a listener ends, so that its end does not affect a later listener.
    round: u64,
}

impl State {
    /// Ends the listener.
    fn end(&mut self) {
        self.round += 1;
        if let Some(listener) = self.listener.take() {
            listener.abort();
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// What listening requires.
pub(super) struct Listens<'s> {
    pub(super) runtime: &'s Handle,
    pub(super) connector: &'s Connector,
    pub(super) options: &'s Arc<PostgresOptions>,
    pub(super) time: &'s Arc<Timekeeper>,
    pub(super) pool: &'s Arc<Pool>,
}

impl Hub {
    pub(super) fn new(options: &PostgresOptions) -> Arc<Self> {
        let mark = StoreMark::draw();
        let channel = Channel { name: options.schema.channel().into(), from: Some(mark) };
        Arc::new(Self { channel, mark, state: Mutex::default(), starting: Mutex::default() })
    }

    /// Returns the channel on which the store announces commits.
    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Receives a notification from the server. What the store itself announced was noted with its commit.
    pub(super) fn receive(&self, notification: &Notification) {
        if notification.channel() != &*self.channel.name {
            return;
        }
        let (news, from) = news::read(notification.payload());
        if from != Some(self.mark) {
            self.note(news);
        }
    }

    pub(super) fn note(&self, news: NewsSet) {
        // A call wakes the host's futures, which may end the listening.
        let inboxes = self.state.lock().inboxes.clone();
        inboxes.iter().for_each(|inbox| inbox.note(news));
    }

    /// Removes one callback. With the last one, listening ends.
    pub(super) fn remove(&self, inbox: &Arc<Inbox>) {
        inbox.close();
        let mut state = self.state.lock();
        state.inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
        if state.inboxes.is_empty() {
            state.end();
        }
    }

    /// Removes all callbacks.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.inboxes.drain(..).for_each(|inbox| inbox.close());
        state.end();
    }

    /// Registers a callback that does not block. It is called on the thread where the news arrives. Returns when the
    /// server listens.
    pub(super) fn listen_at_once(
        self: &Arc<Self>,
        with: &Listens<'_>,
        callback: impl Fn(Change) + Send + Sync + 'static,
    ) -> StoreResult<Listening> {
        self.add(with, Inbox::new(Some(Box::new(callback))))
    }

    /// Registers a callback that runs on its own thread. Returns when the server listens.
    pub(super) fn listen(
        self: &Arc<Self>,
        with: &Listens<'_>,
        callback: impl Fn(Change) + Send + 'static,
    ) -> StoreResult<Listening> {
        let inbox = Inbox::new(None);
        let mut listening = self.add(with, Arc::clone(&inbox))?;
        let call = move || {
            while let Some(change) = inbox.next() {
                // The host's panic is its own concern, and the panic hook has reported it.
                let _ = catch_unwind(AssertUnwindSafe(|| callback(change)));
            }
        };
        let caller =
            thread::Builder::new().name("stationmaster-listen".into()).spawn(call).map_err(|error| {
                let text = format!("the thread that calls on changes cannot be started: {error}");
                StoreError::new(StoreErrorKind::Io, text).with_source(error)
            })?;
        listening.caller = Some(caller);
        Ok(listening)
    }

    /// Adds an inbox, and makes sure that a connection listens.
    fn add(self: &Arc<Self>, with: &Listens<'_>, inbox: Arc<Inbox>) -> StoreResult<Listening> {
        let listening = Listening { hub: Arc::clone(self), inbox: Arc::clone(&inbox), caller: None };
        let starting = self.starting.lock();
        let is_listening = {
            let mut state = self.state.lock();
            state.inboxes.push(inbox);
            state.listener.is_some()
        };
        if !is_listening {
            self.start(with)?;
        }
        drop(starting);
        Ok(listening)
    }

    /// Opens the connection, in place of one for transactions.
    fn start(self: &Arc<Self>, with: &Listens<'_>) -> StoreResult<()> {
        let lease = with.pool.lease_to_listen(with.options.lock_timeout)?;
        lease.session().call(Request::Disconnect)?;
        let connector = with.connector.delivering_to(self);
        let dialer = Dialer::new(Tables::Known, connector, Arc::clone(with.options), Arc::clone(with.time));
        let (report, first) = sync_channel(1);
        let round = self.state.lock().round;
        let end = CloseOnDrop { hub: Arc::clone(self), round };
        let listener = with.runtime.spawn(keep_listening(Listener::new(dialer), lease, end, report));
        {
            let mut state = self.state.lock();
            // It may have failed already.
            if state.round == round {
                state.listener = Some(listener.abort_handle());
            }
        }
        first.recv().map_err(|_| {
            StoreError::from(Failure::lost("the store's thread has ended: open the store again"))
        })??;
        Ok(())
    }
}

/// Closes the inboxes when the connection is given up, so that threads that wait for news end.
struct CloseOnDrop {
    hub: Arc<Hub>,
    round: u64,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        if state.round == self.round {
            state.inboxes.drain(..).for_each(|inbox| inbox.close());
            state.end();
        }
    }
}

/// Listens, and reconnects whenever the connection was lost. After a loss, everything counts as changed.
async fn keep_listening(
    mut listener: Listener,
    _lease: Lease,
    end: CloseOnDrop,
    report: SyncSender<Result<(), Failure>>,
) {
    let mut report = Some(report);
    let mut pause = PAUSES.0;
    loop {
        let listens = listener.listen(&end.hub.channel.name).await;
        let failed = listens.is_err();
        match report.take() {
            Some(report) => {
                // The caller waits for the first result.
                let _ = report.send(listens);
                if failed {
                    return;
                }
            }
            None if failed => {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
                continue;
            }
            None => end.hub.note(NewsSet::ALL),
        }
        pause = PAUSES.0;
        listener.lost().await;
    }
}
