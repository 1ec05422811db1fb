//! Takes the pictures of docs/operating.md:
//!
//! ```sh
//! cargo test --all-features --test dashboard pictures -- --ignored
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stationmaster::admission::IfExists;
use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::dashboard::Dashboard;
use stationmaster::id::LimitKey;
use stationmaster::ops::{AdmitRequest, Finish, StopBeforeStart};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{RunKey, RunRecord, RunStatus, StartMethod};
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{PokeRequest, Poker, Service};
use stationmaster::store::{SqliteStore, Store};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord};

use crate::browser::{Browser, find};
use crate::http::Server;

const HOUR: Duration = Duration::from_secs(3_600);

/// The tables of a shop's nights, and what is done with each of them.
const TABLES: [&str; 8] =
    ["orders", "customers", "payments", "stock", "prices", "returns", "clicks", "shipments"];

fn key(workflow: &str, task: &str) -> Result<TaskKey> {
    TaskKey::new("shop", workflow, "2026-01-31", task)
}

fn admit(store: &dyn Store, holder: &str, budget: usize) -> Result<Vec<TaskRecord>> {
    let request = format!("{holder}-{budget}").as_str().try_into()?;
    let order = AdmitRequest::new(holder.try_into()?, request, budget, HOUR / 4)
        .started()
        .serves(["default".try_into()?]);
    Ok(store.write(|tx| tx.admit(SystemClock.now(), &order))?.granted)
}

/// A night of a shop: loads that wait for a database, sensors that share what they wait for, and a day of runs.
fn fill(store: &Arc<SqliteStore>) -> Result<()> {
    let now = SystemClock.now();
    let tenant = |name: &str| LimitKey::new(format!("tenant/{name}"));
    store.write(|tx| {
        let pools = [("warehouse", 6), ("spark", 12), ("mail", 2)];
        let pools: Vec<PoolSpec> = pools
            .into_iter()
            .map(|(name, slots)| PoolSpec::new(name, Slots::Limited(slots)))
            .collect::<Result<_, _>>()?;
        tx.define(pools, IfExists::Replace)?;
        let rate = Rate::new(30, Duration::from_secs(60))?.burst(5)?;
        tx.define(
            [LimitSpec::new(tenant("acme")?, 4)?, LimitSpec::new(tenant("globex")?, 8)?.rate(rate)],
            IfExists::Replace,
        )
    })?;
    // What is done already, or failed, or waits outside.
    let retry = RetryPolicy::exponential(HOUR / 6).max_attempts(4).build()?;
    let task = |kind: &str, table: &str| {
        Ok::<_, stationmaster::Error>(NewTask::new(key("nightly", &format!("{kind}-{table}"))?))
    };
    let mut first = Vec::new();
    for table in TABLES {
        first.push(task("extract", table)?.pool("spark".try_into()?).retry(retry.clone()));
        first.push(task("wait", table)?);
    }
    store.write(|tx| tx.enqueue(now - HOUR, &first))?;
    let granted = admit(&**store, "worker-1", 100)?;
    let (mut ends, mut sensors) = (Vec::new(), Vec::new());
    for task in &granted {
        let name = task.key.task.as_str();
        if name.starts_with("wait") {
            let path = format!(
                r#"{{"partition":"2026-01-31","table":"{}"}}"#,
                if sensors.len() % 4 == 0 { "orders" } else { "stock" }
            );
            let settings = Settings::new(Duration::from_secs(60), HOUR * 6)?;
            let kind = if sensors.len() < 5 { "hive_partition" } else { "file_exists" };
            sensors.push(NewSensor::new(
                task.lease_ref(),
                kind.parse()?,
                PokeContext::from_json(&path)?,
                settings,
            ));
        } else if name.ends_with("clicks") {
            ends.push(Finish::failed(task.lease_ref(), "connection reset by warehouse-2"));
        } else {
            ends.push(Finish::success(task.lease_ref()));
        }
    }
    store.write(|tx| {
        tx.register(now - HOUR / 2, &sensors)?;
        tx.finish(now - HOUR / 12, &ends)
    })?;
    let mut rest = Vec::new();
    for (at, table) in TABLES.into_iter().enumerate() {
        for part in 0..6 {
            let owner = tenant(["acme", "globex"][at % 2])?;
            rest.push(
                task(&format!("load-{part}"), table)?
                    .pool("warehouse".try_into()?)
                    .limit(owner)
                    .priority(part),
            );
        }
        rest.push(task("train", table)?.pool("spark".try_into()?).queue("gpu".try_into()?));
        rest.push(task("report", table)?.pool("mail".try_into()?).not_before(now + HOUR * 2));
    }
    store.write(|tx| tx.enqueue(now - HOUR / 6, &rest))?;
    admit(&**store, "worker-1", 4)?;
    admit(&**store, "worker-2", 3)?;
    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    let poker = Poker::new(store.clone(), "poker-1".try_into()?).lease(HOUR);
    poker.kind("hive_partition".try_into()?, poke).kind("file_exists".try_into()?, poke).tick(now)?;
    // A day of runs, the more the later it is at night, on clusters that grow while they run.
    let mut runs = Vec::new();
    for at in 0..180_u32 {
        let ago = Duration::from_secs(u64::from(at * 7_919 % 86_400));
        let (start, length) = (now - ago, Duration::from_secs(u64::from(300 + at * 104_729 % 6_000)));
        let (name, user) = [("nightly", "ann"), ("hourly", "bob"), ("training", "carla")][at as usize % 3];
        let method = [StartMethod::Scheduled, StartMethod::Triggered, StartMethod::Manual][at as usize % 3];
        let mut run = RunRecord::open(RunKey::new("shop", format!("{name}-{at:03}"))?, start);
        run = run.workflow(name.try_into()?).user(user).method(method).nodes(start, 1 + at % 4);
        if at % 3 == 0 {
            run = run.nodes(start + length / 3, 8 + at % 9);
        }
        if length < ago {
            let status = if at % 11 == 0 { RunStatus::Failed } else { RunStatus::Completed };
            run = run.closed(start + length, status);
        }
        runs.push(run);
    }
    store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject))
}

