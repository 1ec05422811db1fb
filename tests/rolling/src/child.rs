//! This program again, as another process.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// In the child: sends a line to the parent. A kill later cannot take it back.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may have gone.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

pub struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    pub fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let input = process.stdin.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, input, lines }
    }

    /// Waits until it has said this many lines that begin so. Returns all that it said until then.
    pub fn until(&self, beginning: &str, count: usize) -> Vec<String> {
        let (mut said, mut found) = (Vec::new(), 0);
        while found < count {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            let line = line.unwrap_or_else(|_| panic!("no more than {found} {beginning:?} after {said:?}"));
            found += usize::from(line.starts_with(beginning));
            said.push(line);
        }
        said
    }

    /// Asks it to stop.
    pub fn stop(&mut self) {
        self.input = None;
    }

    /// Waits until it ends on its own. Returns what it said and was not read yet.
    pub fn join(mut self) -> Vec<String> {
        let said = self.lines.iter().collect();
        self.process.wait().unwrap();
        said
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.lines.iter().collect()
    }
}

/// A test that fails leaves no child behind.
impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
