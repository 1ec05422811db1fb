//! Runs a command for a while.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How a command ended.
pub(super) enum Exit {
    Code(i32),
    /// The command, or its guard with it.
    #[cfg_attr(not(unix), expect(dead_code))]
    Signal(i32),
    /// Its time was up; it was killed.
    Overlong,
}

/// The words that run a text as a shell does.
#[cfg(not(windows))]
pub(super) const SHELL: [&str; 2] = ["sh", "-c"];
#[cfg(windows)]
pub(super) const SHELL: [&str; 2] = ["cmd", "/C"];

/// Runs its arguments in the process group of this shell, under a guard that kills the whole group, itself included, when
/// standard input ends. We hold the other end of that pipe, so the system closes it when we die, however we die.
///
/// When the command ends, what it left behind in the background is asked to end, too.
#[cfg(unix)]
const GUARDED: &str = r#"
exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL 0; } &
guard=$!
exec 3<&-
(exec "$@")
code=$?
trap '' TERM
{ kill -KILL "$guard"; wait "$guard"; kill -TERM 0; } >/dev/null 2>&1
exit "$code"
"#;

/// Runs these words, the first of them the program, for at most `limit`.
pub(super) fn run(
    words: &[&str],
    dir: Option<&Path>,
    env: &BTreeMap<String, String>,
    limit: Duration,
) -> io::Result<Exit> {
    let mut command = command(words);
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    let child = command.envs(env).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.map_err(|error| match dir {
        // The system does not tell whether the program or the directory is missing.
        Some(dir) if !dir.is_dir() => io::Error::new(error.kind(), format!("no directory {}", dir.display())),
        _ => error,
    })?;
    wait_at_most(child, limit)
}

#[cfg(unix)]
fn command(words: &[&str]) -> Command {
    use std::os::unix::process::CommandExt;

    let mut command = Command::new("sh");
    command.args(["-c", GUARDED, "sh"]).args(words).stdin(Stdio::piped()).process_group(0);
    command
}

#[cfg(not(unix))]
fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words.first().copied().unwrap_or_default());
    command.args(words.get(1..).unwrap_or_default()).stdin(Stdio::null());
    command
}

fn wait_at_most(mut child: Child, limit: Duration) -> io::Result<Exit> {
    let lifeline = child.stdin.take();
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(exit(status));
        }
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            let guarded = lifeline.is_some();
            drop(lifeline);
            if !guarded {
                child.kill()?;
            }
            child.wait()?;
            return Ok(Exit::Overlong);
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(unix)]
fn exit(status: ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}

#[cfg(not(unix))]
fn exit(status: ExitStatus) -> Exit {
    Exit::Code(status.code().unwrap_or(1))
}
