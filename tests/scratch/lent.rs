//! Schemas that the tests of a process use one after the other. Making and dropping one takes the server a sixth of
//! a second, emptying one less than a tenth of that.

use std::io::Write;
use std::ops::Deref;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use super::Scratch;

/// Tells the process that drops schemas at the end what it is.
const SWEEPS: &str = "STATIONMASTER_TEST_SWEEPS";

/// Those that no test uses at present.
static FREE: Mutex<Vec<Scratch>> = Mutex::new(Vec::new());

/// A schema with a store's tables and nothing in them. The next test gets it when this is dropped.
#[derive(Debug)]
pub struct Lent {
    schema: Option<Scratch>,
    is_discarded: AtomicBool,
}

impl Lent {
    pub fn new() -> Self {
        // Taken in a statement of its own, so that the others do not wait while this one is emptied.
        let used = FREE.lock().unwrap().pop();
        let schema = match used {
            Some(used) => {
                used.empty();
                used
            }
            None => {
                let new = Scratch::new();
                drop(new.open(|options| options));
                sweep(&new, true);
                new
            }
        };
        Self { schema: Some(schema), is_discarded: AtomicBool::new(false) }
    }

    /// A schema that no test had before and none gets later. Nothing is made.
    pub fn once() -> Self {
        Self { schema: Some(Scratch::new()), is_discarded: AtomicBool::new(true) }
    }

    /// No other test gets this one, as what is changed in it is more than rows.
    pub fn discard(&self) {
        if !self.is_discarded.swap(true, Ordering::Relaxed) {
            sweep(self, false);
        }
    }
}

impl Deref for Lent {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        self.schema.as_ref().unwrap()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It stays to be looked at.
            self.discard();
        } else if !self.is_discarded.load(Ordering::Relaxed) {
            FREE.lock().unwrap().extend(self.schema.take());
        }
    }
}

/// Asks for a schema to be dropped when this process has ended, however it ends, or no longer asks for it. A static is
/// not dropped at the end of a process, so another process does it: this binary, which waits for the end of its input.
fn sweep(schema: &Scratch, wanted: bool) {
    static SWEEPER: OnceLock<Mutex<Child>> = OnceLock::new();
    let sweeper = SWEEPER.get_or_init(|| {
        let (_, module) = module_path!().split_once("::").unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([&format!("{module}::sweeps_at_the_end"), "--exact", "--nocapture", "--test-threads=1"])
            .env(SWEEPS, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Mutex::new(child.unwrap())
    });
    let mut sweeper = sweeper.lock().unwrap();
    let sign = if wanted { '+' } else { '-' };
    writeln!(sweeper.stdin.as_mut().unwrap(), "{sign}{}", schema.0).unwrap();
}

/// The entry of the process that drops schemas; else it does nothing.
#[cfg(test)]
#[test]
fn sweeps_at_the_end() {
    use std::io::BufRead;
    if std::env::var_os(SWEEPS).is_none() {
        return;
    }
    let mut schemas = std::collections::BTreeSet::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        match line.split_at(1) {
            ("+", name) => schemas.insert(name.to_owned()),
            (_, name) => schemas.remove(name),
        };
    }
    schemas.iter().for_each(|name| super::drop_named(name));
}
