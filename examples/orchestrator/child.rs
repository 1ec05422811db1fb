//! Child processes that cannot outlive this one.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Runs `$1` in the process group of this shell. A guard kills the whole group, including itself, when standard input
/// ends. We hold the other end of that pipe, so the system closes it when we die for any reason.
///
/// When `$1` ends, the background processes that it left are also asked to end.
const GUARDED: &str = r#"
exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL 0; } &
guard=$!
exec 3<&-
sh -c "$1"
code=$?
trap '' TERM
{ kill -KILL "$guard"; wait "$guard"; kill -TERM 0; } >/dev/null 2>&1
exit "$code"
"#;

/// The pipe that keeps a child alive. Dropping it kills the child's process group.
#[derive(Debug)]
pub(crate) struct Lifeline(#[expect(dead_code, reason = "held for its drop")] ChildStdin);

/// Starts `sh -c command` in a process group of its own.
pub(crate) fn start(
    command: &str,
    dir: &Path,
    env: &[(&str, &OsStr)],
    stdout: Stdio,
    stderr: Stdio,
) -> io::Result<(Child, Lifeline)> {
    let mut child = Command::new("sh")
        .args(["-c", GUARDED, "sh", command])
        .current_dir(dir)
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .spawn()?;
    let lifeline = child.stdin.take().ok_or_else(|| io::Error::other("the child has no standard input"))?;
    Ok((child, Lifeline(lifeline)))
}

/// Returns both output streams of a child, directed into one file.
pub(crate) fn into_file(file: File) -> io::Result<(Stdio, Stdio)> {
    Ok((file.try_clone()?.into(), file.into()))
}
