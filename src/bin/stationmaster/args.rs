//! The command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use stationmaster::id::{Holder, LimitKey, Namespace, PoolName, QueueName, RunId, WorkflowId};
use stationmaster::run::{RunStatus, SeriesBy, StartMethod};
use stationmaster::task::{TaskQuery, TaskState};
use stationmaster::{Error, Timestamp};

use crate::times::{Moment, length_of};

/// Shows what is in a store of stationmaster, and changes it.
#[derive(Debug, Parser)]
#[command(
    name = "stationmaster",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 fine; 1 nothing was found, an audit found a wrong counter, or not everything was changed; \
                  2 the command cannot be run like this; 3 the store cannot be opened, read or written.\n\n\
                  Example:\n  stationmaster --db jobs.db tasks --state failed --ended-since 24h"
)]
pub struct Cli {
    #[command(flatten)]
    pub options: Options,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes, under a heading of its own: a command's own options then stand together.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
pub struct Options {
    /// The store: a SQLite file, or postgres://USER@HOST/DATABASE. A password is safer in the variable than among
    /// the arguments, which others on the machine see
    #[arg(long, global = true, value_name = "FILE|URL", env = "STATIONMASTER_DB", hide_env_values = true)]
    pub db: Option<String>,
    /// The prefix of the tables in a SQLite file
    #[arg(long, global = true, default_value = "sm_")]
    pub prefix: String,
    /// The schema of the tables in PostgreSQL
    #[arg(long, global = true, default_value = "stationmaster")]
    pub schema: String,
    /// Prints one JSON object a line, with the names of the library's own types
    #[arg(long, global = true)]
    pub json: bool,
    /// Shows it again every two seconds, or this often, until the terminal or the reader goes away
    #[arg(long, global = true, value_name = "LENGTH", num_args = 0..=1, require_equals = true,
          default_missing_value = "2s", value_parser = interval)]
    pub watch: Option<Duration>,
    /// Shows payloads, values, contexts of sensors and attributes of runs, which are hidden otherwise
    #[arg(long, global = true)]
    pub payload: bool,
    /// How many columns tables have. By default those of the terminal, and any number elsewhere
    #[arg(long, global = true, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..))]
    pub width: Option<u16>,
    /// Whether tables are coloured
    #[arg(long, global = true, default_value = "auto")]
    pub color: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// Shorter ones would keep a store busy with looking.
