//! The host's poke, and its registration.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use crate::base::setters;
use crate::bounds::MAX_TEXT_BYTES;
use crate::canonical::PokeContext;
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::sensor::{PokeOutcome, SensorRecord};
use crate::time::Timestamp;

/// The longest message of a poke that is stored, in characters.
const MAX_MESSAGE_CHARS: usize = 16 * 1024;

/// The default for the most futures of a kind in flight.
const FUTURES_AT_ONCE: usize = 1_000;

/// Checks whether the condition of a kind of sensor is met. The host implements one per kind.
///
/// A poke runs on a thread of the poker. Give the calls that it makes their own timeouts. A poke that passes
/// its deadline counts as [`PokeOutcome::Unreachable`], and its thread is lost until it returns. A panic is
/// caught and counts as `Unreachable`, too.
///
/// # Examples
///
/// ```
/// use stationmaster::sensor::PokeOutcome;
/// use stationmaster::service::{Poke, PokeRequest};
///
/// struct FileExists;
///
/// impl Poke for FileExists {
///     fn poke(&self, request: &PokeRequest) -> PokeOutcome {
///         match request.context.to_value().get("path").and_then(|path| path.as_str()) {
///             Some(path) if std::path::Path::new(path).exists() => PokeOutcome::Landed(None),
///             Some(_) => PokeOutcome::NotYet,
///             None => PokeOutcome::Failed("the context has no \"path\"".into()),
///         }
///     }
/// }
/// ```
pub trait Poke: Send + Sync {
    /// Pokes once.
    fn poke(&self, request: &PokeRequest) -> PokeOutcome;
}

impl<F: Fn(&PokeRequest) -> PokeOutcome + Send + Sync> Poke for F {
    fn poke(&self, request: &PokeRequest) -> PokeOutcome {
        self(request)
    }
}

/// Checks many targets of a kind in one call: one query, one directory listing, one request.
///
/// # Examples
///
/// ```
/// use std::collections::HashSet;
/// use stationmaster::sensor::PokeOutcome;
/// use stationmaster::service::{PokeMany, PokeRequest};
///
/// struct Partitions;
///
/// impl PokeMany for Partitions {
///     fn poke_many(&self, requests: &[PokeRequest]) -> Vec<PokeOutcome> {
///         let there: HashSet<&str> = HashSet::new(); // one query for all of them
///         let answer = |request: &PokeRequest| match there.contains(request.context.as_str()) {
///             true => PokeOutcome::Landed(None),
///             false => PokeOutcome::NotYet,
///         };
///         requests.iter().map(answer).collect()
///     }
/// }
/// ```
pub trait PokeMany: Send + Sync {
    /// Pokes once for each request, and returns the outcomes in their order. A wrong number of outcomes, or a
    /// panic, counts as [`PokeOutcome::Unreachable`] for all of them.
    fn poke_many(&self, requests: &[PokeRequest]) -> Vec<PokeOutcome>;
}

impl<F: Fn(&[PokeRequest]) -> Vec<PokeOutcome> + Send + Sync> PokeMany for F {
    fn poke_many(&self, requests: &[PokeRequest]) -> Vec<PokeOutcome> {
        self(requests)
    }
}

/// What a poke checks.
///
/// Cheap to clone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PokeRequest {
    /// The kind.
    pub kind: SensorKind,
    /// What to check, as the sensors describe it.
    pub context: PokeContext,
    /// How many sensors share the outcome.
    pub sensors: usize,
    /// The instant of the tick that asked for it.
    pub now: Timestamp,
}

impl PokeRequest {
    /// Creates a request for one sensor, at this instant. For hosts that call a [`Poke`] themselves, for
    /// example because a task may not register
    /// ([`Registered::host_pokes`](crate::ops::Registered::host_pokes)).
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::canonical::PokeContext;
    /// use stationmaster::id::SensorKind;
    /// use stationmaster::sensor::PokeOutcome;
    /// use stationmaster::service::{Poke, PokeRequest};
    /// use stationmaster::Timestamp;
    ///
    /// let poke = |request: &PokeRequest| match request.sensors {
    ///     2 => PokeOutcome::Landed(Some(request.context.as_str().to_owned())),
    ///     _ => PokeOutcome::NotYet,
    /// };
    /// let (kind, context) = (SensorKind::new("file")?, PokeContext::from_json(r#"{"path": "in.csv"}"#)?);
    /// let request = PokeRequest::new(kind, context, Timestamp::UNIX_EPOCH);
    /// assert_eq!((request.sensors, poke.poke(&request)), (1, PokeOutcome::NotYet));
    /// assert_eq!(poke.poke(&request.sensors(2)), PokeOutcome::Landed(Some(r#"{"path":"in.csv"}"#.into())));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn new(kind: SensorKind, context: PokeContext, now: impl Into<Timestamp>) -> Self {
        Self { kind, context, sensors: 1, now: now.into() }
    }

    /// Hashes kind and context. Shards are assigned, and pokes spread over time, by this hash.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new(&self.kind, &self.context)
    }

    setters! {
        /// Sets how many sensors share the outcome.
        sensors: usize;
    }
}

