//! Shows the same output again and again, until its reader is gone.

use std::io;
use std::time::Duration;

/// Waits for so long, or until the terminal or the reader of the output has gone. Returns false then.
#[cfg(unix)]
pub fn wait(length: Duration) -> bool {
    use std::time::Instant;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let end = Instant::now() + length;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let stdout = io::stdout();
        // No events are requested, because errors and hangups are always reported.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) => return true,
            Ok(_) if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => return false,
            Err(error) if error == rustix::io::Errno::INTR => {}
            // Not everything can be polled everywhere.
            Ok(_) | Err(_) => {
                std::thread::sleep(left);
                return true;
            }
        }
    }
}

/// Waits for so long. That the reader has gone is seen when something is written.
#[cfg(not(unix))]
pub fn wait(length: Duration) -> bool {
    std::thread::sleep(length);
    true
}

/// Returns what clears a terminal.
pub fn clear(out: &mut impl io::Write) -> io::Result<()> {
    out.write_all(b"\x1b[H\x1b[2J")
}
