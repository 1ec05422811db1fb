//! Where the parts of a page stand, in a browser.

use serde_json::json;
use stationmaster::dashboard::Dashboard;
use stationmaster::ops::StopBeforeStart;
use stationmaster::run::{RunKey, RunRecord};

use crate::browser::{Browser, find};
use crate::http::Server;
use crate::world::World;

#[test]
fn parts_are_aligned_and_nothing_is_torn() {
    let Some(program) = find() else {
        eprintln!("SKIPPED: no Chromium was found, so no browser laid out a page");
        return;
    };
    let world = World::new();
    let run =
        RunKey::new("prod", "extract_the_orders_of_the_northern_warehouse@2026-01-31T03:00:00").unwrap();
    let run = RunRecord::open(run, world.task("load-00").enqueued_at);
    world.store.write(|tx| tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject)).unwrap();
    let server = Server::new(Dashboard::new(world.shared()).allow_changes(|_| Some("ann".into())).router());
    let mut browser = Browser::start(&program);
    let mut at = |width: u32, page: &str, script: &str| {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser.open(&format!("http://{}/{page}", server.at));
        browser.eval(script)
    };

    let lefts = "['.brand', 'h1'].map(part => document.querySelector(part).getBoundingClientRect().left)\
                 .reduce((one, other) => one - other)";
    for width in [1_920, 1_280, 390] {
        assert_eq!(at(width, "overview", lefts), 0, "the header and the body begin at one line at {width}");
    }

    // Every row of tiles reaches both sides.
    let holes = "(() => {
        const rows = Map.groupBy(document.querySelectorAll('#states .tiles li'), tile => tile.offsetTop);
        const box = document.querySelector('#states .tiles').getBoundingClientRect();
        return [...rows.values()].filter(row =>
            Math.abs(row.at(-1).getBoundingClientRect().right - box.right) > 1).length;
    })()";
    for width in [1_920, 1_280, 1_000, 768, 390] {
        assert_eq!(at(width, "overview", holes), 0, "holes at {width}");
    }

    // A name is broken only between its parts: no line begins inside of one.
    let torn = "[...document.querySelectorAll('#runs tbody th')].filter(cell => {
        const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        let torn = false;
        for (let text = walk.nextNode(); text; text = walk.nextNode()) {
            for (const word of text.data.matchAll(/[A-Za-z0-9]+/g)) {
                const range = new Range();
                range.setStart(text, word.index);
                range.setEnd(text, word.index + word[0].length);
                torn ||= new Set([...range.getClientRects()].map(line => line.top)).size > 1;
            }
        }
        return torn;
    }).map(cell => cell.innerText).join()";
    for width in [1_280, 900, 390] {
        assert_eq!(at(width, "runs?zoom=24h", torn), "", "at {width}");
    }

    // A phone has each instant in two lines, without a separator at the end of the first.
    let apart = "getComputedStyle(document.querySelector('#facts time .apart')).display";
    let task = "task?namespace=prod&workflow=nightly&run=2026-01-31&task=load-00";
    assert_eq!(at(390, task, apart), "none");
    assert_eq!(at(1_280, task, apart), "inline");

    let colours = "getComputedStyle(document.querySelector('#key'), '::placeholder').color \
                   === getComputedStyle(document.querySelector('form.find label')).color";
    assert_eq!(at(1_280, "tasks", colours), true, "a placeholder is as readable as a label");
    let bulk = "document.querySelector('.bulk').ariaLabelledByElements[0].textContent";
    assert_eq!(at(1_280, "tasks?state=waiting", bulk), "With the selected tasks:");
}
