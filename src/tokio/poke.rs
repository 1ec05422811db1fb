//! Async pokes, on the host's runtime.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ::tokio::runtime::Handle;

use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::service::Poker;
use crate::service::poker::{AsyncProbe, BoxFuture, PokeRequest, Probe};

impl Poker {
    /// Sets the poke of this kind: a function from a request to a future, which runs as a task of this
    /// runtime and must not block it.
    ///
    /// At its deadline the future is dropped and counts as [`PokeOutcome::Unreachable`]. So does a panic,
    /// which is caught. When the poker is dropped or leaves, the future is dropped at its next await, too.
    ///
    /// At most 1,000 are in flight at once (Airflow: the triggerer's `default_capacity`), unless
    /// [`Poker::at_once`] sets another limit. They need none of the poker's threads. Blocking and async kinds
    /// can be mixed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stationmaster::sensor::PokeOutcome;
    /// use stationmaster::service::Poker;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::service::PokeRequest;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let poke = |_: PokeRequest| async { PokeOutcome::NotYet };
    /// let runtime = tokio::runtime::Handle::current();
    /// let poker = Poker::new(Arc::new(MemoryStore::new()), "poker".try_into()?)
    ///     .kind_async("http".try_into()?, &runtime, poke)
    ///     .at_once("http".try_into()?, 5_000.try_into().unwrap());
    /// # Ok::<(), stationmaster::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn kind_async<A>(
        self,
        kind: SensorKind,
        runtime: &Handle,
        poke: impl Fn(PokeRequest) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = PokeOutcome> + Send,
    {
        let (runtime, poke) = (runtime.clone(), Arc::new(poke));
        let look = move |requests: Vec<PokeRequest>| -> BoxFuture<Vec<PokeOutcome>> {
            let poke = Arc::clone(&poke);
            Box::pin(async move {
                let mut answers = Vec::with_capacity(requests.len());
                for request in requests {
                    answers.push(poke(request).await);
                }
                answers
            })
        };
        self.poked_by(&kind, Probe::future(OnRuntime { runtime, look }, NonZeroUsize::MIN))
    }

    /// Sets the poke of this kind, which receives at most `at_most` targets in one future. Its deadline is
    /// the earliest of its groups'. [`Poker::at_once`] counts futures, not targets.
    ///
    /// The future returns an outcome for each request, in their order. A wrong number of outcomes, or a
    /// panic, counts as [`PokeOutcome::Unreachable`] for all of them. Otherwise it works like
    /// [`Self::kind_async`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stationmaster::sensor::PokeOutcome;
    /// use stationmaster::service::Poker;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::service::PokeRequest;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let poke = |requests: Vec<PokeRequest>| async move { vec![PokeOutcome::NotYet; requests.len()] };
    /// let runtime = tokio::runtime::Handle::current();
    /// let poker = Poker::new(Arc::new(MemoryStore::new()), "poker".try_into()?)
    ///     .kind_many_async("partition".try_into()?, 500.try_into().unwrap(), &runtime, poke);
    /// # Ok::<(), stationmaster::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn kind_many_async<A>(
        self,
        kind: SensorKind,
        at_most: NonZeroUsize,
        runtime: &Handle,
        poke: impl Fn(Vec<PokeRequest>) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Vec<PokeOutcome>> + Send,
    {
        let (runtime, poke) = (runtime.clone(), Arc::new(poke));
        let look = move |requests: Vec<PokeRequest>| -> BoxFuture<Vec<PokeOutcome>> {
            let poke = Arc::clone(&poke);
            Box::pin(async move { poke(requests).await })
        };
        self.poked_by(&kind, Probe::future(OnRuntime { runtime, look }, at_most))
    }
}

/// An async poke: this function's futures, on this runtime.
struct OnRuntime<F> {
    runtime: Handle,
    look: F,
}

impl<F> AsyncProbe for OnRuntime<F>
where
    F: Fn(Vec<PokeRequest>) -> BoxFuture<Vec<PokeOutcome>> + Send + Sync,
{
    fn look(&self, requests: Vec<PokeRequest>) -> BoxFuture<Vec<PokeOutcome>> {
        (self.look)(requests)
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.runtime.spawn(task);
    }

    fn within(&self, work: &mut dyn FnMut()) {
        let _inside = self.runtime.enter();
        work();
    }
}