fn interval(text: &str) -> Result<Duration, String> {
    let length = length_of(text)?;
    match length < Duration::from_millis(100) {
        true => Err("it is shown again at most ten times a second".into()),
        false => Ok(length),
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists tasks, a page at a time, or counts them
    ///
    /// Ready tasks are listed in the order of admission, not by age.
    #[command(after_help = "Examples:\n  stationmaster --db jobs.db tasks --state leased --pool db\n  \
        stationmaster --db jobs.db tasks --state failed --ended-since 00:00\n  \
        stationmaster --db jobs.db tasks --count")]
    Tasks {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        page: Page,
        /// Counts the tasks of each state instead, up to 100,000
        #[arg(long, conflicts_with_all = ["all", "after", "limit"])]
        count: bool,
    },
    /// Shows one task: what it asks for, what it waits for, its attempts and its sensor
    #[command(after_help = "Example:\n  stationmaster --db jobs.db task prod nightly 2026-01-31 load")]
    Task(Keys),
    /// Lists pools, with what their tasks are doing
    #[command(after_help = "Example:\n  stationmaster --db jobs.db pools db")]
    Pools {
        /// These pools; all if none is named
        names: Vec<PoolName>,
    },
    /// Lists queues, with what waits in them and who serves them
    #[command(after_help = "Example:\n  stationmaster --db jobs.db queues gpu")]
    Queues {
        /// These queues; all if none is named
        names: Vec<QueueName>,
    },
    /// Lists limits that are defined, families included, or shows these keys
    #[command(after_help = "Example:\n  stationmaster --db jobs.db limits tenant/acme")]
    Limits {
        /// These keys, defined or not; all that are defined if none is named
        keys: Vec<LimitKey>,
    },
    /// Lists what each share holds of its pools, the part that it should hold, and what waits
    #[command(after_help = "Example:\n  stationmaster --db jobs.db shares tenant/acme")]
    Shares {
        /// These keys; all shares with ready or leased tasks if none is named
        keys: Vec<LimitKey>,
        /// How many to list, those that hold the most slots first
        #[arg(long, default_value_t = 50, value_parser = limit)]
        limit: usize,
    },
    /// Shows what the store takes on disk, the largest part first
    #[command(after_help = "Example:\n  stationmaster --db jobs.db sizes")]
    Sizes,
    /// Says all that keeps tasks from running
    #[command(
        after_help = "Examples:\n  stationmaster --db jobs.db explain prod nightly 2026-01-31 load\n  \
        stationmaster --db jobs.db --json tasks --state waiting | stationmaster --db jobs.db explain -"
    )]
    Explain(Keys),
    /// Shows what the next tick would admit, and why the rest waits. Changes nothing
    #[command(after_help = "Example:\n  stationmaster --db jobs.db preview --budget 10 --serves gpu,cpu")]
    Preview {
        /// How many tasks the tick may admit
        #[arg(long, default_value_t = 100)]
        budget: usize,
        /// The queues that it serves, with commas between them; all if none is named
        #[arg(long, value_name = "QUEUE", value_delimiter = ',')]
        serves: Vec<QueueName>,
        /// The instant of the tick
        #[arg(long, default_value = "now")]
        at: Moment,
    },
    /// Lists tasks that wait as sensors, or the sensor of a task
    #[command(after_help = "Example:\n  stationmaster --db jobs.db sensors --queue gpu")]
    Sensors {
        #[command(flatten)]
        filter: Lanes,
        #[command(flatten)]
        page: Page,
        /// The sensor of this task: NAMESPACE WORKFLOW RUN TASK [INDEX], or JSON
        #[arg(value_name = "KEY")]
        key: Vec<String>,
    },
    /// Lists who works on the store: admitters with their queues, workers of sensors with their shards
    #[command(after_help = "Examples:\n  stationmaster --db jobs.db workers\n  \
        stationmaster --db jobs.db workers worker-1")]
    Workers {
        /// Shows what this one holds
        name: Option<Holder>,
        /// At most this many of its leases
        #[arg(long, default_value_t = 50, value_parser = limit)]
        limit: usize,
    },
    /// Shows runs by key: NAMESPACE RUN, or JSON
    #[command(after_help = "Example:\n  stationmaster --db jobs.db runs prod nightly-1")]
    Runs {
        #[arg(value_name = "KEY", required = true)]
        key: Vec<String>,
    },
    /// Lists the runs that were active in a window, by default those that are now
    #[command(after_help = "Examples:\n  stationmaster --db jobs.db active --from 03:00 --to 04:00\n  \
        stationmaster --db jobs.db active --from 24h --count\n  \
        stationmaster --db jobs.db active --from 24h --per 1h --user ann\n  \
        stationmaster --db jobs.db active --from 7d --by user")]
    Active {
        /// The first instant of the window: a length ago (7d), a time of today in UTC (03:00), or a day and a time
        /// (2026-01-31T03:00)
        #[arg(long, value_name = "INSTANT", default_value = "now")]
        from: Moment,
        /// The first instant after it; by default right after the present
        #[arg(long, value_name = "INSTANT")]
        to: Option<Moment>,
        /// Only these namespaces
        #[arg(long)]
        namespace: Vec<Namespace>,
        /// Only runs of these workflows
        #[arg(long)]
        workflow: Vec<WorkflowId>,
        /// Only runs of this status: pending, starting, running, suspended, resuming, completed, failed, killed,
        /// rejected
        #[arg(long, value_parser = status)]
        status: Vec<RunStatus>,
        /// Only runs of these users
        #[arg(long)]
        user: Vec<String>,
        /// Only runs that were started like this: manual, scheduled, triggered
        #[arg(long, value_parser = method)]
        method: Vec<StartMethod>,
        /// Counts them instead
        #[arg(long, conflicts_with_all = ["all", "after", "limit"])]
        count: bool,
        /// Shows active runs and node-hours instead, a line for each such length of the window
        #[arg(long, value_name = "LENGTH", value_parser = length_of, conflicts_with_all = ["after", "count"])]
        per: Option<Duration>,
        /// Shows active runs and node-hours of each of these, of the whole window or with --per. Users with the most
        /// node-hours come first, up to --limit or --all of them, and the others as one
        #[arg(long, conflicts_with_all = ["after", "count"])]
        by: Option<By>,
        #[command(flatten)]
        page: Page,
    },
    /// Lists what the feed tells, or its consumers
    #[command(after_help = "Examples:\n  stationmaster --db jobs.db feed --after 1200 --watch\n  \
        stationmaster --db jobs.db feed --consumers")]
    Feed {
        /// Lists what follows this event
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
        /// At most this many events
        #[arg(long, default_value_t = 50, value_parser = limit)]
        limit: usize,
        /// Lists the consumers instead
        #[arg(long)]
        consumers: bool,
    },
    /// Compares all counters with what they count, and says what no one looks after. Reads every task
    ///
    /// Also named are queues that no one serves, sensors that no one pokes, and a lease that expired. These do not
    /// change the exit code.
    #[command(after_help = "Example:\n  stationmaster --db jobs.db audit || echo 'look at it'")]
    Audit,
    /// Serves pages that show the store in a browser
    #[cfg(feature = "dashboard")]
    #[command(after_help = "Examples:\n  stationmaster --db jobs.db serve\n  \
        stationmaster --db jobs.db serve --allow-changes --listen 127.0.0.1:9000")]
    Serve(crate::serve::Serve),
    /// Cancels tasks: at once what waits, within a grace what runs
    #[command(after_help = "Examples:\n  stationmaster --db jobs.db cancel prod nightly 2026-01-31 load\n  \
        stationmaster --db jobs.db cancel --state waiting --queue gpu --message 'no GPUs today' --yes")]
    Cancel {
        #[command(flatten)]
        pick: Pick,
        /// How long holders of leases have to stop
        #[arg(long, default_value = "60s", value_parser = length_of)]
        grace: Duration,
        /// Why, for people
        #[arg(long, default_value = "cancelled by stationmaster cancel")]
        message: String,
        #[command(flatten)]
        sure: Sure,
    },
    /// Pauses queues, pools, limits or families: nothing of them is granted until they are resumed
    ///
    /// What runs goes on. A queue is drained when `queues` counts no lease in it.
    #[command(after_help = "Example:\n  stationmaster --db jobs.db pause queue gpu")]
    Pause {
        #[command(flatten)]
        subjects: Subjects,
        #[command(flatten)]
        sure: Sure,
    },
    /// Resumes what was paused
    #[command(after_help = "Example:\n  stationmaster --db jobs.db resume queue gpu")]
    Resume {
        #[command(flatten)]
        subjects: Subjects,
        #[command(flatten)]
        sure: Sure,
    },
    /// Runs tasks again that ended, and at once those that wait to be tried again
    #[command(after_help = "Examples:\n  stationmaster --db jobs.db retry prod nightly 2026-01-31 load\n  \
        stationmaster --db jobs.db retry --state failed --ended-since 1h --yes")]
    Retry {
        #[command(flatten)]
        pick: Pick,
        #[command(flatten)]
        sure: Sure,
    },
    /// Changes what waiting tasks ask for
    #[command(
        after_help = "Example:\n  stationmaster --db jobs.db change --state waiting --queue gpu --set-queue cpu"
    )]
    Change {
        #[command(flatten)]
        pick: Pick,
        #[command(flatten)]
        edit: Edit,
        #[command(flatten)]
        sure: Sure,
    },
    /// Deletes tasks that wait or ended
    #[command(
        after_help = "Example:\n  stationmaster --db jobs.db delete --state failed --namespace test --yes"
    )]
    Delete {
        #[command(flatten)]
        pick: Pick,
        #[command(flatten)]
        sure: Sure,
    },
}

