//! Waits for the processes that commands leave behind, where that is ours to do.
//!
//! A process whose parent has ended is given to the nearest ancestor that asked for such orphans, or to
//! process 1. In a container without an init of its own that is the host's process. An orphan that has ended
//! and that no one waits for stays a zombie, and counts against the limit of processes.
//!
//! Only the process groups that [`super::process`] made are waited for. A host's own children are in none of
//! them.

use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions, waitpgid};

/// The pauses between looks at the orphans of a command, in milliseconds: those that were killed take a
/// moment to end.
const PAUSES: [u64; 5] = [1, 2, 5, 10, 30];

/// The groups in which an orphan of ours was still alive when we last looked.
///
/// The number of such a group is not given to another: the system keeps it until the last process of the
/// group was waited for, and that is up to us.
static ALIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Waits for the orphans of a command whose process group has this number, and was waited for itself.
///
/// They get a moment to end. Those that take longer are waited for when a later command has ended.
pub(super) fn wait_for(group: u32) {
    let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) else { return };
    let ended = PAUSES.into_iter().any(|pause| {
        let ended = !is_alive(group);
        if !ended {
            thread::sleep(Duration::from_millis(pause));
        }
        ended
    });
    let mut alive = ALIVE.lock();
    if !ended {
        alive.push(group);
    }
    alive.retain(|group| is_alive(*group));
}

/// Waits for the orphans of this group that have ended. True if one of them is still alive; false, too, if
/// they are not ours.
fn is_alive(group: Pid) -> bool {
    loop {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            // There are none, or another process is given the orphans.
            Err(_) => return false,
        }
    }
}
