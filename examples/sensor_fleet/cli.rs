//! The command line.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) const HELP: &str = "\
sensor_fleet [OPTIONS]
  --sensors N       sensors to register [2000]
  --duplicates P%   of them wait for a target that another one waits for [40%]
  --poke-ms M       milliseconds that a poke takes [5]
  --workers K       processes that poke [2]
  --threads T       pokes at once in each of them [16]
  --interval S      seconds between two pokes of a target [2]
  --lease S         seconds that a worker holds its shards without renewing [2]
  --seconds S       how long it runs; the first interval is not measured [3 intervals, with --kill-one a lease more]
  --kill-one        kills a worker, and tells when its targets are poked again
  --help            this text";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Options {
    pub(crate) sensors: usize,
    pub(crate) duplicates: f64,
    pub(crate) poke: Duration,
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    pub(crate) interval: Duration,
    pub(crate) lease: Duration,
    pub(crate) seconds: Option<Duration>,
    pub(crate) kill_one: bool,
}

fn number(what: &str, text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| format!("{what} takes a number, not {text:?}"))
}

fn count(what: &str, text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| format!("{what} takes a whole number above 0, not {text:?}"))
}

fn length(what: &str, text: &str, unit: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(number(what, text)? * unit).map_err(|error| format!("{what}: {error}"))
}

impl Options {
    /// None if help was asked for.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let second = Duration::from_secs(1);
        let mut options = Self {
            sensors: 2_000,
            duplicates: 0.4,
            poke: Duration::from_millis(5),
            workers: 2,
            threads: 16,
            interval: 2 * second,
            lease: 2 * second,
            seconds: None,
            kill_one: false,
        };
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--help" | "-h" => return Ok(None),
                "--kill-one" => {
                    options.kill_one = true;
                    continue;
                }
                _ => {}
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value, or is no option"))?;
            match name.as_str() {
                "--sensors" => options.sensors = count(&name, &value)?,
                "--duplicates" => options.duplicates = number(&name, value.trim_end_matches('%'))? / 100.0,
                "--poke-ms" => options.poke = length(&name, &value, 1e-3)?,
                "--workers" => options.workers = count(&name, &value)?,
                "--threads" => options.threads = count(&name, &value)?,
                "--interval" => options.interval = length(&name, &value, 1.0)?,
                "--lease" => options.lease = length(&name, &value, 1.0)?,
                "--seconds" => options.seconds = Some(length(&name, &value, 1.0)?),
                _ => return Err(format!("{name} is no option")),
            }
        }
        if options.duplicates >= 1.0 {
            return Err("--duplicates takes less than 100%: there is one target at least".into());
        }
        if options.length() < options.least() {
            return Err(format!("--seconds takes at least {:?} with these options", options.least()));
        }
        Ok(Some(options))
    }

    /// Returns how many targets the sensors have in total.
    pub(crate) fn targets(&self) -> usize {
        let shared = (self.sensors as f64 * self.duplicates) as usize;
        (self.sensors - shared).max(1)
    }

    /// Returns how long the workers run.
    pub(crate) fn length(&self) -> Duration {
        self.seconds.unwrap_or_else(|| self.least() + self.interval)
    }

    fn least(&self) -> Duration {
        let kill = if self.kill_one { self.lease + Duration::from_secs(1) } else { Duration::ZERO };
        self.interval * 2 + kill
    }
}
