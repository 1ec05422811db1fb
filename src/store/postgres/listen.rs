//! Notifications that another process committed: a wake-up, never the truth.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_postgres::Notification;

use super::connect::Connector;
use super::dial::{Dialer, PAUSES};
use super::error::Failure;
use super::listen_connection::Listener;
use super::options::PostgresOptions;
use super::time::Timekeeper;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::TxMode;

/// One kind of change that is announced when a transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Tasks,
    Sensors,
    Events,
}

impl News {
    pub(super) const fn payload(self) -> &'static str {
        match self {
            Self::Tasks => "tasks",
            Self::Sensors => "sensors",
            Self::Events => "events",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Some of the news.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewsSet(u8);

impl NewsSet {
    const ALL: Self = Self(News::Tasks.bit() | News::Sensors.bit() | News::Events.bit());

    pub(super) fn add(&mut self, news: News) {
        self.0 |= news.bit();
    }

    pub(super) fn has(self, news: News) -> bool {
        self.0 & news.bit() != 0
    }

    /// An unknown payload comes from a newer version of the crate: anything may have changed.
    fn of(payload: &str) -> Self {
        [News::Tasks, News::Sensors, News::Events]
            .into_iter()
            .find(|news| news.payload() == payload)
            .map_or(Self::ALL, |news| Self(news.bit()))
    }
}

/// What may have changed, so that it is worth looking. See [`super::PostgresStore::on_change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change(NewsSet);

impl Change {
    /// Returns true if tasks became ready, or slots or limits were returned or changed: what an admitter
    /// waits for.
    pub fn tasks(self) -> bool {
        self.0.has(News::Tasks)
    }

    /// Returns true if sensors were registered or ended: what a poker follows.
    pub fn sensors(self) -> bool {
        self.0.has(News::Sensors)
    }

    /// Returns true if events were recorded: what a host that delivers them waits for.
    pub fn events(self) -> bool {
        self.0.has(News::Events)
    }
}

#[derive(Debug, Default)]
struct Pending {
    news: NewsSet,
    closed: bool,
}

/// Notifications received but not yet delivered. They are coalesced into one call.
pub(super) struct Inbox {
    channel: String,
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Inbox {
    pub(super) fn receive(&self, notification: &Notification) {
        if notification.channel() == self.channel {
            self.note(NewsSet::of(notification.payload()));
        }
    }

    fn note(&self, news: NewsSet) {
        self.pending.lock().news.0 |= news.0;
        self.changed.notify_all();
    }

    fn close(&self) {
        self.pending.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for news. Returns `None` once it is closed.
    fn next(&self) -> Option<Change> {
        let mut pending = self.pending.lock();
        while !pending.closed && pending.news == NewsSet::default() {
            self.changed.wait(&mut pending);
        }
        (!pending.closed).then(|| Change(std::mem::take(&mut pending.news)))
    }
}

/// Closes the inbox when the connection is given up, so that the thread that waits for news ends.
struct CloseOnDrop(Arc<Inbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Keeps a callback registered: see [`super::PostgresStore::on_change`].
///
/// It ends when this, or the store, is dropped. Dropping it waits for a running call, unless that call drops
/// it.
#[must_use = "dropping it ends the listening"]
pub struct Listening {
    inbox: Arc<Inbox>,
    listener: AbortHandle,
    caller: Option<JoinHandle<()>>,
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("channel", &self.inbox.channel).finish_non_exhaustive()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.inbox.close();
        self.listener.abort();
        let Some(caller) = self.caller.take() else { return };
        if caller.thread().id() != thread::current().id() {
            let _ = caller.join();
        }
    }
}

/// Listens with a connection on this runtime, and calls on a thread of its own. Returns when the server has
/// the LISTEN.
pub(super) fn listen(
    runtime: &Handle,
    connector: &Connector,
    options: &Arc<PostgresOptions>,
    time: &Arc<Timekeeper>,
    callback: impl Fn(Change) + Send + 'static,
) -> StoreResult<Listening> {
    let channel = options.schema.channel();
    let inbox = Arc::new(Inbox { channel, pending: Mutex::default(), changed: Condvar::new() });
    let connector = connector.delivering_to(&inbox);
    let dialer = Dialer::new(TxMode::Read, connector, Arc::clone(options), Arc::clone(time));
    let (tell, first) = sync_channel(1);
    let listener = runtime
        .spawn(keep_listening(Listener::new(dialer), CloseOnDrop(Arc::clone(&inbox)), tell))
        .abort_handle();
    let mut listening = Listening { inbox: Arc::clone(&inbox), listener, caller: None };
    first.recv().map_err(|_| {
        StoreError::from(Failure::lost("the store's thread has ended: open the store anew"))
    })??;
    let call = move || {
        while let Some(change) = inbox.next() {
            // The host's panic is its own concern, and the panic hook has reported it.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(change)));
        }
    };
    let caller = thread::Builder::new().name("stationmaster-listen".into()).spawn(call).map_err(|error| {
        let text = format!("the thread that calls on changes cannot be started: {error}");
        StoreError::new(StoreErrorKind::Io, text).with_source(error)
    })?;
    listening.caller = Some(caller);
    Ok(listening)
}

/// Listens, and listens again whenever the connection was lost. After a loss everything counts as changed.
async fn keep_listening(mut listener: Listener, inbox: CloseOnDrop, tell: SyncSender<Result<(), Failure>>) {
    let mut tell = Some(tell);
    let mut pause = PAUSES.0;
    loop {
        let listens = listener.listen(&inbox.0.channel).await;
        let failed = listens.is_err();
        match tell.take() {
            Some(tell) => {
                // The caller waits for the first result.
                let _ = tell.send(listens);
                if failed {
                    return;
                }
            }
            None if failed => {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
                continue;
            }
            None => inbox.0.note(NewsSet::ALL),
        }
        pause = PAUSES.0;
        listener.lost().await;
    }
}
