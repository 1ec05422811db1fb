//! The check sees what it is there for: a queue of another design, which counts leases and then takes rows
//! that no one has locked, oversubscribes its pools and is caught; the same queue with one lock more is not.
//!
//! Two transactions that count at the same time see the same free slots, and `SKIP LOCKED` gives each of them other tasks.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::error::Error;
use stationmaster::testing::history::{Grant, LeaseId, Operation, Rule, Summary, Violation};

use crate::Errand;
use crate::postgres_server::Plain;
use crate::respawn::{Respawned, say};
use crate::run::{events, history, seconds};
use crate::scratch::{Scratch, query, url};
use crate::worker::{Diary, POOLS, Random, instant};

const PROCESSES: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Design {
    /// Counts, then takes.
    CountAndSkip,
    /// Locks the pool's row first.
    LockThePool,
}

#[derive(Serialize, Deserialize)]
pub struct Orders {
    schema: String,
    design: Design,
    seed: u64,
}

fn make_tables(schema: &str) {
    let pools = POOLS.map(|(pool, slots)| format!("('{pool}', {slots})")).join(", ");
    query(&format!(
        "CREATE SCHEMA {schema};
         CREATE TABLE {schema}.pool (name TEXT PRIMARY KEY, slots BIGINT NOT NULL);
         CREATE TABLE {schema}.queue (no BIGSERIAL PRIMARY KEY, pool TEXT NOT NULL, epoch BIGINT NOT NULL DEFAULT 0,
             leased BOOLEAN NOT NULL DEFAULT FALSE);
         CREATE INDEX ON {schema}.queue (pool, no);
         INSERT INTO {schema}.pool (name, slots) VALUES {pools}"
    ));
}

struct Client {
    plain: Plain,
    orders: Orders,
}

impl Client {
    fn enqueue(&self, pool: &str) {
        let queue = format!("{}.queue", self.orders.schema);
        self.plain.ask(&format!("INSERT INTO {queue} (pool) SELECT '{pool}' FROM generate_series(1, 4)"));
    }

    fn admit(&self, pool: &str) -> Vec<LeaseId> {
        let Orders { schema, design, .. } = &self.orders;
        let lock = match design {
            Design::CountAndSkip => String::new(),
            Design::LockThePool => format!("SELECT FROM {schema}.pool WHERE name = '{pool}' FOR UPDATE;"),
        };
        self.plain.ask(&format!("BEGIN; {lock}"));
        let open = self.plain.number(&format!(
            "SELECT slots - (SELECT count(*) FROM {schema}.queue WHERE pool = name AND leased) FROM {schema}.pool
             WHERE name = '{pool}'"
        ));
        let taken = self.plain.ask(&format!(
            "UPDATE {schema}.queue SET leased = TRUE, epoch = epoch + 1 WHERE no IN (SELECT no FROM {schema}.queue
             WHERE pool = '{pool}' AND NOT leased ORDER BY no LIMIT {} FOR UPDATE SKIP LOCKED) RETURNING no, epoch; COMMIT",
            open.max(0)
        ));
        leases(&taken)
    }

    fn finish(&self, held: &[LeaseId]) -> Vec<LeaseId> {
        let rows = held.iter().map(|lease| format!("({}, {})", lease.task, lease.epoch));
        let rows = rows.collect::<Vec<_>>().join(", ");
        let queue = format!("{}.queue", self.orders.schema);
        leases(
            &self
                .plain
                .ask(&format!("DELETE FROM {queue} WHERE (no, epoch) IN ({rows}) RETURNING no, epoch")),
        )
    }
}

fn leases(rows: &[Vec<Option<String>>]) -> Vec<LeaseId> {
    let number = |value: &Option<String>| value.as_deref().unwrap().parse().unwrap();
    rows.iter().map(|row| LeaseId { task: number(&row[0]), epoch: number(&row[1]) }).collect()
}

/// Works until it is killed.
pub fn work(orders: Orders) {
    let (mut random, mut diary) = (Random(orders.seed), Diary::default());
    let client = Client { plain: Plain::connect(&url()), orders };
    let grant =
        |pool: &str, lease: &LeaseId| Grant::new(lease.task, lease.epoch, pool, 1, instant() + 600_000_000);
    say("ready");
    loop {
        let (pool, _) = POOLS[random.below(3) as usize];
        client.enqueue(pool);
        let held = diary.call(Operation::Admit(vec![]), || {
            let held = client.admit(pool);
            let grants = held.iter().map(|lease| grant(pool, lease)).collect();
            Ok::<_, Error>((held, Operation::Admit(grants)))
        });
        std::thread::sleep(Duration::from_micros(random.below(900)));
        let held = held.unwrap();
        if !held.is_empty() {
            let ended = diary.call(Operation::End(held.clone()), || {
                Ok::<_, Error>(((), Operation::End(client.finish(&held))))
            });
            ended.unwrap();
        }
    }
}

/// Lets processes work for a moment, and checks what they did.
fn round(design: Design, length: Duration) -> Result<Summary, Violation> {
    let scratch = Scratch::new();
    let schema = scratch.0.to_string();
    make_tables(&schema);
    let spawn = |seed| {
        let errand = Errand::CountAndSkip(Orders { schema: schema.clone(), design, seed });
        Respawned::new("child", &serde_json::to_string(&errand).unwrap())
    };
    let children: Vec<Respawned> = (1..=PROCESSES).map(spawn).collect();
    for child in &children {
        assert_eq!(child.line().as_deref(), Some("ready"));
    }
    std::thread::sleep(length);
    let mut history = history();
    for child in children {
        events(&child.kill()).into_iter().for_each(|event| history.push(event));
    }
    history.check()
}

#[test]
fn counting_and_then_skipping_locked_rows_is_caught() {
    let began = Instant::now();
    let violation = loop {
        match round(Design::CountAndSkip, Duration::from_millis(500)) {
            Err(violation) => break violation,
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(60), "the check finds nothing"),
        }
    };
    println!("count, then SKIP LOCKED: caught after {:.1} s: {violation}", began.elapsed().as_secs_f64());
    assert_eq!(violation.rule, Rule::Capacity);
}

#[test]
fn the_same_queue_with_a_lock_on_the_pool_is_not() {
    let length = Duration::from_secs(seconds(2).min(10));
    let summary = round(Design::LockThePool, length).unwrap_or_else(|violation| panic!("{violation}"));
    println!("lock the pool, then count: nothing is found in {length:?}: {summary:?}");
    assert!(summary.grants > 0);
}
