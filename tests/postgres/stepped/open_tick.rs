//! A tick of a store's own that a test keeps open. It holds the tick lock until the test lets it go.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use stationmaster::{Error, Result, Timestamp};

use super::scene::{Scene, order};

#[derive(Debug)]
pub struct OpenTick {
    go: Sender<bool>,
    granted: usize,
    thread: JoinHandle<Result<()>>,
}

impl OpenTick {
    /// Makes a tick that grants at most this many tasks.
    pub fn begin(scene: &Scene, at: Timestamp, budget: usize) -> Self {
        let store = scene.scratch.open(|options| options);
        let (go, wait): (Sender<bool>, Receiver<bool>) = channel();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            store.write(|tx| {
                let granted = tx.admit(at, &order(budget))?.granted.len();
                tell.send(granted).unwrap();
                match wait.recv() {
                    Ok(true) => Ok(()),
                    _ => Err(Error::abort("on purpose")),
                }
            })
        });
        Self { go, granted: told.recv().unwrap(), thread }
    }

    /// Commits, and returns how many tasks it granted.
    pub fn commit(self) -> usize {
        self.go.send(true).unwrap();
        self.thread.join().unwrap().unwrap();
        self.granted
    }

    /// Rolls back, and returns how many tasks it had granted.
    pub fn rollback(self) -> usize {
        self.go.send(false).unwrap();
        assert!(matches!(self.thread.join().unwrap(), Err(Error::Aborted(_))));
        self.granted
    }
}
