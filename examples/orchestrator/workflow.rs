//! The workflow file: its shape, and how it is read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use stationmaster::Timestamp;
use stationmaster::backoff::RetryPolicy;
use stationmaster::id::PoolName;
use stationmaster::pool::Slots;
use stationmaster::seconds;

use crate::trouble::Trouble;

/// A workflow as written in its file. [`crate::check`] decides whether it makes sense.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workflow {
    pub(crate) name: String,
    #[serde(default, rename = "description")]
    _description: String,
    /// The most tasks that hold slots at once.
    pub(crate) max_active_tasks: Option<u32>,
    #[serde(default)]
    pub(crate) pools: Vec<Pool>,
    #[serde(default)]
    pub(crate) limits: Vec<Limit>,
    pub(crate) tasks: Vec<Task>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    pub(crate) name: PoolName,
    pub(crate) slots: Slots,
    #[serde(default)]
    pub(crate) description: String,
}

/// At most `max` tasks that name this limit hold slots at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) max: u32,
}

/// A command, or a sensor: one of `command` and `wait_for`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    pub(crate) name: String,
    #[serde(default, rename = "description")]
    _description: String,
    /// Run by `sh -c` in the run's data directory.
    pub(crate) command: Option<String>,
    pub(crate) wait_for: Option<WaitFor>,
    /// The tasks that must succeed before this one starts.
    #[serde(default)]
    pub(crate) after: Vec<String>,
    #[serde(default = "PoolName::default_pool")]
    pub(crate) pool: PoolName,
    #[serde(default = "one")]
    pub(crate) pool_slots: u32,
    #[serde(default)]
    pub(crate) priority: i32,
    #[serde(default)]
    pub(crate) limits: Vec<String>,
    #[serde(default)]
    pub(crate) retry: RetryPolicy,
    /// A command is killed after this long, and has failed. A sensor waits this long.
    #[serde(default, with = "seconds::option")]
    pub(crate) timeout_s: Option<Duration>,
    /// The time between two pokes of a sensor.
    #[serde(default, with = "seconds::option")]
    pub(crate) interval_s: Option<Duration>,
    /// Whether a sensor that times out is skipped instead of failed.
    #[serde(default)]
    pub(crate) soft_fail: bool,
    /// Creates this many instances of the task. Between mapped tasks of the same size, instance i waits for instance
    /// i. Otherwise a task waits for all instances.
    pub(crate) map: Option<u32>,
}

/// The condition that a sensor waits for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitFor {
    /// A file exists; a relative path starts at the run's data directory.
    File(String),
    /// A command exits with 0. It runs by `sh -c` in the run's data directory.
    Command(String),
    /// A port accepts a connection: `host:port`.
    Tcp(String),
    /// An instant has passed.
    Time(Timestamp),
    /// The run began this long ago.
    AfterS(#[serde(with = "seconds")] Duration),
}

fn one() -> u32 {
    1
}

/// A workflow file that was read, and the data that identifies it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) workflow: Workflow,
    /// The absolute directory of the file.
    pub(crate) dir: PathBuf,
    /// A hash of the text. An open run is resumed only with the definition that it began with.
    pub(crate) definition: String,
}

pub(crate) fn read(file: &Path) -> Result<Source, Trouble> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Trouble::input(format!(
            "cannot read the workflow {name}: {error}: give the path of a readable UTF-8 file"
        ))
    })?;
    let workflow = serde_json::from_str(&text)
        .map_err(|error| Trouble::input(format!("{name}: {error}: correct the file there")))?;
    let file = std::path::absolute(file).map_err(|error| Trouble::input(format!("{name}: {error}")))?;
    let dir = file.parent().map(Path::to_path_buf).unwrap_or_default();
    let hash = siphasher::sip::SipHasher24::new().hash(text.as_bytes());
    Ok(Source { workflow, dir, definition: format!("{hash:016x}") })
}
