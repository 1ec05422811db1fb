//! How a store notifies listeners of its commits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::hub::Hub;
use super::news::{Channel, NewsSet};
use super::places::Purpose;
use super::pool::{Lease, Pool};
use super::request::{Request, Unannounced};

/// How a store's commits wake listeners ([`super::PostgresStore::on_change`]) of other stores. Its own
/// listeners are woken directly, unless it is [`Self::Never`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Wake {
    /// After the commit, from one of the store's connections. After a pause, the committing connection sends a
    /// `NOTIFY` at once. Then one `NOTIFY` covers all commits within 5 ms, or within up to 20 ms while there is more
    /// than one commit per millisecond. The commits do not wait for each other. A wake-up may be late by the same
    /// time. It also waits while hosts' transactions use all of a store's one or two connections, and is lost if the
    /// process ends at once.
    #[default]
    Beside,
    /// By a `NOTIFY` in the transaction. The server serializes such commits over all its databases, each until it is
    /// on disk. Eight connections then commit about as fast as one.
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
    /// How many commits brought news since the last `NOTIFY`.
    commits: u128,
    /// Until when nothing is sent, and how long that time is.
    quiet_until: Option<Instant>,
    gap: Duration,
    /// Once closed, pending news is sent at once.
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

    /// Takes the news to send now, unless it is too early.
    fn take(&self, more: NewsSet, now: Instant) -> Option<NewsSet> {
        let mut pending = self.pending.lock();
        if !pending.is_closed && pending.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        pending.commits += u128::from(!more.is_empty());
        pending.go_on(now);
        Some(std::mem::take(&mut pending.news).and(more))
    }

    /// Keeps news that could not be sent until more comes.
    fn put_back(&self, news: NewsSet) {
        let mut pending = self.pending.lock();
        pending.news = pending.news.and(news);
        pending.quiet_until = None;
    }

    /// Returns until when nothing is sent, unless the outbox is closed.
    fn waits_until(&self) -> Option<Instant> {
        let pending = self.pending.lock();
        pending.quiet_until.filter(|_| !pending.is_closed)
    }

    /// Returns whether there is nothing to send, and whether the outbox is closed.
    fn standing(&self) -> (bool, bool) {
        let pending = self.pending.lock();
        (pending.news.is_empty(), pending.is_closed)
    }
}

impl Pending {
    /// Begins the time until the next `NOTIFY`. It is longer only if there are many commits: a single commit, and the
    /// next one after it, would wait needlessly.
    fn go_on(&mut self, now: Instant) {
        let gap = self.gap.max(GAPS.0);
        self.gap = if self.commits > gap.as_millis() { (gap * 2).min(GAPS.1) } else { GAPS.0 };
        self.commits = 0;
        self.quiet_until = Some(now + self.gap);
    }
}

/// Announces what a store committed. Dropping it sends pending news, and the store's thread waits for that.
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

    /// Returns the channel on which a transaction announces its own news.
    pub(super) fn in_transaction(&self) -> Option<Channel> {
        (self.wake == Wake::InTransaction).then(|| self.hub.channel())
    }

    /// Sends a `NOTIFY` on the connection of a commit that brought news, if it is time for one. Returns false if
    /// others should send it. So a commit after a pause is announced without waking another thread of its process
    /// first.
    pub(super) fn announce_on(&self, lease: &Lease, news: NewsSet) -> bool {
        let Some(outbox) = self.outbox.as_ref().filter(|_| !news.is_empty()) else { return false };
        let now = Instant::now();
        if outbox.waits_until().is_some_and(|until| now < until) || !lease.session().announces_beside() {
            return false;
        }
        let Some(all) = outbox.take(news, now) else { return false };
        let late = Arc::clone(outbox);
        let unannounced = Unannounced::new(move || late.add(all));
        // `unannounced` keeps what is not sent.
        let _ = lease.session().call(Request::AnnounceBeside(text(&self.hub.channel(), all), unannounced));
        true
    }

    /// Announces committed (or possibly committed) news to this store's own listeners and, unless `is_announced`, to
    /// others.
    pub(super) fn committed(&self, news: NewsSet, is_announced: bool) {
        if news.is_empty() || self.wake == Wake::Never {
            return;
        }
        self.hub.note(news);
        if let Some(outbox) = self.outbox.as_ref().filter(|_| !is_announced) {
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

/// Sends one `NOTIFY` for all accumulated news. What cannot be sent is sent with the next.
async fn keep_telling(outbox: Arc<Outbox>, pool: Arc<Pool>, channel: Channel) {
    loop {
        outbox.came.notified().await;
        // When the store ends, it does not wait that long.
        if let Some(until) = outbox.waits_until() {
            let _ = timeout_at(until.into(), outbox.closed.notified()).await;
        }
        let (is_empty, is_last) = outbox.standing();
        if !is_empty
            && let Ok(lease) = pool.lease_for_task(Purpose::Service).await
            && let Some(news) = outbox.take(NewsSet::NONE, Instant::now()).filter(|news| !news.is_empty())
            && lease.session().ask(Request::Announce(text(&channel, news))).await.is_err()
        {
            outbox.put_back(news);
        }
        if is_last {
            return;
        }
    }
}

/// Returns the text that sends a `NOTIFY`. It does not wait for its flush: a crashing server notifies no listener
/// anyway, and listeners look at everything after they reconnect. This shortens how long the server's lock on sending
/// notifications is held.
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
        let gap_after = |commits: u128, gap| {
            let mut pending = Pending { commits, gap, ..Pending::default() };
            pending.go_on(Instant::now());
            pending.gap
        };
        let [least, most] = [GAPS.0, GAPS.1];
        assert_eq!([0, 1, 5, 6].map(|commits| gap_after(commits, least)), [least, least, least, least * 2]);
        assert_eq!([20, 21].map(|commits| gap_after(commits, most)), [least, most]);
    }

    #[test]
    fn news_is_taken_once_by_whoever_comes_first_after_the_gap() {
        let (outbox, began) = (Outbox::default(), Instant::now());
        let (ready, events) = (NewsSet::from(News::Ready), NewsSet::from(News::Events));
        assert_eq!(outbox.take(ready, began), Some(ready), "after a pause at once");
        assert_eq!(outbox.take(events, began), None, "too early");
        outbox.add(events);
        let later = began + GAPS.0;
        assert_eq!(outbox.take(ready, later), Some(ready.and(events)));
        assert_eq!(outbox.take(NewsSet::NONE, later + GAPS.0), Some(NewsSet::NONE), "nothing is sent twice");
        outbox.put_back(ready);
        assert_eq!(
            outbox.take(NewsSet::NONE, later + GAPS.0),
            Some(ready),
            "what failed is sent without a gap"
        );
        outbox.close();
        outbox.add(events);
        assert_eq!(outbox.take(NewsSet::NONE, later + GAPS.0), Some(events), "the end does not wait");
    }
}
