//! Futures that are dropped after a number of polls, and stores to see what that did.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use stationmaster::run::{ActiveQuery, RunKey};
use stationmaster::store::Store;
use stationmaster::{TaskKey, TaskRecord, Timestamp};
use tokio::runtime::{Builder, Runtime};

use crate::scene::Gate;

/// One thread for tasks, and one for what blocks: such work is done in the order in which it was begun.
pub fn in_order() -> Runtime {
    Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap()
}

/// Waits for all blocking work that was begun, on a runtime that does it in order.
pub async fn all_work_done() {
    tokio::task::spawn_blocking(|| {}).await.unwrap();
}

/// Returns what a future returns. If it is still pending after this many polls, it is dropped. `after_first`
/// is called once the first poll has returned. On a runtime that works in order, blocking work that a poll
/// begins does not end before the poll.
pub async fn cut<T>(
    polls: usize,
    mut after_first: impl FnMut(),
    future: impl Future<Output = T>,
) -> Option<T> {
    let (mut future, mut made) = (Some(Box::pin(future)), 0);
    std::future::poll_fn(move |context| {
        let Some(running) = future.as_mut() else { return Poll::Ready(None) };
        let polled_to_its_end = Arc::new(Gate::default());
        let gate = polled_to_its_end.clone();
        tokio::task::spawn_blocking(move || gate.pass());
        let polled = Pin::new(running).poll(context);
        polled_to_its_end.open();
        made += 1;
        if made == 1 {
            after_first();
        }
        match polled {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if made == polls => {
                future = None;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// All that the operations change, and the tasks on their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub tasks: Vec<Option<TaskRecord>>,
    lines: Vec<String>,
}

impl Seen {
    pub fn must_be(&self, other: &Self, context: &str) {
        let differ = self.lines.iter().zip(&other.lines).find(|(one, other)| one != other);
        assert!(self == other, "{context}: {differ:#?}");
    }
}

/// Looks at a store, whose counters must be what they count.
pub fn look(store: &Arc<dyn Store>, tasks: &[TaskKey]) -> Seen {
    let of_time = ActiveQuery::new(Timestamp::UNIX_EPOCH, Timestamp::from_micros(i64::MAX / 4));
    store
        .read(|tx| {
            let mut lines = vec![format!("{:?}", tx.all_pools()?), format!("{:?}", tx.feed(0, 1_000)?)];
            lines.extend(tx.active_runs(&of_time)?.iter().map(|run| format!("{run:?}")));
            lines.extend(tx.runs(&[run("watched")])?.iter().map(|run| format!("{run:?}")));
            lines.extend(tx.sensors(tasks)?.iter().map(|sensor| format!("{sensor:?}")));
            let tasks = tx.tasks(tasks)?;
            lines.extend(tasks.iter().map(|task| format!("{task:?}")));
            assert_eq!(tx.audit()?, []);
            Ok(Seen { tasks, lines })
        })
        .unwrap()
}

pub fn run(id: &str) -> RunKey {
    RunKey::new("ns", id).unwrap()
}

/// Used slots of the pool that all tasks of these tests need.
pub fn used(store: &Arc<dyn Store>) -> i64 {
    let pools = store.read(|tx| tx.all_pools()).unwrap();
    pools.iter().map(|pool| pool.used).sum()
}
