//! The command line, and where files lie.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use stationmaster::TaskKey;
use stationmaster::service::FileLog;

use crate::database::Database;
use crate::trouble::Trouble;

const DEFAULT_WORKFLOW: &str = "examples/workflows/nightly_etl.json";

/// Runs a workflow of shell commands and sensors to its end.
///
/// A run that was interrupted, by Ctrl-C or by kill -9, is resumed by the same command: finished tasks are not repeated.
#[derive(Debug, Parser)]
#[command(name = "orchestrator", after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// The workflow file [default: the crate's examples/workflows/nightly_etl.json]
    #[arg(value_name = "WORKFLOW.json")]
    workflow: Option<PathBuf>,
    /// The database [default: ./stationmaster-work/<workflow>/stationmaster.db]
    #[arg(long, value_name = "FILE|postgres://URL")]
    db: Option<PathBuf>,
    /// The schema of the tables in a PostgreSQL database
    #[arg(long, value_name = "NAME", default_value = "stationmaster")]
    schema: String,
    /// How many commands run at once, at most; pools and limits may allow fewer
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
}

/// Names are plain, so that none is changed: the check of the workflow sees to that.
const LOGS: &str = "{run}/{task}/{map_index}/attempt-{attempt}.log";

const AFTER_HELP: &str = "\
Files:
  With the default database, or one of PostgreSQL: ./stationmaster-work/<workflow>/{logs,data}
  With --db FILE:                                  FILE-work/{logs,data}
  logs/<run>/<task>[/<map index>]/attempt-<n>.log   output of a command, pokes of a sensor
  data/<run>/                                       the working directory of the commands

Commands find RUN_ID, TASK, ATTEMPT, MAP_INDEX (mapped tasks) and WORKFLOW_DIR in their environment.

Exit codes:
  0    the run ended, no task failed
  1    a task failed, or the program could not go on
  2    bad input: nothing was run
  130  interrupted: the same command resumes the run";

impl Cli {
    pub(crate) fn workflow_file(&self) -> PathBuf {
        match &self.workflow {
            Some(file) => file.clone(),
            None => {
                let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(DEFAULT_WORKFLOW);
                if shipped.exists() { shipped } else { PathBuf::from(DEFAULT_WORKFLOW) }
            }
        }
    }

    pub(crate) fn places(&self, workflow: &str) -> Result<Places, Trouble> {
        let named = self.db.as_deref().map(|db| Database::named(db, &self.schema));
        let work: PathBuf = match &named {
            Some(Database::File(file)) => {
                let mut work: OsString = file.clone().into_os_string();
                work.push("-work");
                work.into()
            }
            Some(Database::Postgres { .. }) | None => Path::new("stationmaster-work").join(workflow),
        };
        // Absolute and UTF-8: sensors carry the paths of files, and another process may poke them.
        match std::path::absolute(&work) {
            Ok(work) if work.to_str().is_some() => {
                let database = named.unwrap_or_else(|| Database::File(work.join("stationmaster.db")));
                let logs = FileLog::new(work.join("logs"), LOGS)
                    .map_err(|error| Trouble::input(error.to_string()))?;
                Ok(Places { database, work, logs })
            }
            _ => Err(Trouble::input(format!("{} is no path in UTF-8: give another --db", work.display()))),
        }
    }
}

/// Where the files of a workflow lie.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) database: Database,
    pub(crate) work: PathBuf,
    pub(crate) logs: FileLog,
}

impl Places {
    /// The working directory of a run's commands.
    pub(crate) fn data(&self, run: &str) -> PathBuf {
        self.work.join("data").join(run)
    }

    /// The log of one attempt.
    pub(crate) fn log(&self, task: &TaskKey, attempt: u32) -> PathBuf {
        self.logs.path(task, attempt)
    }
}
