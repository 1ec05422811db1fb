//! Runs a command for a limited time.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::orphans;

/// How a command ended.
pub(super) enum Exit {
    Code(i32),
    /// The command was killed, perhaps together with its guard.
    Signal(i32),
    /// Its time was up, and it was killed.
    Overlong,
}

/// The words that make a shell run a text.
pub(super) const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// Runs its arguments in the process group of this shell. A guard kills the whole group, including itself,
/// when standard input ends. We hold the other end of that pipe, so the system closes it when we die for any
/// reason.
///
/// When the command ends, the background processes that it left are also asked to end. A byte on standard
/// output means that everything was started: a shell that cannot fork ends with a code that a command may
/// have, too.
///
/// It sets no variable, so that the command's environment is unchanged.
const GUARDED: &str = r#"
exec 3<&0 </dev/null 4>&1 >/dev/null
{ read -r _ <&3; kill -KILL 0; } 4>&- &
(exec 3<&-; echo >&4; exec 4>&-; exec "$@")
set -- $?
trap '' TERM
{ kill -KILL $!; wait $!; kill -TERM 0; } >/dev/null 2>&1
exit "$1"
"#;

/// Runs these words, beginning with the program, for at most `limit`.
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
    let child = command.envs(env).stderr(Stdio::null()).spawn();
    let child = child.map_err(|error| match dir {
        // The system does not say whether the program or the directory is missing.
        Some(dir) if !dir.is_dir() => io::Error::new(error.kind(), format!("no directory {}", dir.display())),
        _ => error,
    })?;
    let group = child.id();
    let ended = wait_at_most(child, limit);
    orphans::wait_for(group);
    ended
}

fn command(words: &[&str]) -> Command {
    // By its path, because a command may have its own `PATH`.
    let mut command = Command::new(SHELL[0]);
    command.args(["-c", GUARDED, "sh"]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    command
}

fn wait_at_most(mut child: Child, limit: Duration) -> io::Result<Exit> {
    let lifeline = child.stdin.take();
    let ended = wait(&mut child, limit);
    if let Ok(Some(status)) = ended {
        return match child.stdout.take().map(|mut began| began.read(&mut [0])) {
            Some(Ok(0)) => {
                Err(io::Error::other(format!("its guard ended with {status}: too many processes?")))
            }
            _ => Ok(exit(status)),
        };
    }
    if lifeline.is_some() {
        drop(lifeline);
        // The guard kills the whole group, unless the command has killed the guard.
        if let Ok(Some(_)) = wait(&mut child, Duration::from_secs(1)) {
            return ended.map(|_| Exit::Overlong);
        }
        kill_group(&child);
    }
    child.kill()?;
    child.wait()?;
    ended.map(|_| Exit::Overlong)
}

/// Returns how it ended, or `None` if it did not end within this time.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let status = child.try_wait()?;
        let left = limit.saturating_sub(began.elapsed());
        if status.is_some() || left.is_zero() {
            return Ok(status);
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Kills the process group that this child leads. The child itself was not waited for, so its number cannot
/// have been reused.
fn kill_group(child: &Child) {
    let mut killer = Command::new(SHELL[0]);
    killer.args(["-c", "kill -KILL \"-$1\"", "sh", &child.id().to_string()]);
    // If it cannot be started, the child alone is killed.
    let _ = killer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute() -> Duration {
        Duration::from_secs(60)
    }

    #[test]
    fn a_guard_that_could_not_be_started_is_no_answer_of_the_command() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "exit 2"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let ended = wait_at_most(shell.spawn().unwrap(), minute());
        assert!(ended.is_err_and(|error| error.to_string().contains("too many processes")));
        let ended = run(&["/bin/sh", "-c", "exit 2"], None, &BTreeMap::new(), minute());
        assert!(matches!(ended, Ok(Exit::Code(2))));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_command_that_killed_its_guard_is_killed_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let text = "for p in $(cat /proc/$PPID/task/$PPID/children); do test $p = $$ || kill -KILL $p; done; \
                    echo $$ >pid; sleep 120; true";
        let began = Instant::now();
        let limit = Duration::from_secs(3);
        let ended = run(&["/bin/sh", "-c", text], Some(dir.path()), &BTreeMap::new(), limit);
        assert!(matches!(ended, Ok(Exit::Overlong)));
        let pid = std::fs::read_to_string(dir.path().join("pid")).unwrap();
        // A process that was killed but not yet waited for has no words.
        let words = format!("/proc/{}/cmdline", pid.trim());
        while std::fs::read(&words).is_ok_and(|words| !words.is_empty()) {
            assert!(began.elapsed() < minute(), "the command lives on");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
