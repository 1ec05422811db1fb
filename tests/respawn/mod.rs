//! Runs a function of this test binary in a child process that can be killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const MARK: &str = "@@";

/// True in a process made by [`Respawned::new`]. A test function that is a child's entry returns at once otherwise.
pub fn argument() -> Option<String> {
    std::env::var("STATIONMASTER_TEST_CHILD").ok()
}

/// In the child: sends a line to the parent. It is on its way before this returns: a kill later cannot take it back.
pub fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A child process, and the lines it says.
pub struct Respawned {
    child: Child,
    lines: Receiver<String>,
}

impl Respawned {
    /// Runs the test function `entry` of this binary in a child, with this argument.
    pub fn new(entry: &str, argument: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([entry, "--exact", "--nocapture", "--test-threads=1"])
            .env("STATIONMASTER_TEST_CHILD", argument)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // libtest may have written on the same line before.
                if let Some((_, said)) = line.split_once(MARK)
                    && sender.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line; none when the child has ended and everything was read.
    pub fn line(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// What the child has said that was not read yet.
    pub fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Fails the test, with what the child complained about, if it has ended.
    pub fn must_live(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("a child ended with {status}: {}", self.complaint());
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn complaint(&mut self) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut text).unwrap();
        text
    }

    /// Kills the child with SIGKILL, and returns what it said that was not read yet.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.iter().collect()
    }

    /// Waits until the child ends on its own, and returns what it said that was not read yet.
    pub fn join(mut self) -> Vec<String> {
        let lines = self.lines.iter().collect();
        let status = self.child.wait().unwrap();
        if !status.success() {
            panic!("the child ended with {status}: {}", self.complaint());
        }
        lines
    }
}

/// A test that panics leaves no child behind.
impl Drop for Respawned {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