/// What tells the runs of a window apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    User,
    Method,
    Namespace,
    Workflow,
}

impl By {
    pub fn groups(self, page: &Page) -> SeriesBy {
        match self {
            Self::User => SeriesBy::User { most: if page.all { usize::MAX } else { page.limit() } },
            Self::Method => SeriesBy::Method,
            Self::Namespace => SeriesBy::Namespace,
            Self::Workflow => SeriesBy::Workflow,
        }
    }
}

/// Keys of tasks.
#[derive(Debug, Args)]
pub struct Keys {
    /// NAMESPACE WORKFLOW RUN TASK [INDEX]; or any number of keys as JSON; or - for a key on each line of the input
    #[arg(value_name = "KEY", required = true)]
    pub key: Vec<String>,
}

/// What needs of tasks and parts of their keys are asked for.
#[derive(Debug, Clone, Args)]
pub struct Lanes {
    /// Only of this namespace
    #[arg(long)]
    pub namespace: Option<Namespace>,
    /// Only of this workflow; needs a namespace
    #[arg(long)]
    pub workflow: Option<WorkflowId>,
    /// Only of this run; needs a workflow
    #[arg(long)]
    pub run: Option<RunId>,
    /// Only of this queue
    #[arg(long)]
    pub queue: Option<QueueName>,
    /// Only those that need slots of this pool
    #[arg(long)]
    pub pool: Option<PoolName>,
    /// Only those that carry this limit key
    #[arg(long, value_name = "KEY")]
    pub limit_key: Option<LimitKey>,
}