#[test]
#[ignore = "it writes the pictures of docs/operating.md"]
fn pictures() {
    let program = find().expect("a Chromium");
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path().join("jobs.db"), Default::default()).unwrap());
    fill(&store).unwrap();
    let server = Server::new(Dashboard::new(store.clone()).router());
    let changes = Server::new(Dashboard::new(store).allow_changes(|_| Some("ann".into())).router());
    let mut browser = Browser::start(&program);
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    std::fs::create_dir_all(&pictures).unwrap();
    let mut take = |name: &str, page: &str, scheme: &str, (width, height): (u32, u32)| {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", features);
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        let server = if name == "tasks.png" { &changes } else { &server };
        browser.open(&format!("http://{}/{page}", server.at));
        let taken =
            browser.call("Page.captureScreenshot", json!({ "format": "png", "optimizeForSpeed": false }));
        let png = base64(taken["data"].as_str().unwrap());
        std::fs::write(pictures.join(name), png).unwrap();
    };
    let (wide, phone) = ((1_200, 1_000), (390, 844));
    let task = "task?namespace=shop&workflow=nightly&run=2026-01-31&task=extract-clicks";
    take("overview.png", "overview", "light", wide);
    take("tasks.png", "tasks?state=success", "light", wide);
    take("runs.png", "runs?zoom=24h", "dark", (1_200, 1_190));
    take("task-phone.png", task, "light", phone);
    take("sensors-phone.png", "sensors", "dark", phone);
    take("tasks-phone.png", "tasks?state=waiting", "light", phone);
}

/// Decodes what the browser's protocol sends.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(digit).collect();
    let group = |four: &[u8]| {
        let bits =
            four.iter().fold(0_u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
