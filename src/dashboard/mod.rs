//! Pages that show a store in a browser: an [`axum`] router that a host mounts in its own web service, under any path
//! and behind its own authentication. `stationmaster serve` runs the same router on its own.
//!
//! Nothing can be changed until [`Dashboard::allow_changes`] says who may. Payloads, values, contexts of
//! sensors and attributes of runs are hidden until [`Dashboard::show_payloads`]. A host should admit only
//! known users, because the pages show the names of all tasks.
//!
//! Pages are HTML and load nothing from other sites. They can be read without JavaScript. With JavaScript they stay up
//! to date. A page that many people keep open is computed at most once a second, and at most four threads call the
//! store.
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//! use stationmaster::dashboard::{Dashboard, axum};
//! use stationmaster::store::MemoryStore;
//!
//! let store = Arc::new(MemoryStore::new());
//! let app: axum::Router = axum::Router::new().nest_service("/ops", Dashboard::new(store).router());
//! # drop(app);
//! ```

mod answer;
mod cache;
mod change;
mod forgery;
mod key;
mod page;
mod params;
mod routes;
mod tasks;
mod trouble;
mod words;

use std::fmt;
use std::sync::Arc;

/// The version of axum that the router is built with.
pub use axum;
use axum::http::request::Parts;

use crate::clock::{Clock, SystemClock};
use crate::store::Store;

type Who = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;
type Log = Arc<dyn Fn(&Change) + Send + Sync>;

/// Builds the router for the pages of a store.
///
/// # Examples
///
/// A host that identifies its users by a header that its proxy sets:
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::dashboard::Dashboard;
/// use stationmaster::store::MemoryStore;
///
/// let router = Dashboard::new(Arc::new(MemoryStore::new()))
///     .allow_changes(|request| Some(request.headers.get("x-user")?.to_str().ok()?.to_owned()))
///     .log(|change| eprintln!("{change}"))
///     .router();
/// # drop(router);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Dashboard {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    who: Option<Who>,
    log: Option<Log>,
    shows_payloads: bool,
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("store", &self.store)
            .field("allows_changes", &self.who.is_some())
            .field("shows_payloads", &self.shows_payloads)
            .finish_non_exhaustive()
    }
}

/// A change that was made on a page, as passed to [`Dashboard::log`]. Its `Display` is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Who made it, as [`Dashboard::allow_changes`] named them.
    pub who: String,
    /// What was asked for: `cancel`, `retry`, `delete`, `pause` or `resume`.
    pub verb: &'static str,
    /// The task, queue, pool, limit or family to change.
    pub subject: String,
    /// The store's result.
    pub result: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use words::visible;

        let Self { who, verb, subject, result } = self;
        write!(f, "{}: {verb} {}: {}", visible(who), visible(subject), visible(result))
    }
}

impl Dashboard {
    /// Creates pages of this store that change nothing and hide payloads.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, clock: Arc::new(SystemClock), who: None, log: None, shows_payloads: false }
    }

    /// Sets the clock that decides leases in the store. Default: the machine's clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Lets users whom `who` names cancel, retry and delete tasks, and pause and resume queues, pools and limits.
    /// `who` is called with the request for the change, after the host's own authentication. It returns `None` for
    /// users who may not change anything.
    ///
    /// A change needs a form of these pages in the same browser, and a request from the same site.
    pub fn allow_changes(mut self, who: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.who = Some(Arc::new(who));
        self
    }

    /// Sets a callback for each change, called after it was made, once per task. With the feature `tracing` each change
    /// is also an event of target `stationmaster::dashboard`. A cancelled task's message names who cancelled it.
    pub fn log(mut self, log: impl Fn(&Change) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// Shows payloads and values of tasks, contexts of sensors and attributes of runs, or hides them.
    pub fn show_payloads(mut self, shows: bool) -> Self {
        self.shows_payloads = shows;
        self
    }

    /// Returns the router. Mount it with `nest_service`, or serve it directly. If it is mounted with `nest`, axum does
    /// not route its own path with a trailing slash to it.
    pub fn router(self) -> axum::Router {
        routes::router(self)
    }
}
