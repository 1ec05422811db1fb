//! What axe-core finds on the pages, in the browser.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use stationmaster::dashboard::Dashboard;

use crate::browser::{Browser, find};
use crate::http::{Server, escaped};
use crate::world::{HOSTILE, World};

const PACKAGE: &str = "axe-core@4.14.1";

/// Returns axe-core's script: of the file that `STATIONMASTER_TEST_AXE` names, or as npm fetches it.
fn axe() -> Result<String, String> {
    if let Some(path) = std::env::var_os("STATIONMASTER_TEST_AXE") {
        return Ok(std::fs::read_to_string(PathBuf::from(path)).expect("STATIONMASTER_TEST_AXE names a file"));
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let run = |program: &str, args: &[&str]| {
        let done = Command::new(program).args(args).current_dir(folder.path()).output();
        let done = done.map_err(|error| format!("{program}: {error}"))?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
    };
    run("npm", &["pack", "--silent", PACKAGE])?;
    run("tar", &["-xzf", "axe-core-4.14.1.tgz", "package/axe.min.js"])?;
    std::fs::read_to_string(folder.path().join("package/axe.min.js")).map_err(|error| error.to_string())
}

#[test]
fn axe_finds_nothing_serious_on_any_page() {
    let Some(program) = find() else {
        eprintln!("SKIPPED: no Chromium was found, so axe-core looked at no page");
        return;
    };
    let axe = match axe() {
        Ok(axe) => axe,
        Err(why) => {
            eprintln!("SKIPPED: axe-core could not be fetched, so it looked at no page: {why}");
            return;
        }
    };
    let world = World::new();
    let board = Dashboard::new(world.shared()).show_payloads(true).allow_changes(|_| Some("ann".into()));
    let server = Server::new(board.router());
    let of_task =
        |name: &str| format!("task?namespace=prod&workflow=nightly&run=2026-01-31&task={}", escaped(name));
    let mut pages = [
        "overview",
        "tasks",
        "tasks?state=failed",
        "runs",
        "runs?zoom=90d",
        "sensors",
        "health",
        "audit",
        "next",
        "before?namespace=prod&workflow=nightly&run=2026-01-31&task=load-59",
        "none",
    ]
    .map(str::to_owned)
    .to_vec();
    pages.extend(["load-00", "load-59", "fails", "retries", "senses", HOSTILE].map(of_task));
    let mut browser = Browser::start(&program);
    let (mut rules, mut found) = (0, Vec::new());
    for scheme in ["light", "dark"] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", features);
        for page in &pages {
            browser.open(&format!("http://{}/{page}", server.at));
            // Not in the page itself, whose policy lets in no other script.
            browser.eval(&format!("{axe}; undefined"));
            let looked = browser.eval(
                "axe.run(document, { resultTypes: ['violations'] }).then(done => ({
                    rules: done.passes.length,
                    bad: done.violations.filter(found => ['serious', 'critical'].includes(found.impact))
                        .map(found => found.id + ': ' + found.nodes.map(node => node.target.join(' ') + ' '
                            + node.failureSummary).join('; ')) }))",
            );
            rules += looked["rules"].as_u64().unwrap();
            let bad = looked["bad"].as_array().unwrap();
            found.extend(bad.iter().map(|bad| format!("{page}, {scheme}: {bad}")));
        }
    }
    assert!(rules > 500, "it looked: {rules}");
    assert!(found.is_empty(), "{}", found.join("\n"));
    // That it would see something: a picture without a text in its place.
    browser.eval("document.querySelector('main').append(document.createElement('img')); undefined");
    let seen = browser.eval("axe.run().then(done => done.violations.map(found => found.id).join())");
    assert!(seen.as_str().unwrap().contains("image-alt"), "{seen}");
}
