//! Do the tests catch faults? Each fault here bends one statement of the store on its way to the server. The test that is to
//! catch it then runs in a process of its own, and must fail, for the stated reason.
//!
//! It is a sample of them. `STATIONMASTER_BENT=all` takes all, and a part of a fault's description takes those that have it.

use std::collections::HashSet;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, scope, sleep, spawn};
use std::time::{Duration, Instant};

use crate::postgres_server::relay::Relay;
use crate::scratch::{query, rows, url};

/// How long a test may take that is to fail.
const PATIENCE: Duration = Duration::from_secs(60);

/// One in this many of the faults is in the sample.
const SAMPLE: usize = 4;

/// A part of a statement that is sent in another form.
#[derive(Debug, Clone, Copy)]
struct Fault {
    what: &'static str,
    /// The statement, under `src/store/postgres`. The part is in it.
    file: &'static str,
    part: &'static str,
    bent: &'static str,
    /// The test that catches it, and what it says then.
    test: &'static str,
    says: &'static str,
}

mod faults;

/// Joins the lines of a text without its comments, as the store sends it.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.collect::<Vec<_>>().join(" ")
}

/// Returns the name of the schema that a statement works on.
fn schema(sql: &str) -> Option<&str> {
    let begin = sql.find("\"sm_")? + 1;
    Some(&sql[begin..begin + sql[begin..].find('"')?])
}

/// What fills the places in the files of faults, as the store sends them where the fault is.
const PLACES: [(&str, &str); 3] =
    [("{lock}", "FOR UPDATE SKIP LOCKED"), ("{passing}", " SKIP LOCKED"), (" {changes}", "")];

impl Fault {
    /// Returns the statement as it is sent instead, if it has the part.
    fn bend(&self, sql: &str) -> Option<String> {
        let schema = format!("\"{}\".", schema(sql)?);
        let [part, bent] = [self.part, self.bent].map(|text| text.replace("sm.", &schema));
        let sql = one_line(sql);
        sql.contains(&part).then(|| sql.replace(&part, &bent))
    }

    /// Runs the test against the bent store, and returns what is wrong with how it ended.
    fn trial(&self) -> Option<String> {
        let file = format!("{}/src/store/postgres/{}", env!("CARGO_MANIFEST_DIR"), self.file);
        let mut text =
            one_line(&std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}")));
        for (place, filled) in PLACES {
            text = text.replace(place, filled);
        }
        if !text.contains(self.part) {
            return Some(format!("its part is not in {}", self.file));
        }
        let (fault, bent) = (*self, Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&bent);
        let edit = move |sql: &str| {
            // What a tick of a few does instead is not done.
            let few = "._fold_few(false, NULL) WHERE count IS NOT NULL";
            if fault.file == "tx/fold.sql" && sql.ends_with(few) {
                return Some(format!("{sql} AND false"));
            }
            if fault.file == "tx/tick/grant.sql" && sql.starts_with("SELECT") && sql.contains("._take_few(") {
                return Some(format!("{sql} WHERE 1 / 0 IS NULL"));
            }
            let sent = fault.bend(sql);
            count.fetch_add(usize::from(sent.is_some()), Ordering::Relaxed);
            sent
        };
        let relay = Relay::start(&url(), edit, |_| ());
        let (passed, said) = run(self.test, &relay.url());
        match bent.load(Ordering::Relaxed) {
            0 => Some(format!("the statement was not sent: {said}")),
            _ if passed => Some("the test passed".into()),
            _ if !said.contains(self.says) => Some(format!("another reason: {said}")),
            _ => None,
        }
    }
}

/// Reads all that comes, so that the child never waits for its reader.
fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    spawn(move || {
        let mut said = Vec::new();
        // What was read until then counts.
        let _ = from.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    })
}

/// Waits until a child has ended, or ends it. Returns whether it succeeded.
fn ended(child: &mut Child) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

/// Runs a test of this binary on the server at this address. Returns whether it passed, and what it printed.
fn run(test: &str, server: &str) -> (bool, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("STATIONMASTER_TEST_POSTGRES", server)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (out, err) = (drain(child.stdout.take().unwrap()), drain(child.stderr.take().unwrap()));
    let passed = ended(&mut child);
    let said = out.join().unwrap() + &err.join().unwrap();
    assert!(said.contains("running 1 test"), "there is no test {test}: {said}");
    forget_schemas(child.id());
    (passed, said)
}

/// Drops the schemas that a test of this process left behind when it failed.
fn forget_schemas(process: u32) {
    let left = format!("SELECT nspname FROM pg_namespace WHERE nspname ~ '^sm_{process}_[0-9]+$'");
    for row in rows(&left) {
        let name: String = row.get(0);
        query(&format!("SET client_min_messages = warning; DROP SCHEMA IF EXISTS \"{name}\" CASCADE"));
    }
}

#[test]
fn each_fault_is_caught_by_its_test() {
    let all = faults::FAULTS;
    let chosen: Vec<Fault> = match std::env::var("STATIONMASTER_BENT").as_deref() {
        Ok("all") => all.to_vec(),
        Ok(part) => all.iter().filter(|fault| fault.what.contains(part)).copied().collect(),
        Err(_) => all.iter().step_by(SAMPLE).copied().collect(),
    };
    assert!(!chosen.is_empty());
    let (left, wrong) = (Mutex::new(chosen.clone()), Mutex::new(Vec::new()));
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(fault) = left.lock().unwrap().pop() else { return };
                    let began = Instant::now();
                    let found = fault.trial();
                    println!("{:.1?} {}: {}", began.elapsed(), fault.test, fault.what);
                    if let Some(found) = found {
                        wrong.lock().unwrap().push(format!("{} ({}): {found}", fault.what, fault.test));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    println!("{} of {} faults, each caught", chosen.len(), all.len());
}

/// It is the bend that a test finds, and not the relay.
#[test]
fn through_a_relay_that_bends_nothing_a_test_passes() {
    let relay = Relay::start(&url(), |_| None, |_| ());
    let (passed, said) = run("stepped::definitions::a_pause_waits_for_the_tick_in_flight", &relay.url());
    assert!(passed, "{said}");
}

#[test]
fn faults_are_different_ones() {
    let distinct: HashSet<(&str, &str)> =
        faults::FAULTS.iter().map(|fault| (fault.part, fault.bent)).collect();
    assert_eq!(distinct.len(), faults::FAULTS.len());
    assert!(faults::FAULTS.iter().all(|fault| fault.part != fault.bent));
}
