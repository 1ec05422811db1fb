//! `examples/simulate_a_day` as its users run it: the same day for the same seed, checks that hold, and sizes that are the smallest.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use chrono::{DateTime, Utc};
use serde_json::Value;

#[path = "../examples/simulate_a_day/cron.rs"]
mod cron;

#[path = "../examples/simulate_a_day/spread.rs"]
#[allow(dead_code)]
mod spread;

/// The example's binary, which `cargo test` builds next to the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(Path::parent).unwrap().join("examples").join("simulate_a_day");
    assert!(binary.exists(), "{} is missing: run `cargo build --example simulate_a_day`", binary.display());
    binary
}

fn run(arguments: &[&str]) -> Output {
    Command::new(example()).args(arguments).output().unwrap()
}

/// The report of a day on which everything held.
fn report(arguments: &[&str]) -> Value {
    let output = run(&[&["--json"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["violations"], Value::Array(Vec::new()));
    report
}

fn night() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/workloads/night.json").display().to_string()
}

fn count(report: &Value, what: &str) -> u64 {
    report["counts"][what].as_u64().unwrap()
}

#[test]
fn a_seed_makes_a_day_and_another_seed_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (first, second, written) = (file("first"), file("second"), file("workload.json"));
    let day = |seed: &str, trace: &str, more: &[&str]| {
        let arguments = ["--seed", seed, "--hours", "3", "--no-plan", "--trace", trace];
        report(&[&arguments, more].concat())
    };
    let one = day("7", &first, &[]);
    assert_eq!(day("7", &second, &[]), one);
    let trace = std::fs::read(&first).unwrap();
    assert!(trace == std::fs::read(&second).unwrap(), "the traces differ");
    let lines = trace.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert!(lines > 2 * count(&one, "attempts"), "{lines} lines");
    for what in ["retries", "lost_leases", "landed", "pokes_saved"] {
        assert!(count(&one, what) > 0, "{what}: {one:#}");
    }

    assert!(run(&["--seed", "7", "--write-workload", &written]).status.success());
    let same = day("7", &second, &["--workload", &written]);
    assert_eq!(same["trace"], one["trace"], "the workload survives its file");
    let other = day("8", &second, &["--workload", &written]);
    assert_ne!(other["trace"], one["trace"]);
    assert_eq!(count(&other, "runs"), count(&one, "runs"), "the seed moves no starts");
}

fn pool<'a>(report: &'a Value, of: &str, name: &str) -> &'a Value {
    let pools = match of {
        "plan" => &report["plan"]["pools"],
        _ => &report["pools"],
    };
    pools.as_array().unwrap().iter().find(|pool| pool["name"] == name).unwrap()
}

#[test]
fn planned_sizes_meet_the_target_and_one_slot_less_does_not() {
    let night = night();
    let arguments = ["--workload", &night, "--hours", "8", "--target-wait", "45s", "--percentile", "99"];
    let planned = report(&arguments);
    assert_eq!(planned["plan"]["settled"], true);
    let sizes: Vec<(&str, u64)> = planned["plan"]["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| (pool["name"].as_str().unwrap(), pool["size"].as_u64().unwrap()))
        .collect();
    assert_eq!(sizes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["gpu", "warehouse"]);
    assert!(sizes[1].1 > 3, "the warehouse is too small: {sizes:?}");

    // Each day is simulated again, with these sizes given; the plan of such a day tells how long its tasks
    // waited.
    let waits = |sizes: &[(&str, u64)], of: &str| {
        let given: Vec<String> = sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        let options = given.iter().flat_map(|given| ["--pool", given]);
        let again = report(&arguments.into_iter().chain(options).collect::<Vec<_>>());
        assert_eq!(
            pool(&again, "pools", of)["slots"].as_u64(),
            sizes.iter().find(|(name, _)| *name == of).map(|(_, size)| *size)
        );
        pool(&again, "plan", of)["wait_now_s"].as_f64().unwrap()
    };
    for (at, (name, size)) in sizes.iter().enumerate() {
        assert!(waits(&sizes, name) <= 45.0, "{name}: {planned:#}");
        let needs = if *name == "gpu" { 3 } else { 2 };
        if *size > needs {
            let mut less = sizes.clone();
            less[at].1 -= 1;
            assert!(waits(&less, name) > 45.0, "{name} with {}: {planned:#}", size - 1);
        }
    }
}

#[test]
fn a_pool_that_no_size_helps_is_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limited.json").display().to_string();
    let mut workload: Value = serde_json::from_str(&std::fs::read_to_string(night()).unwrap()).unwrap();
    workload["limits"][0]["max"] = 1.into();
    std::fs::write(&file, workload.to_string()).unwrap();
    let planned = report(&["--workload", &file, "--hours", "2", "--target-wait", "5s"]);
    assert_eq!(pool(&planned, "plan", "warehouse")["size"], Value::Null);
    assert!(
        pool(&planned, "pools", "warehouse")["deferred"]["limit_reached"]["task_hours"].as_f64().unwrap()
            > 0.0
    );
}

