//! Processes of both versions under load, while one expands the schema and later contracts it.

use std::time::Instant;

use crate::child::Child;
use crate::place::Place;
use crate::{new, old, refused_text};

/// How many tasks each process ends in each phase, at least.
const ENOUGH: usize = 15;

pub fn upgrade_under_load(kind: &str) {
    let folder = tempfile::tempdir().unwrap();
    let place = match kind {
        "sqlite" => Place::of_file(&folder.path().join("jobs.db")),
        _ => Place::of_server(),
    };
    let began = Instant::now();
    let start = |build: &str, name: &str| {
        let [first, second] = place.arguments();
        Child::start(&[build, first, second, name])
    };
    drop(old::open(&place).unwrap());
    let mut said = Said::default();
    let olds = [("old-1", start("old", "old-1")), ("old-2", start("old", "old-2"))];
    for (name, child) in &olds {
        said.by(name, child.until("done", ENOUGH));
    }

    // A process of the new version opens, and so expands. It works beside the old ones; one of these starts again.
    let first = ("new-1", start("new", "new-1"));
    said.by(first.0, first.1.until("done", ENOUGH));
    assert_eq!(place.versions(), [1, 2]);
    let again = ("old-3", start("old", "old-3"));
    for (name, child) in olds.iter().chain([&again]) {
        said.by(name, child.until("done", ENOUGH));
    }
    assert!(said.of("refused ").is_empty(), "{:?}", said.of("refused "));

    // Processes of the old version that are left are refused, and the error says what to do.
    new::upgrade(&place, true).unwrap();
    for (name, child) in olds.into_iter().chain([again]) {
        let lines = child.join();
        let last = lines.last().unwrap();
        refused_text(last.strip_prefix("refused ").unwrap_or_else(|| panic!("{name} says {last}")));
        said.by(name, lines);
    }
    let late = start("old", "old-4").join();
    refused_text(&late[0]);
    let second = ("new-2", start("new", "new-2"));
    for (name, child) in [&first, &second] {
        said.by(name, child.until("done", ENOUGH));
    }
    for (name, mut child) in [first, second] {
        child.stop();
        let lines = child.join();
        assert_eq!(lines.last().unwrap(), "stopped", "{name}");
        said.by(name, lines);
    }

    let enqueued: Vec<String> = said.of("enqueued ").into_iter().map(|(payload, _)| payload).collect();
    let done = said.of("done ");
    new::check(&place, &enqueued, &done);
    let by_old = done.iter().filter(|(_, name)| name.starts_with("old")).count();
    println!(
        "{kind}: {} tasks, {} ended, in {:.1} s: {by_old} of them done by version 1, {} calls were repeated",
        enqueued.len(),
        done.len(),
        began.elapsed().as_secs_f64(),
        said.of("again ").len()
    );
    assert!(by_old >= 5 * ENOUGH && done.len() - by_old >= 3 * ENOUGH);
    place.remove();
}

/// Who said what.
#[derive(Default)]
struct Said(Vec<(String, String)>);

impl Said {
    fn by(&mut self, name: &str, lines: Vec<String>) {
        self.0.extend(lines.into_iter().map(|line| (name.to_owned(), line)));
    }

    /// The rests of the lines that begin so, and who said them.
    fn of(&self, beginning: &str) -> Vec<(String, String)> {
        let rest =
            |(name, line): &(String, String)| Some((line.strip_prefix(beginning)?.to_owned(), name.clone()));
        self.0.iter().filter_map(rest).collect()
    }
}
