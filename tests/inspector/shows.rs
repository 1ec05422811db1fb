//! Each command that shows something, as tables and as JSON.

use std::time::Duration;

use stationmaster::sensor::PokeCounts;
use stationmaster::store::contract::PokeCountRow;
use stationmaster::testing::raw;
use stationmaster::{NewTask, Timestamp};

use crate::world::{HOSTILE, Shown, World, hostile, key, worlds};

/// The arguments, the code, and what lines of a wide table have, in this order.
type Case = (&'static [&'static str], i32, &'static [&'static [&'static str]]);

const CASES: &[Case] = &[
    (
        &["tasks"],
        0,
        &[
            &["TASK", "STATE", "SINCE", "NEEDS", "NOTE"],
            &["prod/nightly/r1/later", "scheduled", "not before", "in 1h 59m"],
            &["prod/films/r/1/render[3]", "scheduled", "queue gpu"],
            &["prod/nightly/r1/load", "running", "pool db", "held by worker-1, lease until"],
            &["prod/nightly/r1/done", "success"],
            &["prod/nightly/r1/wait", "sensing"],
            &["prod/nightly/r1/again", "up_for_retry", "not before"],
            &["prod/nightly/r1/fail", "failed", "(30m", "no route to"],
        ],
    ),
    (&["tasks", "--state", "leased", "--pool", "db"], 0, &[&["TASK"], &["nightly/r1/load", "worker-1"]]),
    (&["tasks", "--state", "failed", "--ended-since", "1h"], 0, &[&["TASK"], &["nightly/r1/fail"]]),
    (&["tasks", "--state", "failed", "--ended-since", "10m"], 1, &[&["No task is like this."]]),
    (
        &["tasks", "--state", "up_for_retry"],
        0,
        &[&["TASK"], &["prod/nightly/r1/again", "up_for_retry", "not before", "busy"]],
    ),
    (&["tasks", "--count"], 0, &[&["STATE", "TASKS"], &["scheduled", "4"], &["running", "1"]]),
    (
        &["tasks", "--limit", "2"],
        0,
        &[&["TASK"], &["later"], &["owned"], &["There is more: add --all, or --after"]],
    ),
    (&["tasks", "--limit", "9"], 0, &[&["nightly/r1/fail"]]),
    (
        &["task", "prod", "nightly", "r1", "load"],
        0,
        &[
            &["task", "prod/nightly/r1/load"],
            &["typed as", "[\"prod\",\"nightly\",\"r1\",\"load\"]"],
            &["state", "running"],
            &["held by", "worker-1"],
            &["lease until", "in 59m"],
            &["says", "12 of 40 files"],
            &["said", "s ago"],
        ],
    ),
    (
        &["task", "prod", "nightly", "r1", "fail"],
        0,
        &[&["message", "no route to host"], &["Attempts:"], &["1", "worker-1", "failed"]],
    ),
    (
        &["task", "prod", "nightly", "r1", "wait"],
        0,
        &[
            &["Sensor:"],
            &["kind", "http"],
            &["every", "1m 30s"],
            &["What happened to it"],
            &["registered by", "http, fingerprint"],
        ],
    ),
    (&["task", "prod", "films", "r/1", "render", "3"], 0, &[&["waits for", "queue gpu: no one serves it"]]),
    (
        &["task", "prod", "films", "r/1", "render"],
        1,
        &[&["there is no such task; this task is mapped: add an index, which is 3."]],
    ),
    (&["task", "prod", "films", "r/1", "rende"], 1, &[&["there is no such task."]]),
    (&["sensors", "prod", "films", "r/1", "render"], 1, &[&["it has no sensor; this task is mapped"]]),
    (&["explain", "prod", "films", "r/1", "render"], 1, &[&["TASK", "WHY"], &["add an index, which is 3"]]),
    (
        &["explain", "prod", "nightly", "r1", "again"],
        0,
        &[&["TASK"], &["again", "retry not before", "; attempt 1 ended with: busy", "(in 29m"]],
    ),
    (
        &["pools"],
        0,
        &[
            &["POOL", "SLOTS", "OPEN", "RUNNING"],
            &["db", "1", "0", "1", "0", "1", "0", "one at a time 漢字\\u{1b}"],
            &["default_pool", "128"],
        ],
    ),
    (&["pools", "db", "none"], 1, &[&["db"], &["pool none: does not exist."]]),
    (
        &["queues"],
        0,
        &[
            &["QUEUE", "READY", "WAITING", "LEASED", "SENSING", "SERVED BY"],
            &["default", "1", "3", "1", "1", "worker-1, until", "in 1h"],
            &["gpu", "2", "2", "0", "0", "no one"],
        ],
    ),
    (&["queues", "gpu"], 0, &[&["QUEUE"], &["gpu"]]),
    (&["queues", "none"], 1, &[&["There is no such queue"]]),
    (
        &["limits"],
        0,
        &[
            &["LIMIT", "USED", "MAX", "RATE", "TOKEN"],
            &["api", "80 in 1m, 1 at once", "now"],
            &["tenant/*", "2"],
        ],
    ),
    (
        &["limits", "tenant/acme", "none"],
        1,
        &[&["tenant/acme", "0", "2"], &["limit none: no one mentioned it."]],
    ),
    (
        &["explain", "prod", "nightly", "r1", "check"],
        0,
        &[
            &["TASK", "WHY"],
            &["nightly/r1/check", "pool db: 0 open of 1, needs 1; first in its pool's order"],
        ],
    ),
    (&["explain", "prod", "nightly", "r1", "later"], 0, &[&["TASK"], &["later", "not before", "in 1h 59m"]]),
    (
        &["explain", "[\"prod\",\"nightly\",\"r1\",\"none\"]", "[\"prod\",\"films\",\"r/1\",\"render\",3]"],
        0,
        &[&["none", "there is no such task"], &["render[3]", "no one serves it; tasks that wait in it: 2"]],
    ),
    (&["explain", "prod/nightly/r1/later"], 0, &[&["TASK"], &["later", "not before"]]),
    (&["explain", "prod", "nightly", "r1", "none"], 1, &[&["there is no such task"]]),
    (
        &["preview"],
        0,
        &[
            &["It would admit:"],
            &["prod/films/r/1/render[3]", "queue gpu"],
            &["Queue gpu: no one serves it, so nothing of it is admitted."],
            &["It would leave:"],
            &["1", "pool db: 0 open of 1, needs 1", "pool db, limit tenant/acme"],
        ],
    ),
    (
        &["preview", "--serves", "default"],
        0,
        &[&["It would admit nothing."], &["pool db"], &["The next task is due"]],
    ),
    (&["preview", "--at", "+3h", "--serves", "default"], 0, &[&["It would admit:"], &["nightly/r1/later"]]),
    (
        &["sensors"],
        0,
        &[&["TASK", "KIND", "SINCE"], &["nightly/r1/wait", "http", "(30m", "in 23h", "1m 30s"]],
    ),
    (&["sensors", "prod", "nightly", "r1", "wait"], 0, &[&["task", "nightly/r1/wait"], &["fingerprint"]]),
    (&["sensors", "prod", "nightly", "r1", "load"], 1, &[&["it has no sensor"]]),
    (&["sensors", "--queue", "gpu"], 1, &[&["No task waits as a sensor like this."]]),
    (
        &["workers"],
        0,
        &[
            &["WORKER", "HOLDS", "ADMITS FOR", "POKES"],
            &["poker-1", "shards, until", "in 59m"],
            &["worker-1", "1 task, the first until", "default, until"],
        ],
    ),
    (
        &["workers", "worker-1"],
        0,
        &[&["worker", "worker-1"], &["admits for", "default"], &["Leases:"], &["nightly/r1/load", "running"]],
    ),
    (&["workers", "none"], 1, &[&["No one of this name"]]),
    (
        &["runs", "prod", "old"],
        0,
        &[
            &["run", "prod/old"],
            &["status", "failed"],
            &["by", "scheduled"],
            &["took", "1h"],
            &["nodes", "4"],
        ],
    ),
    (&["runs", "prod", "none"], 1, &[&["there is no such run"]]),
    (
        &["active"],
        0,
        &[
            &["RUN", "WORKFLOW", "STATUS", "STARTED"],
            &["prod/nightly-1", "nightly", "running", "(2h", "ann, manual"],
            &["prod/漢字\\u{1b}]0;owned", "running", "(1h"],
        ],
    ),
    (&["active", "--from", "10h", "--to", "8h"], 0, &[&["RUN"], &["prod/old", "failed", "ago"]]),
    (&["active", "--from", "10h", "--status", "failed"], 0, &[&["RUN"], &["prod/old"]]),
    (
        &["active", "--from", "10h", "--limit", "1"],
        0,
        &[&["prod/old"], &["There is more: add --all, or --after 7b"]],
    ),
    (&["active", "--from", "10h", "--count"], 0, &[&["3"]]),
    (&["active", "--from", "10h", "--user", "ann", "--count"], 0, &[&["1"]]),
    (
        &["active", "--from", "10h", "--method", "scheduled"],
        0,
        &[&["NODES"], &["prod/old", "4", "scheduled"]],
    ),
    (&["active", "--from", "10h", "--method", "scheduled", "--user", "ann"], 1, &[&["No run was active."]]),
    // An hour on three nodes, and the last half of it on one more.
    (
        &["active", "--from", "12h", "--to", "6h", "--per", "6h"],
        0,
        &[&["FROM", "ACTIVE", "NODE-HOURS"], &["ago", "1", "3.50"], &["3.50 node-hours in all."]],
    ),
    // Open runs go on, so their last digit does, too.
    (
        &["active", "--from", "12h", "--by", "user"],
        0,
        &[
            &["USER", "ACTIVE", "STARTED", "STOPPED", "NODE-HOURS"],
            &["(no user)", "1", "1", "1", "3.50"],
            &["ann", "1", "1", "0", "2.0"],
            &["漢字\\u{1b}]0;owned", "1", "1", "0", "1.0"],
            &["6.5", "node-hours in all."],
        ],
    ),
    (
        &["active", "--from", "12h", "--by", "user", "--limit", "1"],
        0,
        &[
            &["USER"],
            &["(no user)", "3.50"],
            &["(2 others)", "2", "2", "0", "3.0"],
            &["6.5", "node-hours in all."],
        ],
    ),
    (
        &["active", "--from", "12h", "--to", "6h", "--per", "6h", "--by", "method"],
        0,
        &[&["METHOD", "FROM", "ACTIVE"], &["scheduled", "ago", "1", "3.50"], &["3.50 node-hours in all."]],
    ),
    (
        &["active", "--from", "12h", "--by", "workflow"],
        0,
        &[&["WORKFLOW", "ACTIVE"], &["prod (no workflow)", "2", "4.5"], &["prod/nightly", "1", "2.0"]],
    ),
    (&["active", "--from", "12h", "--by", "namespace"], 0, &[&["NAMESPACE"], &["prod", "3", "6.5"]]),
    (&["active", "--from", "20h", "--to", "19h", "--by", "user"], 1, &[&["No run was active."]]),
    (&["active", "--from", "20h", "--to", "19h", "--per", "1h"], 1, &[&["No run was active."]]),
    (&["active", "--from", "20h", "--to", "19h"], 1, &[&["No run was active."]]),
    (
        &["feed"],
        0,
        &[
            &["SEQ", "TASK", "AT", "BECAME"],
            &["1", "nightly/r1/fail", "failed"],
            &["2", "nightly/r1/done", "success"],
        ],
    ),
    (&["feed", "--after", "2"], 1, &[&["The feed has nothing after event 2."]]),
    (&["feed", "--consumers"], 0, &[&["CONSUMER"], &["billing", "0"]]),
    (
        &["audit"],
        0,
        &[&["Every counter equals what it counts."], &["Queue gpu: no one serves it, and 2 wait in it."]],
    ),
];

/// How many columns the text takes.
fn columns(line: &str) -> usize {
    line.chars().map(|char| if ('\u{1100}'..='\u{ffdc}').contains(&char) { 2 } else { 1 }).sum()
}

/// Checks that nothing in it does anything to a terminal.
fn is_harmless(text: &str) {
    for char in text.chars().filter(|char| *char != '\n') {
        assert!(!char.is_control() && char != '\u{202e}', "{char:?} in {text}");
    }
    for secret in ["secret.sql", "select 'secret'", "example.org", "secret rows", "{\"secret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn each_command_shows_tables_of_any_width() {
    let mut missing = Vec::new();
    for world in worlds() {
        for (args, code, wanted) in CASES {
            let shown = world.show(&[&["--width", "200"], *args].concat()).ends(*code);
            is_harmless(&shown);
            assert!(!shown.contains("\n\n\n") && !shown.starts_with('\n'), "{args:?}: {shown}");
            let mut lines = shown.lines();
            for parts in *wanted {
                if !lines.any(|line| has_in_order(line, parts)) {
                    missing.push(format!("{} {args:?}: {parts:?} is not in\n{shown}", world.name));
                    break;
                }
            }
            let narrow = world.show(&[&["--width", "60"], *args].concat()).ends(*code);
            is_harmless(&narrow);
            if wanted[0].len() > 1 {
                for line in narrow.lines().filter(|line| !line.starts_with("There is more")) {
                    assert!(columns(line) <= 60, "{} {args:?}: {line}\n{narrow}", world.name);
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn has_in_order(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

#[test]
fn each_command_shows_lines_of_json() {
    for world in worlds() {
        for (args, code, _) in CASES {
            let shown = world.json(args);
            is_harmless(&shown.out);
            for line in Shown::lines(shown, *code) {
                assert!(line.is_object(), "{} {args:?}: {line}", world.name);
            }
        }
        names_of_fields(&world);
    }
}

/// The names that programs rely on.
fn names_of_fields(world: &World) {
    let load = world.json(&["task", "prod", "nightly", "r1", "load"]).line(0);
    assert_eq!(load["task"]["state"], "running");
    assert_eq!(load["task"]["lease"]["holder"], "worker-1");
    assert_eq!(load["why"]["not_waiting"], "running");
    assert_eq!(load["key"]["task"], "load");
    let check = world.json(&["explain", "prod", "nightly", "r1", "check"]).line(0);
    assert_eq!(check["why"]["refused"]["reason"], "pool_full");
    assert_eq!(
        (&check["position"]["before"], &check["text"]),
        (&0.into(), &"pool db: 0 open of 1, needs 1".into())
    );
    let failed = world.json(&["tasks", "--state", "failed"]).line(0);
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("no route to host {HOSTILE} (")), "byte for byte: {message}");
    assert!(failed.get("payload").is_none() && failed["attempt"] == 1);
    let hostile = world.json(&["tasks", "--namespace", HOSTILE]).line(0);
    assert_eq!(hostile["key"], serde_json::to_value(crate::world::hostile()).unwrap());
    let pools = world.json(&["pools"]).lines(0);
    assert_eq!(
        (&pools[0]["name"], &pools[0]["slots"], &pools[0]["running"]),
        (&"db".into(), &1.into(), &1.into())
    );
    let queues = world.json(&["queues"]).lines(0);
    assert_eq!((&queues[0]["served_by"][0], &queues[1]["name"]), (&"worker-1".into(), &"gpu".into()));
    let workers = world.json(&["workers"]).lines(0);
    assert_eq!(
        (&workers[0]["name"], &workers[1]["serves"][0]["queues"][0]),
        (&"poker-1".into(), &"default".into())
    );
    assert!(!workers[0]["shards"].as_array().unwrap().is_empty());
    assert_eq!((&workers[0]["leases"], &workers[1]["leases"]), (&0.into(), &1.into()));
    let preview = world.json(&["preview"]).line(0);
    assert_eq!(preview["granted"].as_array().unwrap().len(), 2);
    assert_eq!(preview["refusals"][0]["reason"]["reason"], "pool_full");
    let pages = world.json(&["tasks", "--limit", "2"]).lines(0);
    assert_eq!(pages.len(), 3);
    let next = pages[2]["next"].as_str().unwrap();
    let more = world.json(&["tasks", "--after", next]).lines(0);
    assert_eq!(more.len(), 7, "the rest");
    assert_eq!(world.json(&["tasks", "--all"]).lines(0).len(), 9);
    let runs = world.json(&["active", "--from", "10h", "--limit", "1"]).lines(0);
    let rest =
        world.json(&["active", "--from", "10h", "--after", runs[1]["next"].as_str().unwrap()]).lines(0);
    assert_eq!((rest.len(), &rest[0]["key"]["id"]), (2, &"nightly-1".into()));
    let parts = world.json(&["active", "--from", "13h", "--to", "7h", "--per", "3h"]).lines(0);
    assert_eq!(parts.iter().map(|part| part["starts"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
    let hour = 3_600_000_000_u64;
    let work: u64 = parts.iter().map(|part| part["node_micros"].as_u64().unwrap()).sum();
    assert!((hour * 7 / 2).abs_diff(work) < hour / 60, "{parts:?}");
    let soon = (chrono::Utc::now() + chrono::Duration::hours(2)).format("%Y-%m-%dT%H:%M").to_string();
    let begun = world.json(&["active", "--from", "2h", "--to", &soon, "--per", "1h"]).lines(0);
    assert_eq!(begun.len(), 2, "what has not begun is not shown: {begun:?}");
    let users =
        world.json(&["active", "--from", "12h", "--per", "6h", "--by", "user", "--limit", "2"]).lines(0);
    let told =
        |part: &serde_json::Value| (part["user"].clone(), part["others"].clone(), part["starts"].clone());
    let none = serde_json::Value::Null;
    assert_eq!(told(&users[0]), (none.clone(), 0.into(), 1.into()));
    assert_eq!(told(&users[2]), ("ann".into(), 0.into(), 0.into()));
    assert_eq!(told(&users[3]), ("ann".into(), 0.into(), 1.into()));
    assert_eq!((users.len(), &users[5]["user"]), (6, &HOSTILE.into()), "a single other one is named");
    let events = world.json(&["feed"]).lines(0);
    assert_eq!((&events[0]["seq"], &events[1]["state"]), (&1.into(), &"success".into()));
}

#[test]
fn a_window_without_an_end_has_no_part_that_begins_now() {
    for world in worlds() {
        let parts = world.json(&["active", "--from", "7d", "--per", "7d"]).lines(0);
        assert_eq!(parts.len(), 1, "{parts:?}");
    }
}

/// Two wait for the same thing, and a page shows one of them.
#[test]
fn what_sharing_saves_is_not_that_of_a_page() {
    for world in worlds() {
        world.senses_more("wait-too");
        let shown = world.show(&["sensors"]).ends(0);
        assert!(shown.contains("Sharing saves 50 % of the pokes of these: 40 an hour, not 80."), "{shown}");
        let page = world.show(&["sensors", "--limit", "1"]).ends(0);
        let told = "Sharing saves 50 % of the pokes of the first 2 like these: 40 an hour, not 80.";
        assert!(page.contains(told), "{page}");
    }
}

#[test]
fn what_sharing_saved_today_is_shown() {
    let day = 86_400_000_000;
    for world in worlds() {
        let of_all = |args: &[&str], code| {
            let shown = world.show(args).ends(code);
            shown.lines().find(|line| line.starts_with("All pokes")).map(str::to_owned)
        };
        let none = "All pokes since 00:00 UTC: 0 made, 0 saved.";
        assert_eq!(of_all(&["sensors"], 0).as_deref(), Some(none));
        let midnight = world.now.as_micros().div_euclid(day) * day;
        let count = |hour: i64, kind: &str, poked, saved| {
            let hour = Timestamp::from_micros(midnight + hour * 3_600_000_000);
            let counts =
                PokeCounts::new(hour, kind.try_into().unwrap(), poked, saved, Duration::from_secs(1));
            PokeCountRow::new("poker-1".try_into().unwrap(), 1, counts)
        };
        let counts = [count(0, "http", 100, 700), count(0, "file", 100, 300), count(-1, "http", 5_000, 1)];
        world.store.write(|tx| Ok(raw(tx).put_poke_counts(&counts, Timestamp::MIN)?)).unwrap();
        let today = "All pokes since 00:00 UTC: 200 made, 1000 saved (83 %).";
        assert!(today.len() <= 65);
        assert_eq!(of_all(&["sensors"], 0).as_deref(), Some(today));
        assert_eq!(of_all(&["sensors", "--queue", "gpu"], 1).as_deref(), Some(today), "also if none waits");
        assert!(world.json(&["sensors"]).lines(0).iter().all(|line| line["kind"] == "http"));
    }
}

#[test]
fn sensors_without_a_worker_are_reported() {
    for world in worlds() {
        let shown = world.show(&["sensors"]).ends(0);
        assert!(shown.ends_with("No worker serves kind http: 1 of these are not poked.\n"), "{shown}");
        world.poker.borrow_mut().leave().unwrap();
        let shown = world.show(&["sensors"]).ends(0);
        assert!(shown.ends_with("No worker pokes them.\n"), "{shown}");
    }
}

#[test]
fn payloads_are_shown_when_asked_for() {
    for world in worlds() {
        let shown = world.show(&["--payload", "task", "prod", "nightly", "r1", "load"]).ends(0);
        assert!(shown.contains("copy secret.sql"), "{shown}");
        let shown = world.show(&["tasks", "--payload"]).ends(0);
        assert!(shown.contains("PAYLOAD") && shown.contains("select 'secret'"), "{shown}");
        let line = world.json(&["--payload", "task", "prod", "nightly", "r1", "done"]).line(0);
        assert_eq!(line["task"]["value"], "secret rows");
        let line = world.json(&["--payload", "sensors"]).line(0);
        assert!(line["context"].to_string().contains("https://example.org/secret"), "{line}");
        let shown = world.show(&["--payload", "runs", "prod", "nightly-1"]).ends(0);
        assert!(shown.contains("{\"secret\":1}"), "{shown}");
        let shown = world.show(&["--payload", "feed"]).ends(0);
        assert!(shown.contains("secret rows"), "{shown}");
    }
}

#[test]
fn a_hostile_key_is_found_as_it_is_typed() {
    for world in worlds() {
        let shown = world.show(&["task", HOSTILE, HOSTILE, HOSTILE, HOSTILE]).ends(0);
        let typed = shown.lines().find_map(|line| line.strip_prefix("typed as")).unwrap().trim().to_owned();
        let again = world.json(&["task", &typed]).line(0);
        assert_eq!(again["key"], serde_json::to_value(hostile()).unwrap());
        // What it printed about a task names the task to it.
        let line = world.json(&["tasks", "--namespace", HOSTILE]).out;
        let told = world.feed(&["--json", "explain", "-"], &line).line(0);
        assert_eq!(told["key"], again["key"]);
        let run = world.json(&["runs", "prod", HOSTILE]).line(0);
        assert_eq!(run["user"], HOSTILE);
    }
}

#[test]
fn shares_and_sizes_are_listed() {
    for world in worlds() {
        let shown = world.show(&["shares"]).ends(1);
        assert!(shown.contains("No task of such a share is ready or leased."), "{shown}");
        let of = |share: &str, name: &str| {
            NewTask::new(key(name)).pool("db".try_into().unwrap()).share(share.try_into().unwrap())
        };
        let tasks = [of("tenant/acme", "a"), of("tenant/acme", "b"), of(HOSTILE, "c")];
        world.store.write(|tx| tx.enqueue(world.now, &tasks)).unwrap();
        let shown = world.show(&["shares"]).ends(0);
        let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<Vec<String>> = shown.lines().map(row).collect();
        assert_eq!(lines[0], ["SHARE", "POOL", "HELD", "PART", "WEIGHT", "READY"]);
        assert_eq!(lines[1], ["tenant/acme", "db", "0", "0.0", "1", "2"]);
        assert!(lines[2].ends_with(&["db", "0", "0.0", "1", "1"].map(str::to_owned)), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        let shown = world.show(&["shares", "--limit", "1"]).ends(0);
        assert!(shown.contains("There are 1 more: add --limit 2."), "{shown}");
        let line = world.json(&["shares", "tenant/acme"]).line(0);
        assert_eq!((&line["waiting"], &line["part"]), (&2.into(), &0.0.into()));

        let sizes = world.json(&["sizes"]).lines(0);
        let bytes: Vec<u64> = sizes.iter().map(|part| part["bytes"].as_u64().unwrap()).collect();
        assert!(bytes[0] > 8_000 && bytes.is_sorted_by(|large, small| large >= small), "{sizes:?}");
        let part = if world.name == "sqlite" { "in use" } else { "task" };
        assert!(sizes.iter().any(|size| size["part"] == part), "{sizes:?}");
    }
}

#[test]
fn an_audit_that_finds_something_says_so() {
    for world in worlds() {
        world.spoil();
        let shown = world.show(&["audit"]).ends(1);
        assert!(shown.contains("pool db: counts 4 slots, and 1 are held"), "{shown}");
        let line = world.json(&["audit"]).line(1);
        assert_eq!((&line["pool"]["pool"], &line["pool"]["counted"]), (&"db".into(), &4.into()));
    }
}
