//! The programs that are measured: built or installed when a case first needs them, and run as processes.

use std::collections::HashSet;
use std::fs::{copy, create_dir_all};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::running::Running;

/// The commit that `pool64` compares with.
const BEFORE: &str = "e453f86";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    Ours,
    Before,
    Graphile,
    Awa,
    PgBoss,
    Apalis,
}

impl Program {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Before => "before",
            Self::Graphile => "graphile",
            Self::Awa => "awa",
            Self::PgBoss => "pgboss",
            Self::Apalis => "apalis",
        }
    }

    /// Returns the query that says whether nothing is left, for peers that end a task after its handler ran.
    /// awa's view of that is too slow to be asked, so its last handler counts.
    pub fn is_empty(self) -> Option<&'static str> {
        match self {
            Self::Graphile => Some("SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)"),
            _ => None,
        }
    }
}

/// Where programs come from, and where what is built goes.
pub struct Programs {
    source: PathBuf,
    build: PathBuf,
    ready: HashSet<Program>,
}

impl Programs {
    pub fn new(source: PathBuf, build: PathBuf) -> Self {
        Self { source, build, ready: HashSet::new() }
    }

    /// Builds or installs a program, once.
    pub fn prepare(&mut self, program: Program) -> Outcome<()> {
        if !self.ready.insert(program) || program == Program::Ours {
            return Ok(());
        }
        eprintln!("preparing {}", program.name());
        let source = self.source.join(program.name());
        match program {
            Program::PgBoss => {
                let place = self.build.join("pgboss");
                create_dir_all(&place)?;
                for file in ["package.json", "package-lock.json", "main.js"] {
                    copy(source.join(file), place.join(file))?;
                }
                done(
                    Command::new("npm")
                        .args(["ci", "--silent", "--no-audit", "--no-fund"])
                        .current_dir(place),
                )
            }
            _ => {
                let mut build = Command::new("cargo");
                build
                    .args(["build", "--release", "--quiet", "--target-dir"])
                    .arg(&self.build)
                    .current_dir(&source);
                if program == Program::Before {
                    let patch = format!("patch.crates-io.stationmaster.path={:?}", self.worktree()?);
                    build.args(["--config", &patch]);
                }
                done(&mut build)
            }
        }
    }

    /// Returns a worktree of this repository at the earlier commit.
    fn worktree(&self) -> Outcome<PathBuf> {
        let place = self.build.join(BEFORE);
        if !place.join("Cargo.toml").exists() {
            let git =
                |arguments: &[&str]| done(Command::new("git").args(arguments).current_dir(&self.source));
            git(&["worktree", "prune"])?;
            git(&["worktree", "add", "--quiet", "--detach", &place.display().to_string(), BEFORE])?;
        }
        Ok(place)
    }

    fn command(&self, program: Program, url: &str, arguments: &[String]) -> Command {
        let mut command = match program {
            Program::PgBoss => {
                let mut node = Command::new("node");
                node.arg(self.build.join("pgboss/main.js"));
                node
            }
            Program::Ours => Command::new(self.release("ours")),
            peer => Command::new(self.release(&format!("peers-{}", peer.name()))),
        };
        command.args(arguments).env("PEERS_URL", url);
        command
    }

    fn release(&self, name: &str) -> PathBuf {
        self.build.join("release").join(name)
    }

    /// Runs a command to its end.
    pub fn call(&self, program: Program, url: &str, arguments: &[String]) -> Outcome<()> {
        done(self.command(program, url, arguments).stdout(Stdio::null()))
    }

    /// Runs a command to its end, and returns the numbers behind this word on the line that begins with it.
    pub fn ask(&self, program: Program, url: &str, word: &str, arguments: &[String]) -> Outcome<Vec<f64>> {
        let output = self.command(program, url, arguments).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("{} {arguments:?}: {}", program.name(), output.status).into());
        }
        let text = String::from_utf8(output.stdout)?;
        let numbers = text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_default();
        Ok(numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
    }

    /// Starts a command that runs until its input ends.
    pub fn spawn(&self, program: Program, url: &str, arguments: &[String]) -> Outcome<Running> {
        Running::spawn(self.command(program, url, arguments))
    }
}

fn done(command: &mut Command) -> Outcome<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
