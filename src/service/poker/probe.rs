//! One poke: the host's part.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use crate::canonical::PokeContext;
use crate::id::SensorKind;
use crate::sensor::{Poked, SensorRecord};

/// Looks whether what a kind of sensor waits for has come. The host writes one per kind.
///
/// A poke should be quick and must not wait for ever: the tick ends when all its pokes have answered, and until then no
/// sensor of this worker lands or times out. Give what it calls a timeout of its own.
///
/// # Examples
///
/// ```
/// use stationmaster::sensor::Poked;
/// use stationmaster::service::{Poke, PokeRequest};
///
/// struct FileExists;
///
/// impl Poke for FileExists {
///     fn poke(&self, request: &PokeRequest<'_>) -> Poked {
///         match request.context.to_value().get("path").and_then(|path| path.as_str()) {
///             Some(path) if std::path::Path::new(path).exists() => Poked::Landed(None),
///             Some(_) => Poked::NotYet,
///             None => Poked::Failed("the context has no \"path\"".into()),
///         }
///     }
/// }
/// ```
pub trait Poke: Send + Sync {
    /// Looks once.
    fn poke(&self, request: &PokeRequest<'_>) -> Poked;
}

impl<F: Fn(&PokeRequest<'_>) -> Poked + Send + Sync> Poke for F {
    fn poke(&self, request: &PokeRequest<'_>) -> Poked {
        self(request)
    }
}

/// What a poke is asked to look at.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PokeRequest<'a> {
    /// The kind.
    pub kind: &'a SensorKind,
    /// What to look at, as the sensors said it.
    pub context: &'a PokeContext,
    /// How many sensors share the answer.
    pub sensors: usize,
    /// The instant of the tick.
    pub now: DateTime<Utc>,
}

/// Hears of every poke, once per sensor that shares it: for a log at the place where that task's log belongs. A panic of
/// it is caught and passed over.
pub trait PokeLog: Send + Sync {
    /// The sensor's target was poked in the tick of this instant, with this answer.
    fn poked(&self, sensor: &SensorRecord, now: DateTime<Utc>, answer: &Poked);
}

/// Makes pokes on at most `threads` threads, this one among them, and begins none after the deadline. Answers in the order
/// of the requests; none for those that were not made.
pub(super) fn poke_all(
    jobs: &[(Arc<dyn Poke>, PokeRequest<'_>)],
    threads: usize,
    deadline: Instant,
) -> Vec<Option<Poked>> {
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Option<Poked>>> = Mutex::new(vec![None; jobs.len()]);
    let work = || {
        while Instant::now() < deadline {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return };
            let answer = poke_one(job);
            if let Some(place) = answers.lock().get_mut(at) {
                *place = Some(answer);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            // If the system has no more threads, the others do the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    answers.into_inner()
}

fn poke_one((poke, request): &(Arc<dyn Poke>, PokeRequest<'_>)) -> Poked {
    catch_unwind(AssertUnwindSafe(|| poke.poke(request))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Poked::Unreachable(format!("the poke panicked: {}", text.as_deref().unwrap_or("no message")))
    })
}