#[test]
fn bad_workloads_are_refused_and_say_what_to_correct() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.json").display().to_string();
    let good: Value = serde_json::from_str(&std::fs::read_to_string(night()).unwrap()).unwrap();
    let task = "/workflows/0/tasks/1";
    let cases: [(&str, Value, &str); 14] = [
        ("/workflows/0/starts", serde_json::json!({"cron": "0 25 * * *"}), "\"25\" is no hour"),
        ("/workflows/0/starts", serde_json::json!({"cron": "0 *"}), "has 2 fields: give five"),
        (&format!("{task}/pool"), "nope".into(), "there is no pool \"nope\""),
        (
            &format!("{task}/after"),
            serde_json::json!(["check"]),
            "name tasks of the workflow that stand before it",
        ),
        (&format!("{task}/takes_s"), serde_json::json!({"p50": 9, "p90": 3}), "percentiles that rise"),
        (&format!("{task}/takes_s"), Value::Null, "give takes_s, wait_for, or both"),
        ("/workflows/0/tasks/2/fails", 1.5.into(), "give 0 to 1"),
        ("/workflows/0/tasks/2/retry", serde_json::json!({"delay_s": 1}), "retried for ever"),
        ("/workflows/0/tasks/0/wait_for/target", "nope".into(), "there is no target \"nope\""),
        ("/workflows/1/tasks/1/pool_slots", 4.into(), "needs 4 slots of pool warehouse, which has 3"),
        ("/workflows/1/name", "orders-eu".into(), "\"orders-eu\" is there twice"),
        ("/crashes/0/worker", 3.into(), "names worker 3: give 1 to 2"),
        ("/workers/places", 0.into(), "at least 1"),
        ("/workers", Value::Null, "correct the file there"),
    ];
    for (at, value, message) in cases {
        let mut bad = good.clone();
        *bad.pointer_mut(at).unwrap() = value;
        std::fs::write(&file, bad.to_string()).unwrap();
        let output = run(&["--workload", &file, "--no-plan"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{at}: {text}");
        assert!(text.contains(message), "{at}: {text}");
    }
    let output = run(&["--workload", &night(), "--pool", "nope=3"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn cron_expressions_mean_what_they_mean_elsewhere() {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let times = |expression: &str, begin: &str, end: &str| -> Vec<String> {
        let cron = cron::Cron::try_from(expression.to_owned()).unwrap();
        cron.instants(at(begin), at(end)).iter().map(|at| at.format("%m-%dT%H:%M").to_string()).collect()
    };
    let day = |expression: &str| times(expression, "2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z");
    assert_eq!(
        day("*/20 8-9 * * *"),
        ["01-05T08:00", "01-05T08:20", "01-05T08:40", "01-05T09:00", "01-05T09:20", "01-05T09:40"]
    );
    assert_eq!(day("5,7 3 * * 1"), ["01-05T03:05", "01-05T03:07"]);
    assert_eq!(day("0 22/1 * * *"), ["01-05T22:00", "01-05T23:00"]);
    assert_eq!(day("0 0 * * 2"), [""; 0]);
    let month = |expression: &str| times(expression, "2026-02-01T00:00:30Z", "2026-03-02T00:00:00Z");
    assert_eq!(month("0 0 * * 7"), ["02-08T00:00", "02-15T00:00", "02-22T00:00", "03-01T00:00"]);
    assert_eq!(month("0 0 * * 0").len(), 4);
    assert_eq!(
        month("0 0 13 * 5"),
        ["02-06T00:00", "02-13T00:00", "02-20T00:00", "02-27T00:00"],
        "either day"
    );
    assert_eq!(month("0 0 13-14 3 *"), [""; 0]);
    for bad in [
        "",
        "* * * *",
        "60 * * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-3 * * * *",
        "a * * * *",
    ] {
        assert!(cron::Cron::try_from(bad.to_owned()).is_err(), "{bad}");
    }
}

#[test]
fn durations_have_the_percentiles_that_were_asked_for() {
    let spread: spread::Spread =
        serde_json::from_str(r#"{"min": 1, "p50": 10, "p90": 50, "p99": 100, "max": 1000}"#).unwrap();
    let dice = spread::Dice(3);
    let mut lengths: Vec<_> =
        (0..20_000).map(|n| spread.at(dice.roll("test", "a", n)).as_secs_f64()).collect();
    lengths.sort_by(f64::total_cmp);
    for (percent, expected) in [(50, 10.0), (90, 50.0), (99, 100.0)] {
        let found = lengths[20_000 * percent / 100];
        assert!((found / expected - 1.0_f64).abs() < 0.15, "p{percent} is {found}");
    }
    assert!(lengths[0] >= 1.0 && lengths[19_999] <= 1_000.0);
    assert_eq!(spread.at(0).as_secs(), 1);
    assert_eq!(spread.at(u64::MAX).as_secs(), 999);
    let often = (0..20_000).filter(|n| dice.happens(0.2, "test", "a", *n)).count();
    assert!((3_800..4_200).contains(&often), "{often}");
    assert!((0..100).all(|n| dice.happens(1.0, "test", "a", n) && !dice.happens(0.0, "test", "a", n)));
}
