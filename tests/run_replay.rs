//! `examples/run_replay` answers as the rule does, on every store.

mod stores;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use stores::{Kind, kinds};

/// The example's binary, which `cargo test` builds next to the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join("run_replay");
    assert!(binary.exists(), "{} is missing: run `cargo build --example run_replay`", binary.display());
    binary
}

fn replay(store: &str, lines: &[Value]) -> Vec<Value> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
    let output = Command::new(example()).args(["--store", store]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{store}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the lines ask, answered by looking at every run.
fn by_the_rule(lines: &[Value]) -> Vec<Value> {
    let mut runs: BTreeMap<(String, String), (i64, Option<i64>)> = BTreeMap::new();
    let mut answers = Vec::new();
    for line in lines {
        let number = |field: &str| line[field].as_i64();
        let key = || (line["ns"].as_str().unwrap().to_owned(), line["id"].as_str().unwrap().to_owned());
        let op = line["op"].as_str().unwrap_or(if line["id"].is_null() { "query" } else { "run" });
        match op {
            "start" => drop(runs.insert(key(), (number("start").unwrap(), None))),
            "run" => drop(runs.insert(key(), (number("start").unwrap(), number("stop")))),
            "delete" => drop(runs.remove(&key())),
            "stop" => {
                if let Some(run) = runs.get_mut(&key()) {
                    run.1 = number("stop");
                }
            }
            _ => {
                let asked = line["ns"].as_array().unwrap();
                let (begin, end) = (number("begin").unwrap(), number("end").unwrap());
                let is_active = |start: i64, stop: Option<i64>| {
                    begin < end && start < end && stop.is_none_or(|stop| stop >= begin)
                };
                let of_asked = runs.iter().filter(|((ns, _), _)| asked.iter().any(|name| name == ns));
                let active = of_asked.filter(|(_, (start, stop))| is_active(*start, *stop));
                let active: Vec<Value> = active.map(|((ns, id), _)| json!([ns, id])).collect();
                answers.push(json!({ "n": answers.len() + 1, "runs": active }));
            }
        }
    }
    answers
}

fn line() -> impl Strategy<Value = Value> {
    let ns = || (0..3).prop_map(|n| format!("ns{n}"));
    let id = || (0..12).prop_map(|n| format!("r{n}"));
    let at = || prop_oneof![3 => -40_i64..40, 1 => -4_000_000_000_i64..4_000_000_000];
    prop_oneof![
        4 => (ns(), id(), at()).prop_map(|(ns, id, start)| json!({"op": "start", "ns": ns, "id": id, "start": start})),
        4 => (ns(), id(), at()).prop_map(|(ns, id, stop)| json!({"op": "stop", "ns": ns, "id": id, "stop": stop})),
        1 => (ns(), id()).prop_map(|(ns, id)| json!({"op": "delete", "ns": ns, "id": id, "why": "ignored"})),
        3 => (ns(), id(), at(), proptest::option::of(at()))
            .prop_map(|(ns, id, start, stop)| json!({"ns": ns, "id": id, "start": start, "stop": stop})),
        4 => (proptest::collection::vec((0..4).prop_map(|n| format!("ns{n}")), 1..5), at(), at())
            .prop_map(|(ns, begin, end)| json!({"ns": ns, "begin": begin, "end": end})),
        1 => (ns(), at(), 0..90_i64)
            .prop_map(|(ns, begin, length)| json!({"op": "query", "ns": [ns], "begin": begin, "end": begin + length})),
    ]
}

#[test]
fn answers_as_the_rule_does() {
    let lines = proptest::collection::vec(line(), 1..1_500);
    for kind in kinds() {
        let store = kind.name;
        let config = Config { failure_persistence: None, ..Config::with_cases(kind.cases(24, 3)) };
        let mut runner = TestRunner::new(config);
        runner
            .run(&lines, |lines| {
                prop_assert_eq!(replay(store, &lines), by_the_rule(&lines));
                Ok(())
            })
            .unwrap();
    }
}

/// More changes than are written at once, in an order that crosses what waits and what is written.
#[test]
fn a_long_file() {
    let run = |n: i64| json!({"ns": format!("ns{}", n % 7), "id": format!("r{n}"), "start": n, "stop": n + n % 100});
    let correct = |n: i64| json!({"op": "stop", "ns": format!("ns{}", n % 7), "id": format!("r{n}"), "stop": n + 5_000});
    let query = |begin: i64| json!({"ns": ["ns1", "ns3", "ns1"], "begin": begin, "end": begin + 60});
    let mut lines: Vec<Value> = (0..25_000).map(run).collect();
    lines.push(query(12_000));
    lines.extend((0..25_000).step_by(50).map(correct));
    lines.extend([query(12_000), query(24_990), query(29_000)]);
    for Kind { name: store, .. } in kinds() {
        assert_eq!(replay(store, &lines), by_the_rule(&lines), "{store}");
    }
}
