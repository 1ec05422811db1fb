//! A running program: what it has printed so far, and the instructions to begin and to end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::Outcome;

/// What a worker's longest calls took since it was last asked, in seconds, and what failed since it started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Longest {
    pub end: f64,
    pub renewal: f64,
    pub errors: f64,
    pub lost: f64,
}

#[derive(Default)]
struct Said {
    ready: bool,
    /// How many tasks were done, and when: seconds since 1970.
    done: Vec<(f64, u64)>,
    longest: Vec<Longest>,
}

pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<Mutex<Said>>,
    listener: Option<JoinHandle<()>>,
}

impl Running {
    pub fn spawn(mut command: Command) -> Outcome<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("no output")?);
        let said = Arc::<Mutex<Said>>::default();
        let heard = Arc::clone(&said);
        let listener = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut words = line.split_whitespace();
                let (word, numbers) = (words.next(), words.filter_map(|word| word.parse::<u64>().ok()));
                let numbers: Vec<u64> = numbers.collect();
                let mut said = heard.lock().expect("not poisoned");
                match (word, &numbers[..]) {
                    (Some("READY"), _) => said.ready = true,
                    (Some("done"), [at, count]) => said.done.push((*at as f64 / 1e6, *count)),
                    (Some("longest"), [end, renewal, errors, lost]) => said.longest.push(Longest {
                        end: *end as f64 / 1e6,
                        renewal: *renewal as f64 / 1e6,
                        errors: *errors as f64,
                        lost: *lost as f64,
                    }),
                    _ => {}
                }
            }
        });
        Ok(Self { child, input, said, listener: Some(listener) })
    }

    fn said<T>(&self, look: impl FnOnce(&Said) -> T) -> T {
        look(&self.said.lock().expect("not poisoned"))
    }

    fn wait_for(&mut self, what: &str, there: impl Fn(&Said) -> bool) -> Outcome<()> {
        let began = Instant::now();
        while !self.said(&there) {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("a program ended ({status}) and did not say {what}").into());
            }
            if began.elapsed() > Duration::from_secs(120) {
                return Err(format!("a program did not say {what} within two minutes").into());
            }
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until it could begin.
    pub fn ready(&mut self) -> Outcome<()> {
        self.wait_for("READY", |said| said.ready)
    }

    /// Lets it begin; after that, asks for the longest calls.
    pub fn go(&mut self) -> Outcome<()> {
        Ok(self.input.as_mut().ok_or("its input was closed")?.write_all(b"go\n")?)
    }

    /// Returns its longest calls since it was last asked.
    pub fn longest(&mut self) -> Outcome<Longest> {
        let before = self.said(|said| said.longest.len());
        self.go()?;
        self.wait_for("its longest calls", move |said| said.longest.len() > before)?;
        self.said(|said| said.longest.last().copied()).ok_or_else(|| "nothing said".into())
    }

    pub fn done(&self) -> u64 {
        self.said(|said| said.done.last().map_or(0, |(_, count)| *count))
    }

    /// Returns each count and when it was reached.
    pub fn counts(&self) -> Vec<(f64, u64)> {
        self.said(|said| said.done.clone())
    }

    pub fn signal(&self, signal: &str) -> Outcome<()> {
        let status = Command::new("kill").args([signal, &self.id().to_string()]).status()?;
        if status.success() { Ok(()) } else { Err(format!("kill {signal}: {status}").into()) }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends on its own, and until all of its output was read.
    pub fn ended(&mut self) -> Outcome<()> {
        let status = self.child.wait()?;
        if let Some(listener) = self.listener.take() {
            listener.join().map_err(|_| "the listener ended")?;
        }
        if status.success() { Ok(()) } else { Err(format!("a program ended: {status}").into()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns how many tasks all of them had done by this time.
pub fn done_by(counts: &[Vec<(f64, u64)>], at: f64) -> u64 {
    let by =
        |counts: &Vec<(f64, u64)>| counts.iter().rev().find(|(when, _)| *when <= at).map_or(0, |one| one.1);
    counts.iter().map(by).sum()
}

/// Returns how many a second all of them did in this window.
pub fn rate_between(counts: &[Vec<(f64, u64)>], from: f64, to: f64) -> f64 {
    (done_by(counts, to) - done_by(counts, from)) as f64 / (to - from)
}

/// Returns the longest time within this window in which none of them did anything.
pub fn longest_gap(counts: &[Vec<(f64, u64)>], from: f64, to: f64) -> f64 {
    let mut times: Vec<f64> = counts.iter().flatten().map(|(when, _)| *when).collect();
    times.retain(|when| from < *when && *when < to);
    times.extend([from, to]);
    times.sort_by(f64::total_cmp);
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_window_and_of_all() {
        let counts = [vec![(1.0, 10), (2.0, 30), (4.0, 50)], vec![(1.5, 100), (9.0, 200)]];
        assert_eq!(done_by(&counts, 0.5), 0);
        assert_eq!(done_by(&counts, 2.0), 130);
        assert_eq!(rate_between(&counts, 1.0, 3.0), (130.0 - 10.0) / 2.0);
        assert_eq!(rate_between(&counts, 4.5, 8.5), 0.0);
    }

    #[test]
    fn a_gap_may_lie_between_workers_and_at_the_edges() {
        let counts = [vec![(1.0, 1), (2.0, 2)], vec![(5.0, 1)]];
        assert_eq!(longest_gap(&counts, 1.5, 5.5), 3.0);
        assert_eq!(longest_gap(&counts, 5.0, 9.0), 4.0);
    }
}
