//! Waits for processes that commands leave behind, if this process has to.
//!
//! A process whose parent has ended is given to the nearest ancestor that asked for such orphans, or to
//! process 1. In a container without an init, that is the host's process. An ended orphan that no process
//! waits for stays a zombie, and counts against the limit of processes.
//!
//! Waits only for the process groups that [`super::process`] made. They contain none of the host's own
//! children.

use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions, waitpgid};

/// The pauses between checks of a command's orphans, in milliseconds. Killed processes take a moment to end.
const PAUSES: [u64; 5] = [1, 2, 5, 10, 30];

/// The groups that still had a live orphan of ours at the last check.
///
/// The system does not reuse the number of such a group until the last process of the group was waited for.
/// That is up to us.
static ALIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Waits for the orphans of a command whose process group has this number. The command itself was already
/// waited for.
///
/// They get a moment to end. Slower ones are waited for after a later command has ended.
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

/// Waits for the orphans of this group that have ended. Returns true if one of them is still alive. Also
/// returns false if they are not ours.
fn is_alive(group: Pid) -> bool {
    loop {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            // There are none, or another process has to wait for them.
            Err(_) => return false,
        }
    }
}