/// Which tasks are asked for.
#[derive(Debug, Clone, Args)]
pub struct Filter {
    /// Only in these states: scheduled, queued, running, up_for_retry, sensing, success, failed, skipped, cancelled;
    /// waiting, leased or ended stand for several
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = states)]
    pub state: Vec<States>,
    #[command(flatten)]
    pub lanes: Lanes,
    /// Only leased ones of this holder
    #[arg(long)]
    pub holder: Option<Holder>,
    /// Only those that wait for this instant or a later one
    #[arg(long, value_name = "INSTANT")]
    pub due_since: Option<Moment>,
    /// Only those that wait for an instant before this one
    #[arg(long, value_name = "INSTANT")]
    pub due_before: Option<Moment>,
    /// Only those that ended at this instant or later
    #[arg(long, value_name = "INSTANT", alias = "since")]
    pub ended_since: Option<Moment>,
}

/// The states that a word stands for.
pub type States = std::sync::Arc<[TaskState]>;

fn states(name: &str) -> Result<States, String> {
    let found = match name {
        "waiting" => TaskQuery::waiting().states,
        "leased" => TaskQuery::leased().states,
        "ended" => TaskQuery::ended().states,
        _ => TaskState::from_name(name).into_iter().collect(),
    };
    if found.is_empty() {
        let names = TaskState::ALL.map(TaskState::as_str).join(", ");
        return Err(format!("the states are {names}; and waiting, leased and ended"));
    }
    Ok(found.into())
}

fn status(name: &str) -> Result<RunStatus, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

fn method(name: &str) -> Result<StartMethod, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit @ 1..=TaskQuery::MOST) => Ok(limit),
        _ => Err(format!("a page has 1 to {} lines", TaskQuery::MOST)),
    }
}

