//! The list of active runs: its pages, and its instants.

use std::collections::BTreeSet;

use stationmaster::ops::StopBeforeStart;
use stationmaster::run::{RunKey, RunRecord, RunStatus};

use crate::stage::{Stage, at, plain, rows};

fn record(stage: &Stage, runs: impl Iterator<Item = RunRecord>) {
    let runs: Vec<RunRecord> = runs.collect();
    stage.store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject)).unwrap();
}

fn run(name: &str, second: i64) -> RunRecord {
    RunRecord::open(RunKey::new("prod", name).unwrap(), at(second))
}

fn names(body: &str) -> Vec<String> {
    rows(body, "runs").iter().map(|row| row.split(" | ").next().unwrap().to_owned()).collect()
}

fn next(body: &str) -> Option<String> {
    let (_, after) = body.split_once("rel=\"next\" href=\"")?;
    Some(after.split('"').next().unwrap().split('#').next().unwrap().replace("&amp;", "&"))
}

/// Each run is on one page, although runs of one instant are on two, and others begin and are removed meanwhile.
#[test]
fn a_list_of_runs_goes_on_over_its_pages() {
    let stage = Stage::new();
    let all: Vec<String> = (0..120).map(|n| format!("run-{n:03}")).collect();
    record(&stage, all.iter().enumerate().map(|(n, name)| run(name, 100 + n as i64 / 7)));
    let first = stage.body(5_000, "runs?zoom=6h");
    assert!(
        plain(&first).contains("120 runs were active, the latest start first. These are 1 to 50."),
        "{first}"
    );
    let mut seen = names(&first);
    assert_eq!(seen[0], "prod/run-119");
    record(&stage, ["run-late".to_owned()].iter().map(|name| run(name, 4_000)));
    let second = stage.body(5_001, &next(&first).unwrap());
    assert!(
        plain(&second).contains("121 runs were active, the latest start first. These are 52 to 101."),
        "{second}"
    );
    assert!(second.contains("zoom=6h") && second.contains(">First page</a>"), "{second}");
    assert!(!second.contains("id=\"live\""), "a page of the past stays as it is");
    seen.extend(names(&second));
    let third = stage.body(5_002, &next(&second).unwrap());
    assert_eq!(next(&third), None);
    seen.extend(names(&third));
    let once: BTreeSet<String> = all.iter().map(|name| format!("prod/{name}")).collect();
    assert_eq!(seen.len(), 120);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), once);
    assert_eq!(stage.page(5_003, "runs?zoom=6h&before=soon").status, 400);
}

/// The runs of a page may leave the window before someone opens it.
#[test]
fn a_page_whose_runs_have_left_the_window_leads_back() {
    let stage = Stage::new();
    let ended = |n: i64| run(&format!("run-{n:03}"), 100 + n).closed(at(200 + n), RunStatus::Completed);
    record(&stage, (0..60).map(ended));
    let page = next(&stage.body(1_000, "runs?zoom=1h")).unwrap();
    assert_eq!(names(&stage.body(1_001, &page)).len(), 10);
    record(&stage, [run("run-late", 3_000)].into_iter());
    let body = stage.body(3_900, &page);
    assert!(body.contains("No earlier run was active in this window."), "{body}");
    assert!(body.contains(">First page</a>") && !body.contains("These are"), "{body}");
}

#[test]
fn few_runs_have_no_pages() {
    let stage = Stage::new();
    record(&stage, (0..50).map(|n| run(&format!("run-{n:03}"), 100)));
    let body = stage.body(5_000, "runs?zoom=6h");
    assert!(!body.contains("Pages of the list") && !body.contains("These are 1 to"), "{body}");
}

/// A user who types the ends of a window compares them with the runs.
#[test]
fn a_typed_window_has_exact_instants() {
    let stage = Stage::new();
    record(&stage, [run("a", 100).closed(at(200), RunStatus::Completed)].into_iter());
    let row = |page: &str| rows(&stage.body(5_000, page), "runs").remove(0);
    let typed = row("runs?from=1970-01-01T00:00&to=1970-01-01T01:00");
    assert!(typed.contains("| 1970-01-01 00:01:40 UTC | 1970-01-01 00:03:20 UTC |"), "{typed}");
    let zoomed = row("runs?zoom=6h");
    assert!(zoomed.contains("| 1h 21m ago | 1h 20m ago |"), "{zoomed}");
}
