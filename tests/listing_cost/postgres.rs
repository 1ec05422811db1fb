//! PostgreSQL explains each statement that it ran.

#[cfg(feature = "dashboard")]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
#[cfg(feature = "dashboard")]
use stationmaster::dashboard::Dashboard;
use stationmaster::store::{PostgresStore, ReadTx};

use super::{Cost, Costs, compare, questions, undocumented};
#[cfg(feature = "dashboard")]
use super::{grows, tasks};
#[cfg(feature = "dashboard")]
use crate::http::Server;
use crate::postgres_server::relay::Relay;
use crate::postgres_server::{Plain, with};
use crate::scratch::{Scratch, url};
use crate::world::World;

const EXPLAINED: &str = "options=-c%20session_preload_libraries%3Dauto_explain%20-c%20auto_explain.log_min_duration%3D0\
    %20-c%20auto_explain.log_analyze%3Don%20-c%20auto_explain.log_timing%3Doff%20-c%20auto_explain.log_buffers%3Don\
    %20-c%20auto_explain.log_format%3Djson%20-c%20auto_explain.log_level%3Dnotice";

/// The rows that scans of tables and indexes returned or left out.
fn scanned(step: &Value) -> f64 {
    let number = |field: &str| step[field].as_f64().unwrap_or(0.0);
    let is_scan = step["Relation Name"].is_string() || step["Node Type"] == "Bitmap Index Scan";
    let left_out = number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    let own = if is_scan { (number("Actual Rows") + left_out) * number("Actual Loops") } else { 0.0 };
    own + step["Plans"].as_array().into_iter().flatten().map(scanned).sum::<f64>()
}

/// A store that a relay listens to.
struct Heard {
    store: Arc<PostgresStore>,
    cost: Arc<Mutex<Cost>>,
    relay: Relay,
    _scratch: Scratch,
}

impl Heard {
    fn filled(tasks: usize) -> Self {
        let scratch = Scratch::new();
        World::fill(&scratch.open(|options| options), tasks);
        let plain = Plain::connect(&url());
        let schema = scratch.0.to_string();
        for row in plain.ask(&format!("SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")) {
            plain.ask(&format!("VACUUM ANALYZE \"{schema}\".\"{}\"", row[0].as_deref().unwrap()));
        }
        let cost = Arc::new(Mutex::new(Cost::default()));
        let noted = Arc::clone(&cost);
        let relay = Relay::start(&url(), |_| None, move |notice| note(&noted, notice));
        let store = PostgresStore::connect(&with(&relay.url(), EXPLAINED), scratch.options()).unwrap();
        Self { store: Arc::new(store), cost, relay, _scratch: scratch }
    }

    /// What a call costs.
    fn cost(&self, call: impl Fn(&mut ReadTx<'_>) -> usize) -> Cost {
        self.cost_of(|| self.store.read(|tx| Ok(call(tx))).unwrap())
    }

    /// What asking costs. The first one sets up what the next finds.
    fn cost_of(&self, ask: impl Fn() -> usize) -> Cost {
        ask();
        self.relay.until_idle();
        *self.cost.lock().unwrap() = Cost::default();
        let returned = ask() as u64;
        self.relay.until_idle();
        Cost { returned, ..*self.cost.lock().unwrap() }
    }
}

fn note(cost: &Mutex<Cost>, notice: &str) {
    let Some((_, plan)) = notice.split_once("plan:\n") else { return };
    let plan: Value = serde_json::from_str(plan).unwrap();
    let number = |field: &str| plan["Plan"][field].as_f64().unwrap_or(0.0);
    let mut cost = cost.lock().unwrap();
    cost.work += scanned(&plan["Plan"]) as u64;
    cost.buffers += (number("Shared Hit Blocks") + number("Shared Read Blocks")) as u64;
}

fn costs(tasks: usize) -> Costs {
    let heard = Heard::filled(tasks);
    questions().into_iter().map(|(question, ask)| (question, heard.cost(ask))).collect()
}

#[test]
fn lists_cost_what_they_return_on_postgres() {
    compare("PostgreSQL", costs);
}

#[test]
fn a_list_that_passes_tasks_costs_more_on_postgres() {
    let cost =
        |tasks| Heard::filled(tasks).cost(|tx| tx.list_tasks(&undocumented()).unwrap().tasks.len()).work;
    assert!(cost(4_000) > 2 * cost(1_000), "the rows of scans say what a list reads");
}

/// The pages of the dashboard. The audit reads every task, and what would run next reads what is overdue, as a tick does.
#[cfg(feature = "dashboard")]
#[test]
fn pages_cost_what_they_show_on_postgres() {
    const PAGES: [&str; 11] = [
        "overview",
        "tasks",
        "tasks?state=waiting&queue=rare",
        "tasks?state=waiting&pool=rare",
        "tasks?state=leased&limit_key=rare",
        "tasks?state=ended",
        "task?namespace=small&workflow=w&run=r&task=4-1",
        "before?namespace=small&workflow=w&run=r&task=4-1",
        "runs?zoom=24h",
        "sensors",
        "health",
    ];
    let costs = |tasks| {
        let heard = Heard::filled(tasks);
        let server = Server::new(Dashboard::new(heard.store.clone()).router());
        let asked = AtomicUsize::new(0);
        let cost = |page: &str| {
            let ask = || {
                // Each time at another address, because what was just shown is not asked for again.
                let mark = if page.contains('?') { '&' } else { '?' };
                let answer = server.get(&format!("/{page}{mark}n={}", asked.fetch_add(1, Ordering::Relaxed)));
                assert_eq!(answer.status, 200, "{page}: {}", answer.body);
                answer.body.len()
            };
            heard.cost_of(ask)
        };
        PAGES.map(cost)
    };
    // Enough for what a page looks at most to be there in both.
    let (few, many) = (tasks(), 3 * tasks());
    println!("{few} and {many} tasks on PostgreSQL: rows and buffers that a page reads");
    for ((page, few), many) in PAGES.iter().zip(costs(few)).zip(costs(many)) {
        println!("{page:50} {:>8} {:>8} {:>8} {:>8}", few.work, many.work, few.buffers, many.buffers);
        // Of few rows the server may find as many another way. Reading all of something is thousands.
        let grows = grows(few.work, many.work) && many.work > few.work + 500;
        assert!(!grows, "{page}: {} rows, and {} of more tasks", few.work, many.work);
    }
}