impl Lanes {
    fn put_into(&self, mut query: TaskQuery) -> TaskQuery {
        let Self { namespace, workflow, run, queue, pool, limit_key } = self.clone();
        (query.namespace, query.workflow, query.run) = (namespace, workflow, run);
        (query.queue, query.pool, query.limit_key) = (queue, pool, limit_key);
        query
    }

    pub fn sensing(&self) -> TaskQuery {
        self.put_into(TaskQuery::sensing())
    }
}

impl Filter {
    /// Returns true if nothing is asked for in particular.
    pub fn is_empty(&self) -> bool {
        let Self { state, lanes, holder, due_since, due_before, ended_since } = self;
        let Lanes { namespace, workflow, run, queue, pool, limit_key } = lanes;
        let names = namespace.is_none() && workflow.is_none() && run.is_none();
        let needs = queue.is_none() && pool.is_none() && limit_key.is_none() && holder.is_none();
        let instants = due_since.is_none() && due_before.is_none() && ended_since.is_none();
        state.is_empty() && names && needs && instants
    }

    pub fn query(&self, now: Timestamp) -> TaskQuery {
        let mut query = self.lanes.put_into(TaskQuery::all());
        if !self.state.is_empty() {
            query.states = self.state.iter().flat_map(|states| states.iter().copied()).collect();
        }
        query.holder = self.holder.clone();
        let at = |moment: Option<Moment>| moment.map(|moment| moment.at(now));
        (query.due_since, query.due_before) = (at(self.due_since), at(self.due_before));
        query.ended_since = at(self.ended_since);
        query
    }
}

/// Which part of a list is shown.
#[derive(Debug, Clone, Args)]
pub struct Page {
    /// At most this many lines [default: 50]
    #[arg(long, value_parser = limit)]
    limit: Option<usize>,
    /// Goes on where the page before ended, which names this
    #[arg(long, value_name = "NEXT")]
    pub after: Option<String>,
    /// Shows the whole list, however long it is
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
}

impl Page {
    pub fn of(limit: usize) -> Self {
        Self { limit: Some(limit), after: None, all: false }
    }

    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(50)
    }

    /// Returns true if the length of the list was chosen.
    pub fn is_sized(&self) -> bool {
        self.all || self.limit.is_some()
    }
}

/// The tasks that are changed.
#[derive(Debug, Args)]
pub struct Pick {
    #[command(flatten)]
    pub filter: Filter,
    /// At most this many tasks, if they are picked by state and other filters
    #[arg(long, default_value_t = 1_000, value_parser = limit)]
    pub limit: usize,
    /// NAMESPACE WORKFLOW RUN TASK [INDEX]; or any number of keys as JSON; or - for a key on each line of the input
    #[arg(value_name = "KEY")]
    pub key: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Sure {
    /// Does not ask
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct Subjects {
    pub kind: SubjectKind,
    /// Their names; of a family, its prefix
    #[arg(required = true)]
    pub names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SubjectKind {
    Queue,
    Pool,
    /// A limit key
    Limit,
    /// All limit keys that begin with a prefix
    Family,
}

/// What is to be different.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = true)]
pub struct Edit {
    /// The queue they wait in
    #[arg(long, value_name = "QUEUE")]
    pub set_queue: Option<QueueName>,
    /// The priority; larger goes first. Not for a store whose priorities grow with the wait
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub set_priority: Option<i32>,
    /// The pool whose slots they need
    #[arg(long, value_name = "POOL")]
    pub set_pool: Option<PoolName>,
    /// How many slots of that pool they need
    #[arg(long, value_name = "NUMBER")]
    pub set_slots: Option<u32>,
    /// They do not start before this instant; `now` makes them ready
    #[arg(long, value_name = "INSTANT")]
    pub set_not_before: Option<Moment>,
}

/// Checks a query before the store is opened.
pub fn checked(query: TaskQuery) -> Result<TaskQuery, Error> {
    query.check()?;
    Ok(query)
}
