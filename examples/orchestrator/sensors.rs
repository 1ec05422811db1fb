//! Sensors: how a task hands itself over, what is looked at, and where it is logged.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use stationmaster::canonical::PokeContext;
use stationmaster::id::SensorKind;
use stationmaster::sensor::{NewSensor, OnMissed, Poked, SensorRecord, Settings};
use stationmaster::service::{Poke, PokeLog, PokeRequest, Poker};
use stationmaster::{Error, LeaseRef, Result, time};

use crate::child;
use crate::cli::Places;
use crate::run::Run;
use crate::workflow::{Task, WaitFor};

const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);
/// A poke must not hold up the others for longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a poke looks at. It holds all that the poke needs, so that sensors with equal targets, of any task, share one poke
/// and any process can make it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Target {
    File(PathBuf),
    Command { command: String, dir: PathBuf, workflow_dir: PathBuf },
    Tcp(String),
    Time(DateTime<Utc>),
}

/// The sensor that this task of the run turns into.
pub(crate) fn sensor_of(run: &Run, task: &Task, wait_for: &WaitFor, lease: LeaseRef) -> Result<NewSensor> {
    let dir = run.places.data(run.id());
    let (kind, target) = match wait_for {
        WaitFor::File(path) => ("file", Target::File(dir.join(path))),
        WaitFor::Command(command) => {
            let (command, workflow_dir) = (command.clone(), run.workflow_dir.clone());
            ("command", Target::Command { command, dir, workflow_dir })
        }
        WaitFor::Tcp(address) => ("tcp", Target::Tcp(address.clone())),
        WaitFor::Time(at) => ("time", Target::Time(time::truncate(*at))),
        WaitFor::AfterS(length) => ("time", Target::Time(time::add(run.started, *length))),
    };
    let context = PokeContext::of(&target).map_err(|error| Error::Refused(Box::new(error)))?;
    let interval = task.interval_s.unwrap_or(DEFAULT_INTERVAL);
    let settings = Settings::new(interval, task.timeout_s.unwrap_or(DEFAULT_TIMEOUT))?;
    let missed = if task.soft_fail { OnMissed::Skip } else { OnMissed::Fail };
    Ok(NewSensor::new(lease, SensorKind::new(kind)?, context, settings.on_missed(missed)))
}

/// Teaches the poker our four kinds.
pub(crate) fn with_kinds(mut poker: Poker) -> Result<Poker> {
    for kind in ["file", "command", "tcp", "time"] {
        poker = poker.kind(SensorKind::new(kind)?, Look);
    }
    Ok(poker)
}

struct Look;

impl Poke for Look {
    fn poke(&self, request: &PokeRequest<'_>) -> Poked {
        match request.context.decode() {
            Ok(Target::File(path)) => file(&path),
            Ok(Target::Command { command, dir, workflow_dir }) => run_command(&command, &dir, &workflow_dir),
            Ok(Target::Tcp(address)) => tcp(&address),
            Ok(Target::Time(at)) if request.now >= at => Poked::Landed(None),
            Ok(Target::Time(_)) => Poked::NotYet,
            Err(error) => Poked::Failed(format!("not a target of this program: {error}")),
        }
    }
}

fn file(path: &Path) -> Poked {
    match fs::metadata(path) {
        Ok(found) => Poked::Landed(Some(format!("{} bytes", found.len()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Poked::NotYet,
        Err(error) => Poked::Unreachable(error.to_string()),
    }
}

fn run_command(command: &str, dir: &Path, workflow_dir: &Path) -> Poked {
    let env = [("WORKFLOW_DIR", workflow_dir.as_os_str())];
    let ended = child::start(command, dir, &env, Stdio::null(), Stdio::null())
        .and_then(|(child, lifeline)| child::wait_at_most(child, lifeline, PATIENCE));
    match ended {
        Ok(Some(status)) if status.success() => Poked::Landed(None),
        Ok(Some(_)) => Poked::NotYet,
        Ok(None) => Poked::Unreachable(format!("killed: it took longer than {PATIENCE:?}")),
        Err(error) => Poked::Unreachable(error.to_string()),
    }
}

fn tcp(address: &str) -> Poked {
    let resolved = match address.to_socket_addrs() {
        Ok(resolved) => resolved,
        Err(error) => return Poked::Unreachable(error.to_string()),
    };
    for address in resolved {
        if TcpStream::connect_timeout(&address, PATIENCE / 3).is_ok() {
            return Poked::Landed(Some(address.to_string()));
        }
    }
    Poked::NotYet
}

/// Writes each poke where the log of the sensor's attempt belongs. Opens and closes the file each time: thousands of
/// sensors must not hold thousands of open files.
pub(crate) struct LogFiles(pub(crate) Places);

impl PokeLog for LogFiles {
    fn poked(&self, sensor: &SensorRecord, now: DateTime<Utc>, answer: &Poked) {
        let waits_for = sensor.context.as_str();
        let answer = match answer {
            Poked::NotYet => "not yet".to_owned(),
            Poked::Landed(None) => "landed".to_owned(),
            Poked::Landed(Some(value)) => format!("landed: {value}"),
            Poked::Unreachable(why) => format!("could not look: {why}"),
            Poked::Failed(why) => format!("failed: {why}"),
            other => format!("{other:?}"),
        };
        let path = self.0.log(&sensor.task, sensor.attempt);
        let line = format!("{} poke {waits_for} {answer}\n", now.format("%Y-%m-%d %H:%M:%S%.3f UTC"));
        // A log that cannot be written is no reason to stop waiting.
        let _ = append(&path, &line);
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}
