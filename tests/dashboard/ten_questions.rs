//! Someone who has only the overview answers the ten questions of docs/operating.md, and one more of its table, with at
//! most four clicks each.

use std::time::Duration;

use serde_json::json;
use stationmaster::admission::Subject;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::dashboard::Dashboard;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeRequest, Poker, Service};
use stationmaster::{NewTask, TaskKey};

use crate::browser::{Browser, find};
use crate::http::Server;
use crate::world::World;

const MOST: usize = 4;

/// A person at a browser, who begins each question at the overview.
struct Person {
    browser: Browser,
    base: String,
    clicks: usize,
}

impl Person {
    fn asks(&mut self, question: &str) {
        self.browser.open(&format!("{}overview", self.base));
        println!("{question}");
        self.clicks = 0;
    }

    /// Clicks on a link or a button that leads to another page.
    fn follows(&mut self, selector: &str) {
        self.clicks += 1;
        let is_there = format!("!!document.querySelector({})", json!(selector));
        assert_eq!(self.browser.eval(&is_there), true, "{selector}: {}", self.browser.text("main"));
        self.browser.follow(selector);
    }

    /// Clicks on what stays on the page.
    fn clicks(&mut self, selector: &str) {
        self.clicks += 1;
        self.browser.eval(&format!("document.querySelector({}).click()", json!(selector)));
    }

    /// Clicks into a field, and types or chooses a value.
    fn fills(&mut self, id: &str, value: &str) {
        self.clicks += 1;
        self.browser.eval(&format!("document.getElementById('{id}').value = {}", json!(value)));
    }

    /// The answer is on the page.
    fn reads(&mut self, id: &str, texts: &[&str]) {
        let shown = self.browser.text(&format!("#{id}"));
        for text in texts {
            assert!(shown.contains(text), "{text} is not in {shown}");
        }
        println!("    {} clicks", self.clicks);
        assert!(self.clicks <= MOST, "{} clicks", self.clicks);
    }
}

#[test]
fn ten_questions_take_four_clicks_each() {
    let Some(program) = find() else {
        eprintln!("SKIPPED: no Chromium was found, so no one asked the dashboard ten questions");
        return;
    };
    let world = World::new();
    let now = SystemClock.now();
    let film = TaskKey::new("prod", "films", "r1", "render").unwrap();
    let idle = [
        NewTask::new(film).queue("gpu".parse().unwrap()),
        NewTask::new(crate::world::key("free")).priority(3),
    ];
    world.store.write(|tx| tx.enqueue(now, &idle)).unwrap();
    let poker = Poker::new(world.shared(), "poker-1".parse().unwrap()).lease(Duration::from_secs(3_600));
    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    poker.kind("file_exists".parse().unwrap(), poke).tick(now).unwrap();
    let board = Dashboard::new(world.shared()).allow_changes(|_| Some("ann".into()));
    let server = Server::new(board.router());
    let base = format!("http://{}/", server.at);
    let mut person = Person { browser: Browser::start(&program), base, clicks: 0 };

    person.asks("Why does a task wait?");
    person.follows("header a[href=tasks]");
    person.fills("key", "prod/nightly/2026-01-31/load-59");
    person.follows("form.find button");
    person.reads("facts", &["pool db: 0 open of 2, needs 1", "ready tasks"]);

    person.asks("Who holds pool db?");
    person.follows("#pools a[href='tasks?state=leased&pool=db']");
    person.reads("list", &["load-00", "load-01", "worker-1"]);

    person.asks("What ran between two instants?");
    let ago =
        |hours| (chrono::Utc::now() - chrono::Duration::hours(hours)).format("%Y-%m-%dT%H:%M").to_string();
    person.follows("header a[href=runs]");
    person.fills("from", &ago(6));
    person.fills("to", &ago(4));
    person.follows("form.search button");
    person.reads("runs", &["prod/ended", "scheduled, ann"]);

    person.asks("How many node-hours did each user have in a week?");
    person.follows("header a[href=runs]");
    person.follows("nav.zoom a[href='runs?zoom=7d']");
    person.reads("users", &["ann", "10.00"]);

    person.asks("What failed today, and why?");
    person.follows("#states a[href='tasks?state=failed']");
    person.clicks("details.filter summary");
    person.fills("since", "1d");
    person.follows("form.search button");
    person.reads("list", &["fails", "onerror", "ended"]);

    person.asks("Who serves queue gpu?");
    person.reads("queues", &["gpu", "in 1"]);
    person.follows("header a[href=health]");
    person.reads("holders", &["worker-1", "all queues"]);

    person.asks("What happened to a task that was tried?");
    person.follows("#states a[href='tasks?state=up_for_retry']");
    person.follows("#list tbody a[href^='task?']");
    person.reads("facts", &["1 of 3", "no route to host", "not before"]);

    person.asks("What would a worker for queue default get next?");
    person.follows("#queues a[href=next]");
    person.follows("nav.zoom a[href='next?queue=default']");
    person.reads("admits", &["free"]);

    person.asks("Which tasks wait as sensors, and until when?");
    person.follows("header a[href=sensors]");
    person.reads("sensors", &["senses", "file_exists", "in 5"]);

    person.asks("Which processes work on this store?");
    person.follows("header a[href=health]");
    person.reads("holders", &["worker-1"]);
    person.follows("header a[href=sensors]");
    person.reads("pokers", &["poker-1", "file_exists"]);

    person.asks("How do I stop the tasks that use a pool?");
    person.clicks("#pools summary[aria-label^='pause pool db']");
    person.clicks("button[aria-label='pause pool db']");
    person
        .browser
        .wait("document.querySelector('#live-status').textContent.includes('paused; 2 leases go on')");
    person.reads("pools", &[]);
    assert_eq!(world.store.read(|tx| tx.paused()).unwrap(), [Subject::Pool("db".parse().unwrap())]);
}
