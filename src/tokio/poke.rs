//! Pokes that are futures, on the host's runtime.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ::tokio::runtime::Handle;

use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::service::Poker;
use crate::service::poker::{AsyncProbe, BoxFuture, OwnedPokeRequest};

/// Looks whether what a kind of sensor waits for has come, without a thread of its own:
/// [`Poke`](crate::service::Poke) as a future.
///
/// It runs as a task of the runtime that it was registered with ([`Poker::kind_async`]), and must not block
/// it. At its deadline it is dropped and counts as [`PokeOutcome::Unreachable`]; so does a panic, which is caught.
/// When the poker is dropped, or leaves, it is dropped at its next await, too.
///
/// Functions from a request to a future are pokes.
///
/// # Examples
///
/// ```
/// use stationmaster::sensor::PokeOutcome;
/// use stationmaster::tokio::{AsyncPoke, OwnedPokeRequest};
///
/// struct PortAccepts;
///
/// impl AsyncPoke for PortAccepts {
///     async fn poke(&self, request: OwnedPokeRequest) -> PokeOutcome {
///         let context = request.context.to_value();
///         let Some(address) = context.get("address").and_then(|address| address.as_str()) else {
///             return PokeOutcome::Failed("the context has no \"address\"".into());
///         };
///         match tokio::net::TcpStream::connect(address).await {
///             Ok(_) => PokeOutcome::Landed(None),
///             Err(_) => PokeOutcome::NotYet,
///         }
///     }
/// }
///
/// let poke = |request: OwnedPokeRequest| async move { PokeOutcome::Landed(Some(request.context.as_str().to_owned())) };
/// # fn is_poke(_: impl AsyncPoke) {}
/// # is_poke(poke);
/// ```
pub trait AsyncPoke: Send + Sync {
    /// Looks once.
    fn poke(&self, request: OwnedPokeRequest) -> impl Future<Output = PokeOutcome> + Send;
}

impl<F, A> AsyncPoke for F
where
    F: Fn(OwnedPokeRequest) -> A + Send + Sync,
    A: Future<Output = PokeOutcome> + Send,
{
    fn poke(&self, request: OwnedPokeRequest) -> impl Future<Output = PokeOutcome> + Send {
        self(request)
    }
}

/// Looks for many targets of a kind in one future: [`PokeMany`](crate::service::PokeMany) without a thread of
/// its own.
///
/// What holds for an [`AsyncPoke`] holds for it. Functions from requests to a future are such pokes.
///
/// # Examples
///
/// ```
/// use stationmaster::sensor::PokeOutcome;
/// use stationmaster::tokio::{AsyncPokeMany, OwnedPokeRequest};
///
/// struct Partitions;
///
/// impl AsyncPokeMany for Partitions {
///     async fn poke_many(&self, requests: Vec<OwnedPokeRequest>) -> Vec<PokeOutcome> {
///         let there = vec![true; requests.len()]; // one query for all of them
///         there.into_iter().map(|there| if there { PokeOutcome::Landed(None) } else { PokeOutcome::NotYet }).collect()
///     }
/// }
/// ```
pub trait AsyncPokeMany: Send + Sync {
    /// Looks once for each request, and answers in their order. A wrong number of answers, or a panic, counts
    /// as [`PokeOutcome::Unreachable`] for all of them.
    fn poke_many(&self, requests: Vec<OwnedPokeRequest>) -> impl Future<Output = Vec<PokeOutcome>> + Send;
}

impl<F, A> AsyncPokeMany for F
where
    F: Fn(Vec<OwnedPokeRequest>) -> A + Send + Sync,
    A: Future<Output = Vec<PokeOutcome>> + Send,
{
    fn poke_many(&self, requests: Vec<OwnedPokeRequest>) -> impl Future<Output = Vec<PokeOutcome>> + Send {
        self(requests)
    }
}

impl Poker {
    /// Sets the poke of this kind. Its futures are tasks of this runtime.
    ///
    /// At most 1,000 are in flight at once (Airflow: the triggerer's `default_capacity`), unless
    /// [`Poker::at_once`] says otherwise. They need none of the poker's threads. Kinds of both sorts work
    /// side by side.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stationmaster::sensor::PokeOutcome;
    /// use stationmaster::service::{Poker, PokerOptions};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::tokio::OwnedPokeRequest;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let poke = |_: OwnedPokeRequest| async { PokeOutcome::NotYet };
    /// let runtime = tokio::runtime::Handle::current();
    /// let poker = Poker::new(Arc::new(MemoryStore::new()), "poker".try_into()?, PokerOptions::default())?
    ///     .kind_async("http".try_into()?, &runtime, poke)
    ///     .at_once("http".try_into()?, 5_000.try_into().unwrap());
    /// # Ok::<(), stationmaster::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn kind_async(self, kind: SensorKind, runtime: &Handle, poke: impl AsyncPoke + 'static) -> Self {
        let (runtime, poke) = (runtime.clone(), Arc::new(poke));
        let look = move |requests: Vec<OwnedPokeRequest>| -> BoxFuture<Vec<PokeOutcome>> {
            let poke = Arc::clone(&poke);
            Box::pin(async move {
                let mut answers = Vec::with_capacity(requests.len());
                for request in requests {
                    answers.push(poke.poke(request).await);
                }
                answers
            })
        };
        self.kind_of_futures(&kind, Arc::new(OnRuntime { runtime, look }), NonZeroUsize::MIN)
    }

    /// Sets the poke of this kind, which is given at most `at_most` targets in one future. Its deadline is
    /// the smallest of its groups; [`Poker::at_once`] counts futures, not targets.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stationmaster::sensor::PokeOutcome;
    /// use stationmaster::service::{Poker, PokerOptions};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::tokio::OwnedPokeRequest;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let poke = |requests: Vec<OwnedPokeRequest>| async move { vec![PokeOutcome::NotYet; requests.len()] };
    /// let runtime = tokio::runtime::Handle::current();
    /// let poker = Poker::new(Arc::new(MemoryStore::new()), "poker".try_into()?, PokerOptions::default())?
    ///     .kind_many_async("partition".try_into()?, 500.try_into().unwrap(), &runtime, poke);
    /// # Ok::<(), stationmaster::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn kind_many_async(
        self,
        kind: SensorKind,
        at_most: NonZeroUsize,
        runtime: &Handle,
        poke: impl AsyncPokeMany + 'static,
    ) -> Self {
        let (runtime, poke) = (runtime.clone(), Arc::new(poke));
        let look = move |requests: Vec<OwnedPokeRequest>| -> BoxFuture<Vec<PokeOutcome>> {
            let poke = Arc::clone(&poke);
            Box::pin(async move { poke.poke_many(requests).await })
        };
        self.kind_of_futures(&kind, Arc::new(OnRuntime { runtime, look }), at_most)
    }
}

/// Futures of this function, on this runtime.
struct OnRuntime<F> {
    runtime: Handle,
    look: F,
}

impl<F> AsyncProbe for OnRuntime<F>
where
    F: Fn(Vec<OwnedPokeRequest>) -> BoxFuture<Vec<PokeOutcome>> + Send + Sync,
{
    fn look(&self, requests: Vec<OwnedPokeRequest>) -> BoxFuture<Vec<PokeOutcome>> {
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
