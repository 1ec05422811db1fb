//! How a task becomes a sensor.

use std::time::Duration;

use stationmaster::sensor::{NewSensor, OnMissed, Settings};
use stationmaster::service::kinds::{Condition, FileExists, TimeReached};
use stationmaster::{Error, LeaseRef, Result};

use crate::kinds::{CommandSucceeds, TcpAccepts};
use crate::run::Run;
use crate::workflow::{Task, WaitFor};

const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);
/// A poke must not delay the others for longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the sensor that this task of the run becomes.
///
/// Its context contains everything that the poke needs. So sensors of any tasks with equal targets share one poke,
/// and any process can make it.
pub(crate) fn sensor_of(run: &Run, task: &Task, wait_for: &WaitFor, lease: LeaseRef) -> Result<NewSensor> {
    let dir = run.places.data(run.id());
    let interval = task.interval_s.unwrap_or(DEFAULT_INTERVAL);
    let settings = Settings::new(interval, task.timeout_s.unwrap_or(DEFAULT_TIMEOUT))?;
    let missed = if task.soft_fail { OnMissed::Skip } else { OnMissed::Fail };
    let settings = settings.on_missed(missed);
    match wait_for {
        WaitFor::File(path) => FileExists::at(dir.join(path)).sensor(lease, settings),
        WaitFor::Command(command) => {
            let workflow_dir = run.workflow_dir.to_str();
            let workflow_dir =
                workflow_dir.ok_or_else(|| Error::abort("the workflow's directory is not UTF-8"))?;
            let command = CommandSucceeds::shell(command).dir(dir).env("WORKFLOW_DIR", workflow_dir);
            command.timeout(PATIENCE).sensor(lease, settings)
        }
        WaitFor::Tcp(address) => TcpAccepts::new(address).connect_timeout(PATIENCE).sensor(lease, settings),
        WaitFor::Time(at) => TimeReached::new(*at).sensor(lease, settings),
        WaitFor::AfterS(length) => TimeReached::new(run.started + *length).sensor(lease, settings),
    }
}
