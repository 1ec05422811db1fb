//! Processes of both versions under load, while one expands the schema and later contracts it.

use std::time::{Duration, Instant};

use crate::child::Child;
use crate::place::Place;
use crate::{new, old, refused_text};

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
    let olds = vec![start("old", "old-1"), start("old", "old-2")];
    let mut said = Said::default();
    for (child, name) in olds.iter().zip(["old-1", "old-2"]) {
        said.by(name, child.until("done"));
    }

    // A process of the new version opens, and so expands. It works beside the old ones; one of these starts again.
    let mut news = vec![start("new", "new-1")];
    said.by("new-1", news[0].until("done"));
    assert_eq!(place.versions(), [1, 2]);
    let again = start("old", "old-3");
    said.by("old-3", again.until("done"));
    for (child, name) in olds.iter().zip(["old-1", "old-2"]) {
        said.by(name, child.until("done"));
    }
    std::thread::sleep(Duration::from_millis(500));

    // Whoever is left of the old version is refused, and told what to do.
    new::upgrade(&place, true).unwrap();
    for (child, name) in olds.into_iter().chain([again]).zip(["old-1", "old-2", "old-3"]) {
        let lines = child.join();
        let last = lines.last().unwrap();
        refused_text(last.strip_prefix("refused ").unwrap_or_else(|| panic!("{name} says {last}")));
        said.by(name, lines);
    }
    let late = start("old", "old-4").join();
    refused_text(&late[0]);
    news.push(start("new", "new-2"));
    std::thread::sleep(Duration::from_millis(500));
    for (mut child, name) in news.into_iter().zip(["new-1", "new-2"]) {
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
        "{kind}: {} tasks of {} in {:.1} s, {by_old} of them done by version 1, {} calls were repeated",
        enqueued.len(),
        done.len(),
        began.elapsed().as_secs_f64(),
        said.of("again ").len()
    );
    assert!(by_old > 20 && done.len() > by_old + 20);
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
