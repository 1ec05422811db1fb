//! The commands that show something, in one file each.

mod audit;
mod before;
mod explain;
mod feed;
mod limits;
mod mapped;
mod pools;
mod preview;
mod queues;
mod runs;
mod sensors;
mod shares;
mod sizes;
mod task;
mod tasks;
mod workers;

use std::io;

use serde_json::json;
use stationmaster::TaskKey;
use stationmaster::run::{RunKey, SeriesBy};
use stationmaster::store::Store;

use crate::args::{By, Command};
use crate::failure::Failure;
use crate::key;
use crate::screen::Screen;

pub use mapped::hint;
pub use tasks::walk;

/// Why nothing is shown.
#[derive(Debug)]
pub enum Stop {
    Store(stationmaster::Error),
    Other(Failure),
}

impl<E: Into<stationmaster::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Store(error) => error.into(),
            Stop::Other(failure) => failure,
        }
    }
}

/// Converts an error of the output.
fn output(error: io::Error) -> Stop {
    Stop::Other(error.into())
}

/// Whether anything was found.
type Found = Result<bool, Stop>;

/// A command that shows something, and the state that it keeps between rounds.
pub struct View<'a> {
    command: &'a Command,
    tasks: Vec<TaskKey>,
    runs: Vec<RunKey>,
    /// The event after which the feed continues.
    after: u64,
}

impl<'a> View<'a> {
    /// Reads the keys among the arguments, once.
    pub fn new(command: &'a Command) -> Result<Self, Failure> {
        let mut view = Self { command, tasks: Vec::new(), runs: Vec::new(), after: 0 };
        match command {
            Command::Task(keys) | Command::Explain(keys) => view.tasks = key::tasks(&keys.key)?,
            Command::Sensors { key, .. } if !key.is_empty() => view.tasks = key::tasks(key)?,
            Command::Runs { key } => view.runs = key::runs(key)?,
            Command::Feed { after, .. } => view.after = *after,
            Command::Active { per, by, page, .. }
                if page.is_sized() && (per.is_some() || by.is_some()) && *by != Some(By::User) =>
            {
                let why = "--limit and --all are for a list of runs, and for --by user";
                return Err(Failure::Usage(why.into()));
            }
            _ => {}
        }
        Ok(view)
    }

    pub fn show(&mut self, store: &dyn Store, screen: &mut Screen) -> Found {
        match self.command {
            Command::Tasks { count: true, filter, .. } => tasks::count(store, screen, filter),
            Command::Tasks { filter, page, .. } => {
                tasks::list(store, screen, &filter.query(screen.now), page)
            }
            Command::Task(_) => task::show(store, screen, &self.tasks),
            Command::Pools { names } => pools::show(store, screen, names),
            Command::Queues { names } => queues::show(store, screen, names),
            Command::Limits { keys } => limits::show(store, screen, keys),
            Command::Shares { keys, limit } => shares::show(store, screen, keys, *limit),
            Command::Sizes => sizes::show(store, screen),
            Command::Explain(_) => explain::show(store, screen, &self.tasks),
            Command::Preview { budget, serves, at } => {
                preview::show(store, screen, *budget, serves, at.at(screen.now))
            }
            Command::Sensors { key, .. } if !key.is_empty() => sensors::of(store, screen, &self.tasks),
            Command::Sensors { filter, page, .. } => sensors::list(store, screen, &filter.sensing(), page),
            Command::Workers { name: None, .. } => workers::list(store, screen),
            Command::Workers { name: Some(name), limit } => workers::of(store, screen, name, *limit),
            Command::Runs { .. } => runs::of(store, screen, &self.runs),
            Command::Active { from, to, namespace, workflow, status, user, method, count, per, by, page } => {
                let window = runs::Window { from: *from, to: *to, namespace, workflow, status, user, method };
                let query = window.query(screen.now);
                if *count {
                    runs::count(store, screen, &query)
                } else if per.is_some() || by.is_some() {
                    let groups = by.map_or(SeriesBy::Nothing, |by| by.groups(page));
                    runs::series(store, screen, query, *per, groups)
                } else {
                    runs::active(store, screen, query, page)
                }
            }
            Command::Feed { consumers: true, .. } => feed::consumers(store, screen),
            Command::Feed { limit, .. } => feed::list(store, screen, &mut self.after, *limit),
            Command::Audit => audit::show(store, screen),
            // The other commands change something.
            _ => Ok(false),
        }
    }
}

/// Says where the list continues.
fn goes_on(screen: &mut Screen, next: &str) {
    if screen.is_json() {
        screen.line(&json!({ "next": next }));
    } else {
        screen.say(&format!("There is more: add --all, or --after {next}"));
    }
}

/// Says that there is nothing to show.
fn nothing(screen: &mut Screen, what: &str) -> Found {
    if !screen.is_json() {
        screen.say(what);
    }
    Ok(false)
}
