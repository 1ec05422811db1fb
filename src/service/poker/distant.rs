//! Async pokes: what the poker requires of them, on any runtime.

use std::pin::Pin;
use std::sync::Arc;

use super::probe::{PokeRequest, Probe};
use crate::sensor::PokeOutcome;

/// The most futures of a kind in flight at once, unless the host sets another limit.
const FUTURES_AT_ONCE: usize = 1_000;

/// A future whose type is erased.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A poke that is a future, and the runtime on which it runs.
pub(crate) trait AsyncProbe: Send + Sync {
    /// Returns a future that looks once for each request. The call itself runs none of the host's code.
    fn look(&self, requests: Vec<PokeRequest>) -> BoxFuture<Vec<PokeOutcome>>;

    /// Spawns a task on the runtime. Drops it if the runtime was shut down.
    fn spawn(&self, task: BoxFuture<()>);

    /// Runs this within the runtime's context.
    fn within(&self, work: &mut dyn FnMut());
}

/// How a kind is poked.
#[derive(Clone)]
pub(super) enum Way {
    /// On threads of the poker.
    Threads(Probe),
    /// By futures, each for at most this many targets.
    Futures(Arc<dyn AsyncProbe>, usize),
}

impl Way {
    /// Returns how many calls run at once, unless the host sets another limit. Threads limit themselves.
    pub(super) fn usual_at_once(&self) -> usize {
        match self {
            Self::Threads(_) => usize::MAX,
            Self::Futures(..) => FUTURES_AT_ONCE,
        }
    }
}

#[cfg(feature = "tokio")]
impl super::Poker {
    /// Sets the poke of this kind, which creates such futures for at most `at_most` targets each.
    pub(crate) fn kind_of_futures(
        self,
        kind: &crate::id::SensorKind,
        probe: Arc<dyn AsyncProbe>,
        at_most: std::num::NonZeroUsize,
    ) -> Self {
        self.way(kind, Way::Futures(probe, at_most.get()))
    }
}
