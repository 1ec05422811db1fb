//! `docs/coming-from-airflow.md` names what there is, and says the defaults that are.
//!
//! That its links lead somewhere is checked by rustdoc; here, that nothing escapes that check, and what no link can say.

use std::sync::Arc;

use stationmaster::backoff::DEFAULT_CAP;
use stationmaster::bounds::MAX_TEXT_BYTES;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::id::PoolName;
use stationmaster::pool::DEFAULT_POOL_SLOTS;
use stationmaster::sensor::SmartSensorConfig;
use stationmaster::service::{Admitter, Poker};
use stationmaster::store::MemoryStore;
use stationmaster::{NewTask, TaskKey, TaskState};

const PAGE: &str = include_str!("../docs/coming-from-airflow.md");

/// The cells of the tables, by line.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
    PAGE.lines().filter(|line| line.starts_with("| ")).map(cells)
}

/// The row whose first cell begins like this.
fn row(airflow: &str) -> String {
    let found = rows().find(|row| row[0].starts_with(airflow));
    found.unwrap_or_else(|| panic!("no row for {airflow}")).join(" | ")
}

#[test]
fn every_item_that_is_named_is_a_link_that_rustdoc_checks() {
    let mut links = 0;
    for row in rows() {
        for cell in &row[1..] {
            for (at, _) in cell.match_indices('`').step_by(2) {
                let code = cell[at + 1..].split('`').next().unwrap_or_default();
                let linked = cell[..at].ends_with('[') && cell[at + 1..][code.len()..].starts_with("`]");
                assert!(linked || !code.contains("::"), "{code} in {row:?}");
                links += usize::from(linked);
            }
        }
    }
    assert!(links > 100, "{links} links were found");
}

#[test]
fn every_state_of_tasks_stands_beside_airflows() {
    let (_, states) = PAGE.split_once("## States of tasks").unwrap();
    let (states, _) = states.split_once("\n## ").unwrap();
    for state in TaskState::ALL {
        let name = state.as_str();
        let line = states.lines().find(|line| line.contains(&format!("`{name}`"))).expect(name);
        assert!(line.contains(&format!("TaskState::{state:?}")), "{line}");
    }
}

fn with_comma(thousands: u64) -> String {
    format!("{},{:03}", thousands / 1_000, thousands % 1_000)
}

#[test]
fn the_defaults_are_those_of_the_code() {
    let (config, airflow) = (SmartSensorConfig::default(), SmartSensorConfig::airflow());
    let codes = airflow.shard_code_upper_limit.get();
    let store = Arc::new(MemoryStore::new());
    let poker = format!("{:?}", Poker::new(store.clone(), "p".try_into().unwrap()));
    // The settings are read where a person would read them.
    let of_poker = |setting: &str| -> u64 {
        let text = poker.split_once(&format!("{setting}: ")).expect("a setting").1;
        text.split_once('s').expect("seconds").0.parse().expect("whole seconds")
    };
    let (task, now) = (NewTask::new(TaskKey::new("ns", "w", "r", "t").unwrap()), SystemClock.now());
    store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task))).unwrap();
    let granted = Admitter::new(store, "h".try_into().unwrap()).admit(now, 1).unwrap().granted;
    let lease = granted[0].lease.as_ref().expect("a lease").expires_at.saturating_duration_since(now);
    for (airflow, part) in [
        ("`default_pool`", format!("`default_pool_task_slot_count = {DEFAULT_POOL_SLOTS}`")),
        ("XCom", format!("at most {} MiB", MAX_TEXT_BYTES >> 20)),
        ("heartbeat of a task", format!("({} s)", lease.as_secs())),
        ("`use_smart_sensor`", format!("({}) |", airflow.use_smart_sensor)),
        ("`use_smart_sensor`", format!("| {} by default", config.use_smart_sensor)),
        ("`shard_code_upper_limit`", format!("({})", with_comma(codes.into()))),
        ("`shards`", format!("({}) |", airflow.shards)),
        ("`shards`", format!("| {} by default", config.shards)),
        ("infra failures", format!("{} minutes", of_poker(" window") / 60)),
        ("`poke_timeout`", format!("{} s", of_poker("usual_timeout"))),
        ("`[core] max_task_retry_delay`", format!("({} s", with_comma(DEFAULT_CAP.as_secs()))),
    ] {
        assert!(row(airflow).contains(&part), "{part}: {}", row(airflow));
    }
    assert_eq!((codes, PoolName::DEFAULT), (config.shard_code_upper_limit.get(), "default_pool"));
}
