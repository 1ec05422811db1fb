//! A sensor kind: a command exits with 0.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::seconds;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::PokeRequest;
use stationmaster::service::kinds::Condition;

use super::process::{self, Exit};

/// Waits until a command exits with 0. Each poke starts it again.
///
/// | the command | is |
/// |---|---|
/// | exits with 0 | landed, with no value |
/// | exits with one of `fails_on` | failed |
/// | exits with 126 or 127 (it is not there, or is no program), or is killed by a signal | unreachable |
/// | exits with 129 to 192, which is how shells tell of a signal | unreachable, as if killed by it |
/// | could not be started, or its guard could not | unreachable |
/// | takes longer than its timeout, 5 seconds by default | killed, and unreachable |
/// | exits with anything else | not yet |
///
/// The command has the environment of the poker's process and its own variables, and no input. Its output is
/// discarded.
///
/// It runs in its own process group, under a guard, which is a shell (`/bin/sh`). The whole group is killed
/// when the command's time is up, and also when the poker's process dies for any reason. When the command
/// ends, the processes that it left in the background are asked to end, which they may ignore. A process that
/// creates its own session or group is out of reach.
///
/// If the system gives orphans to the poker's process, it waits for those of the group, so that no zombies
/// are left. The first process of a container gets orphans. For orphans that are out of reach, run the
/// container with an init (`docker run --init`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandSucceeds {
    /// A program, which is searched for in the command's `PATH`, and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    argv: Vec<String>,
    /// A text for a shell to run, if there is no `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shell: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dir: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(default = "five_seconds", rename = "timeout_s", with = "seconds")]
    timeout: Duration,
    /// The exit codes that mean that it will never succeed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    fails_on: BTreeSet<i32>,
}

fn five_seconds() -> Duration {
    Duration::from_secs(5)
}

impl CommandSucceeds {
    /// Runs this text in a shell: `/bin/sh -c`.
    pub(crate) fn shell(text: impl Into<String>) -> Self {
        Self {
            argv: Vec::new(),
            shell: Some(text.into()),
            dir: None,
            env: BTreeMap::new(),
            timeout: five_seconds(),
            fails_on: BTreeSet::new(),
        }
    }

    /// Sets its working directory. Default: the poker's.
    #[must_use]
    pub(crate) fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub(crate) fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets how long it may take. Keep it below the poke timeout, because a poke that is given up cannot kill
    /// the command.
    #[must_use]
    pub(crate) fn timeout(mut self, length: Duration) -> Self {
        self.timeout = seconds::clip(length);
        self
    }

    /// Returns the words to run, or what is wrong with the context.
    fn words(&self) -> Result<Vec<&str>, String> {
        let words: Vec<&str> = match (self.argv.as_slice(), self.shell.as_deref()) {
            (argv @ [program, ..], None) if !program.is_empty() => argv.iter().map(String::as_str).collect(),
            ([], Some(text)) if !text.trim().is_empty() => process::SHELL.into_iter().chain([text]).collect(),
            _ => return Err("it must have either an argv or a shell text".into()),
        };
        let plain = |text: &str| !text.contains('\0');
        let plain_dir = self.dir.as_ref().and_then(|dir| dir.to_str()).is_none_or(plain);
        if !plain_dir || !words.iter().all(|word| plain(word)) {
            return Err("it has a NUL character".into());
        }
        let named = |name: &str| !name.is_empty() && !name.contains('=') && plain(name);
        match self.env.iter().find(|(name, value)| !named(name) || !plain(value)) {
            Some((name, _)) => Err(format!("{name:?} cannot be a variable of an environment")),
            None => Ok(words),
        }
    }

    fn look(&self) -> PokeOutcome {
        let words = match self.words() {
            Ok(words) => words,
            Err(problem) => return Self::wrong(&problem),
        };
        match process::run(&words, self.dir.as_deref(), &self.env, self.timeout) {
            Ok(Exit::Code(0)) => PokeOutcome::Landed(None),
            Ok(Exit::Code(code)) if self.fails_on.contains(&code) => {
                PokeOutcome::Failed(format!("the command exited with {code}"))
            }
            Ok(Exit::Code(code @ (126 | 127))) => PokeOutcome::Unreachable(format!(
                "exit code {code}: no such command on this machine, or no program"
            )),
            // A shell reports a signal as a code above 128.
            Ok(Exit::Code(code @ 129..=192)) => killed(code - 128),
            Ok(Exit::Code(_)) => PokeOutcome::NotYet,
            Ok(Exit::Signal(signal)) => killed(signal),
            Ok(Exit::Overlong) => {
                let limit = self.timeout.as_secs_f64();
                PokeOutcome::Unreachable(format!(
                    "killed: the command took longer than its timeout of {limit} s"
                ))
            }
            Err(error) => PokeOutcome::Unreachable(format!("the command could not be started: {error}")),
        }
    }
}

fn killed(signal: i32) -> PokeOutcome {
    PokeOutcome::Unreachable(format!("the command was killed by signal {signal}"))
}

impl Condition for CommandSucceeds {
    const KIND: &'static str = "command_succeeds";
    const EXAMPLE: &'static str =
        r#"{"argv": ["test", "-s", "/data/in.csv"]} or {"shell": "grep -q done /data/status"}"#;
}

/// The poke of [`CommandSucceeds`].
pub(super) fn command_succeeds(request: &PokeRequest) -> PokeOutcome {
    match CommandSucceeds::read(&request.context) {
        Ok(wanted) => wanted.look(),
        Err(wrong) => wrong,
    }
}
