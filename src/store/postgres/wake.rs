//! How a store notifies listeners of its commits.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::hub::Hub;
use super::news::{Channel, NewsSet};
use super::places::Purpose;
use super::pool::Pool;
use super::request::Request;

/// How a store's commits wake listeners ([`super::PostgresStore::on_change`]) of other stores. Its own
/// listeners are woken directly, unless it is [`Self::Never`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Wake {
    /// After the commit, from one of the store's connections: at once after a pause, and then one `NOTIFY` for all
    /// commits within 5 ms, or within up to 20 ms while there is more than one commit per millisecond. The commits do
    /// not wait for each other. A wake-up may be late by the same time. It waits while hosts' transactions use all of a
    /// store's one or two connections, and is lost if the process ends at once.
    #[default]
    Beside,
    /// By a `NOTIFY` in the transaction. The server makes such commits take turns, over all its databases and
    /// until each is on its disk. Eight connections then commit about as fast as one.
    InTransaction,
    /// Not at all. Others see the change at their next tick.
    Never,
}

/// The least time between two `NOTIFY` of a store: while commits are few, and while they are many.
const GAPS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

/// News that were committed and not sent yet.
#[derive(Debug, Default)]
struct Outbox {
    pending: Mutex<Pending>,
    came: Notify,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    news: NewsSet,
    /// How many commits brought them.
    commits: u128,
    /// Once closed, what is left is sent at once.
    is_closed: bool,
}

impl Outbox {
    fn add(&self, news: NewsSet) {
        let mut pending = self.pending.lock();
        pending.news = pending.news.and(news);
        pending.commits += 1;
        drop(pending);
        self.came.notify_one();
    }

    fn close(&self) {
        self.pending.lock().is_closed = true;
        self.closed.notify_one();
        self.came.notify_one();
    }

    fn take(&self) -> NewsSet {
        let mut pending = self.pending.lock();
        pending.commits = 0;
        std::mem::take(&mut pending.news)
    }

    /// Keeps what could not be sent, until more comes.
    fn put_back(&self, news: NewsSet) {
        let mut pending = self.pending.lock();
        pending.news = pending.news.and(news);
    }

    fn is_empty(&self) -> bool {
        self.pending.lock().news.is_empty()
    }

    /// Returns the least time until the next `NOTIFY` after a gap of this length. It is longer only for many commits: a
    /// single commit would wait for nothing, and so would the next one after it.
    fn gap_after(&self, gap: Duration) -> Duration {
        if self.pending.lock().commits > gap.as_millis() { (gap * 2).min(GAPS.1) } else { GAPS.0 }
    }

    fn is_closed(&self) -> bool {
        self.pending.lock().is_closed
    }
}

/// Announces what a store committed. Dropping it sends what is left, while the store's thread waits for that.
#[derive(Debug)]
pub(super) struct Announcer {
    wake: Wake,
    hub: Arc<Hub>,
    outbox: Option<Arc<Outbox>>,
}

impl Announcer {
    pub(super) fn start(wake: Wake, hub: &Arc<Hub>, pool: &Arc<Pool>, runtime: &Handle) -> Self {
        let outbox = (wake == Wake::Beside).then(|| {
            let outbox = Arc::new(Outbox::default());
            runtime.spawn(keep_telling(Arc::clone(&outbox), Arc::clone(pool), hub.channel()));
            outbox
        });
        Self { wake, hub: Arc::clone(hub), outbox }
    }

    /// Returns where a transaction announces itself.
    pub(super) fn in_transaction(&self) -> Option<Channel> {
        (self.wake == Wake::InTransaction).then(|| self.hub.channel())
    }

    /// Announces what was committed, or may have been.
    pub(super) fn committed(&self, news: NewsSet) {
        if news.is_empty() || self.wake == Wake::Never {
            return;
        }
        self.hub.note(news);
        if let Some(outbox) = &self.outbox {
            outbox.add(news);
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        if let Some(outbox) = &self.outbox {
            outbox.close();
        }
    }
}

/// Sends one `NOTIFY` for everything that came meanwhile. What cannot be sent goes with the next.
async fn keep_telling(outbox: Arc<Outbox>, pool: Arc<Pool>, channel: Channel) {
    let mut gap = GAPS.0;
    loop {
        outbox.came.notified().await;
        let is_last = outbox.is_closed();
        if is_last && outbox.is_empty() {
            return;
        }
        if let Ok(lease) = pool.lease_for_task(Purpose::Service).await {
            let news = outbox.take();
            if !news.is_empty() && lease.session().ask(Request::Tell(text(&channel, news))).await.is_err() {
                outbox.put_back(news);
            }
        }
        if is_last {
            return;
        }
        // The end of the store does not wait that long.
        let closed = outbox.closed.notified();
        let _ = timeout(gap, closed).await;
        gap = outbox.gap_after(gap);
    }
}

/// Returns the text that sends a `NOTIFY`. It does not wait for its flush: a server that crashes notifies no listener
/// anyway, and listeners look at everything after they have reconnected. So the lock under which the server sends a
/// notification is held for a shorter time.
fn text(channel: &Channel, news: NewsSet) -> String {
    format!(
        "BEGIN READ WRITE; SET LOCAL synchronous_commit = off; NOTIFY \"{}\", '{}'; COMMIT",
        channel.name,
        channel.payload(news)
    )
}

#[cfg(test)]
mod tests {
    use super::super::news::News;
    use super::*;

    #[test]
    fn a_gap_grows_while_there_are_many_commits_and_not_for_one_that_follows_another() {
        let gap_after = |commits: u32, gap| {
            let outbox = Outbox::default();
            (0..commits).for_each(|_| outbox.add(News::Ready.into()));
            outbox.gap_after(gap)
        };
        let [least, most] = [GAPS.0, GAPS.1];
        assert_eq!([0, 1, 5, 6].map(|commits| gap_after(commits, least)), [least, least, least, least * 2]);
        assert_eq!([20, 21].map(|commits| gap_after(commits, most)), [least, most]);
    }
}
