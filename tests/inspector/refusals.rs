//! What is refused, and by which code.

use std::process::Command;

use stationmaster::TaskState;

use crate::world::{Shown, key, worlds};

/// The program without a store.
fn alone(args: &[&str]) -> Shown {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stationmaster"));
    Shown::of(command.args(args).env_remove("STATIONMASTER_DB").output().unwrap())
}

#[test]
fn without_a_terminal_and_without_yes_nothing_is_changed() {
    for world in worlds() {
        for args in [
            &["cancel", "prod", "nightly", "r1", "check"][..],
            &["retry", "--state", "failed"],
            &["change", "--state", "waiting", "--set-priority", "1"],
            &["delete", "--state", "failed,success"],
            &["pause", "queue", "gpu"],
            &["resume", "queue", "gpu"],
        ] {
            let before = world.json(&["tasks", "--all"]).lines(0);
            for args in [args.to_vec(), [&["--json"], args].concat()] {
                let shown = world.show(&args);
                assert_eq!(shown.code, 2, "{args:?}: {}{}", shown.out, shown.err);
                assert!(
                    shown.err.contains("--yes") && shown.err.contains("Nothing was changed."),
                    "{}",
                    shown.err
                );
                if args.contains(&"failed,success") {
                    assert!(shown.err.contains("Delete 2 tasks?"), "{}", shown.err);
                }
            }
            // A yes on a pipe is no yes of a person.
            assert_eq!(world.feed(args, "y\n").code, 2);
            assert_eq!(world.json(&["tasks", "--all"]).lines(0), before);
        }
        assert_eq!(world.store.read(|tx| tx.paused()).unwrap(), []);
        assert_eq!(world.state(&key("check")), Some(TaskState::Scheduled));
    }
}

#[test]
fn what_cannot_be_run_has_code_2() {
    for world in worlds() {
        for args in [
            &["nonsense"][..],
            &[],
            &["task"],
            &["task", "prod", "nightly"],
            &["task", "{"],
            &["explain", "prod", "nightly", "r1", ""],
            &["tasks", "--state", "foo"],
            &["tasks", "--limit", "0"],
            &["tasks", "--limit", "10001"],
            &["tasks", "--workflow", "w"],
            &["tasks", "--state", "failed", "--holder", "h"],
            &["tasks", "--after", "zz"],
            &["tasks", "--count", "--queue", "gpu"],
            &["tasks", "--ended-since", "soon"],
            &["tasks", "--width", "3"],
            &["tasks", "--watch=1ms"],
            &["active", "--after", "7b"],
            &["active", "--status", "odd"],
            &["active", "--method", "odd"],
            &["active", "--per", "0s"],
            &["active", "--per", "1h", "--count"],
            &["active", "--per", "1h", "--limit", "5"],
            &["active", "--by", "method", "--all"],
            &["active", "--by", "user", "--after", "7b"],
            &["active", "--by", "day"],
            &["runs", "prod"],
            &["preview", "--budget", "-1"],
            &["cancel", "--yes"],
            &["cancel", "prod", "nightly", "r1", "check", "--state", "waiting", "--yes"],
            &["cancel", "prod", "nightly", "r1", "check", "--yes", "--watch"],
            &["change", "prod", "nightly", "r1", "check", "--yes"],
            &["change", "prod", "nightly", "r1", "check", "--set-slots", "0", "--yes"],
            &["pause", "tenant", "x", "--yes"],
            &["pause", "queue", "--yes"],
        ] {
            let shown = world.show(args);
            assert_eq!(shown.code, 2, "{args:?}: {}{}", shown.out, shown.err);
            assert!(shown.out.is_empty() && !shown.err.is_empty(), "{args:?}: {}", shown.out);
        }
    }
}

#[test]
fn a_store_must_be_named_and_be_there() {
    assert_eq!(alone(&["tasks"]).code, 2);
    assert!(alone(&["tasks"]).err.contains("--db FILE"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    #[cfg(feature = "sqlite")]
    {
        let none = path("none.db");
        let shown = alone(&["--db", &none, "tasks"]);
        assert_eq!(shown.code, 3, "{}", shown.err);
        assert!(shown.err.contains("no such file") && !std::path::Path::new(&none).exists(), "{}", shown.err);
        // Neither an empty file, nor another's database, nor another's prefix becomes a store.
        for (name, bytes) in
            [("empty.db", &b""[..]), ("text.db", b"this is no database, but a text of some length")]
        {
            std::fs::write(path(name), bytes).unwrap();
            assert_eq!(alone(&["--db", &path(name), "tasks"]).code, 3, "{name}");
            assert_eq!(std::fs::read(path(name)).unwrap(), bytes, "{name} is left as it was");
        }
        stationmaster::store::SqliteStore::open(path("jobs.db"), Default::default()).unwrap();
        assert_eq!(alone(&["--db", &path("jobs.db"), "tasks"]).code, 1, "nothing in it");
        assert_eq!(alone(&["--db", &path("jobs.db"), "--prefix", "other_", "tasks"]).code, 3);
        assert_eq!(alone(&["--db", &path("jobs.db"), "--prefix", "x;--", "tasks"]).code, 2);
        assert_eq!(alone(&["--db", &path(""), "tasks"]).code, 3, "a folder");
    }
    #[cfg(not(feature = "sqlite"))]
    assert_eq!(alone(&["--db", &path("jobs.db"), "tasks"]).code, 2, "it was built without SQLite");
    #[cfg(feature = "postgres")]
    {
        let shown = alone(&["--db", "postgres://me:hush@127.0.0.1:1/none", "tasks"]);
        assert_eq!(shown.code, 3, "{}", shown.err);
        assert!(!shown.err.contains("hush"), "a password is not told: {}", shown.err);
        let url = crate::world::scratch::url();
        let shown = alone(&["--db", &url, "--schema", "sm_no_such_schema", "tasks"]);
        assert_eq!(shown.code, 3, "{}", shown.err);
        let shown = alone(&["--db", &url, "--schema", "sm_no_such_schema", "pause", "queue", "gpu", "--yes"]);
        assert_eq!(shown.code, 3, "{}", shown.err);
    }
    #[cfg(not(feature = "postgres"))]
    assert_eq!(alone(&["--db", "postgres://me@127.0.0.1/none", "tasks"]).code, 2);
}

#[test]
fn each_command_has_an_example() {
    let help = alone(&["--help"]).ends(0);
    assert!(help.contains("Exit codes: 0 fine; 1 nothing was found"), "{help}");
    let (_, commands) = help.split_once("Commands:").unwrap();
    let commands = commands.split_once("Options:").map_or(commands, |(commands, _)| commands);
    let named: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert_eq!(named.len(), 21 + usize::from(cfg!(feature = "dashboard")), "{named:?}");
    for name in named {
        let help = alone(&[name, "--help"]).ends(0);
        let (_, example) = help.split_once("Example").unwrap_or_else(|| panic!("{name} has no example"));
        assert!(example.contains(&format!(" {name}")), "{name}: {example}");
    }
}
