//! Repeats the output until its reader is gone.

use std::io;
use std::time::Duration;

/// Waits this long, or until the terminal or the reader of the output is gone. Returns false in that case.
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
            // Not every output can be polled on every system.
            Ok(_) | Err(_) => {
                std::thread::sleep(left);
                return true;
            }
        }
    }
}

/// Waits this long. A closed output is noticed at the next write.
#[cfg(not(unix))]
pub fn wait(length: Duration) -> bool {
    std::thread::sleep(length);
    true
}

/// Writes the sequence that clears a terminal.
pub fn clear(out: &mut impl io::Write) -> io::Result<()> {
    out.write_all(b"\x1b[H\x1b[2J")
}
