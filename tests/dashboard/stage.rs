//! A store with a clock that stands still, and what its pages say.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::clock::ManualClock;
use stationmaster::dashboard::Dashboard;
use stationmaster::ops::AdmitRequest;
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskRecord, Timestamp};

use crate::http::{Answer, Server};

pub struct Stage {
    pub store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    pub server: Server,
    pub told: Arc<Mutex<Vec<String>>>,
    asked: AtomicUsize,
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

impl Stage {
    pub fn new() -> Self {
        Self::on(Arc::new(MemoryStore::new()))
    }

    pub fn on(store: Arc<dyn Store>) -> Self {
        let clock = Arc::new(ManualClock::new(at(0)));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&told);
        let board = Dashboard::new(store.clone())
            .clock(clock.clone())
            .allow_changes(|_| Some("ann".into()))
            .log(move |change| log.lock().unwrap().push(change.to_string()));
        Self { store, clock, server: Server::new(board.router()), told, asked: AtomicUsize::new(0) }
    }

    /// A page at this second, computed for this call.
    pub fn page(&self, second: i64, page: &str) -> Answer {
        self.clock.set(at(second));
        let mark = if page.contains('?') { '&' } else { '?' };
        self.server.get(&format!("/{page}{mark}n={}", self.asked.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn body(&self, second: i64, page: &str) -> String {
        let answer = self.page(second, page);
        assert_eq!(answer.status, 200, "{page}: {}", answer.body);
        answer.body
    }

    pub fn set(&self, second: i64) {
        self.clock.set(at(second));
    }

    pub fn enqueue(&self, second: i64, tasks: &[NewTask]) {
        self.store.write(|tx| tx.enqueue(at(second), tasks)).unwrap();
    }

    /// Grants up to this many tasks, and starts them.
    pub fn run(&self, second: i64, budget: usize) -> Vec<TaskRecord> {
        let request = format!("tick-{second}-{budget}").as_str().try_into().unwrap();
        let lease = Duration::from_secs(1_000);
        let order = AdmitRequest::new("worker-1".try_into().unwrap(), request, budget, lease).started();
        self.store.write(|tx| tx.admit(at(second), &order)).unwrap().granted
    }
}

/// Returns a text without its tags.
pub fn plain(markup: &str) -> String {
    let parts = markup.split('<').enumerate().map(|(n, part)| match n {
        0 => part,
        _ => part.split_once('>').map_or("", |(_, text)| text),
    });
    parts.collect()
}

/// Returns what a page of facts says under a name.
pub fn fact(body: &str, name: &str) -> Option<String> {
    let (_, after) = body.split_once(&format!("<dt>{name}</dt><dd>"))?;
    Some(plain(after.split("</dd>").next()?))
}

/// Returns the rows of the table in this section, each field with its column.
pub fn rows(body: &str, section: &str) -> Vec<String> {
    let (_, after) = body.split_once(&format!("<section id=\"{section}\"")).expect(section);
    let table = after.split("</table>").next().unwrap();
    table.split("<tr role=\"row\">").skip(2).map(|row| plain(&row.replace("<td", " | <td"))).collect()
}
