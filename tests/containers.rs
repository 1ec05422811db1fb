//! Two admitters of one name, each in a container where it is process 1, tick at the same instant.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "respawn/mod.rs"]
mod respawn;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use stationmaster::service::{Admitter, Service};
use stationmaster::store::SqliteStore;
use stationmaster::{NewTask, TaskKey, Timestamp};

const PATH: &str = "STATIONMASTER_TEST_CONTAINER";

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, Default::default()).unwrap())
}

#[test]
fn container() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut admitter = Admitter::new(open(Path::new(&path)), "w".try_into().unwrap()).budget(1);
    let granted = admitter.tick(Timestamp::UNIX_EPOCH).unwrap().granted;
    let numbers: Vec<i64> = granted.iter().map(|task| task.id.0).collect();
    respawn::say(&format!("process {} was granted {numbers:?}", std::process::id()));
}

/// Runs the test above as process 1 of a namespace of its own; `None` if this system does not allow that.
fn in_a_container(path: &Path) -> Option<String> {
    let out = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["container", "--exact", "--nocapture"])
        .env(PATH, path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    Some(text.lines().find_map(|line| line.split_once("@@"))?.1.to_owned())
}

#[test]
fn two_admitters_of_one_name_in_two_containers_never_get_the_same_lease() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let tasks = ["a", "b"].map(|name| NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap()));
    open(&path).write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
    let Some(first) = in_a_container(&path) else {
        eprintln!("SKIPPED, NOT PASSED: no process namespace can be made here (unshare --pid)");
        return;
    };
    let seen = [first, in_a_container(&path).unwrap()];
    assert_eq!(seen, ["process 1 was granted [1]", "process 1 was granted [2]"]);
}