/// Receives every outcome, once per sensor that shares it, and other events of sensors, so that each task's
/// log can record them. A panic is caught and counted
/// ([`PokeReport::log_panics`](super::PokeReport::log_panics)). The tick calls it, so it should be quick.
pub trait PokeLog: Send + Sync {
    /// Records that the sensor's target was poked. The tick of this instant processed the outcome.
    fn poked(&self, sensor: &SensorRecord, now: Timestamp, answer: &PokeOutcome);

    /// Records what else happened to the sensor at this instant, in words: it registered, its worker changed, an
    /// outage began or ended, it ended. Does nothing unless implemented.
    fn noted(&self, sensor: &SensorRecord, at: Timestamp, what: &str) {
        let _ = (sensor, at, what);
    }
}

/// How a kind is poked: in calls of at most this many targets. All of a host's pokes are registered as one of these.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(super) at_most: usize,
    pub(super) how: How,
}

/// Where a call runs.
#[derive(Clone)]
pub(super) enum How {
    /// On a thread of the poker.
    Threads(Arc<dyn PokeMany>),
    /// On the host's runtime.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    Runtime(Arc<dyn AsyncProbe>),
}

/// A future whose type is erased.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A poke that is a future, and the runtime on which it runs.
#[cfg_attr(not(feature = "tokio"), allow(unreachable_pub))]
pub(crate) trait AsyncProbe: Send + Sync {
    /// Returns a future that pokes once for each request. The host's code runs only when it is polled.
    fn look(&self, requests: Vec<PokeRequest>) -> BoxFuture<Vec<PokeOutcome>>;

    /// Spawns a task on the runtime. Drops it if the runtime was shut down.
    fn spawn(&self, task: BoxFuture<()>);

    /// Runs this within the runtime's context.
    fn within(&self, work: &mut dyn FnMut());
}

/// Pokes one target in a call.
struct Each<P>(P);

impl<P: Poke> PokeMany for Each<P> {
    fn poke_many(&self, requests: &[PokeRequest]) -> Vec<PokeOutcome> {
        requests.iter().map(|request| self.0.poke(request)).collect()
    }
}

impl Probe {
    pub(super) fn one(poke: impl Poke + 'static) -> Self {
        Self::many(Each(poke), NonZeroUsize::MIN)
    }

    pub(super) fn many(poke: impl PokeMany + 'static, at_most: NonZeroUsize) -> Self {
        Self { at_most: at_most.get(), how: How::Threads(Arc::new(poke)) }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn future(probe: impl AsyncProbe + 'static, at_most: NonZeroUsize) -> Self {
        Self { at_most: at_most.get(), how: How::Runtime(Arc::new(probe)) }
    }

    /// Returns the default for the number of concurrent calls. Threads limit themselves.
    pub(super) fn usual_at_once(&self) -> usize {
        match self.how {
            How::Threads(_) => usize::MAX,
            How::Runtime(_) => FUTURES_AT_ONCE,
        }
    }
}

/// Pokes once for each request.
pub(super) fn look(poke: &dyn PokeMany, requests: &[PokeRequest]) -> Vec<PokeOutcome> {
    checked(catch_unwind(AssertUnwindSafe(|| poke.poke_many(requests))), requests.len())
}

/// Returns the outcomes of this many requests, in a form that the store accepts.
pub(super) fn checked(answers: std::thread::Result<Vec<PokeOutcome>>, requests: usize) -> Vec<PokeOutcome> {
    let wrong = match answers {
        Ok(answers) if answers.len() == requests => return answers.into_iter().map(bounded).collect(),
        Ok(answers) => PokeOutcome::Unreachable(format!(
            "the poke answered {} of {requests} requests: poke_many must answer each",
            answers.len(),
        )),
        Err(panic) => panicked(&*panic),
    };
    vec![wrong; requests]
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> PokeOutcome {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    bounded(PokeOutcome::Unreachable(format!("the poke panicked: {}", text.unwrap_or("no message"))))
}

/// Returns the outcome with texts that the store accepts.
fn bounded(answer: PokeOutcome) -> PokeOutcome {
    match answer {
        PokeOutcome::Landed(Some(value)) if value.len() > MAX_TEXT_BYTES => {
            let bytes = value.len();
            PokeOutcome::Failed(format!(
                "landed with {bytes} bytes, more than {MAX_TEXT_BYTES}: land with a reference"
            ))
        }
        PokeOutcome::Failed(message) => PokeOutcome::Failed(short(message)),
        PokeOutcome::Unreachable(message) => PokeOutcome::Unreachable(short(message)),
        PokeOutcome::Progress(message) => PokeOutcome::Progress(short(message)),
        other => other,
    }
}

fn short(message: String) -> String {
    match message.len() > MAX_MESSAGE_CHARS {
        true => message.chars().take(MAX_MESSAGE_CHARS).collect(),
        false => message,
    }
}
