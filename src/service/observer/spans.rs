//! Spans and events for subscribers of `tracing` (feature `tracing`). Without the feature there are none.
//!
//! | target | span, level | fields | events inside |
//! |---|---|---|---|
//! | `stationmaster::admitter` | `admit`, debug | `holder`, `budget` | debug `admitted`: `granted`, `promoted`, `refused`, `conflicts`, `took_s`; trace `granted`, per task: `task`, `attempt`, `epoch`, `waited_s` |
//! | `stationmaster::keeper` | `keep`, debug | | debug `renewed`, or warn if leases were lost: `renewed`, `busy`, `lost`, `expired`, `took_s` |
//! | `stationmaster::upkeep` | `reap`, debug | | debug `reaped`, or warn if leases expired: `expired`, `ready`, `retry`, `failed`, `forgotten`, `took_s`; debug `lease expired`, per task: `task`, `holder`, `became`; debug `run closed as silent`, per run: `namespace`, `run`; debug `audited`, or warn if it found something: `found`, `repaired`, `first` |
//! | `stationmaster::poker` | `cycle`, debug | `worker` | debug `cycled`, or warn if pokes passed their deadline, a log panicked or kinds are unknown: `shards`, `gained`, `sensors`, `groups`, `loaded`, `due`, `poked`, `saved`, `unreachable`, `overran`, `late`, `held_back`, `landed`, `failed`, `timed_out`, `gave_up`, `unknown_kind`, `log_panics`, `outages`, `waiting`, `hung`, `took_s` |
//! | `stationmaster::poker` | `poke`, trace: one call of the host's poke, on the thread that makes it (async pokes have none) | `kind`, `targets` | the host's own |
//! | `stationmaster::feed` | `read_feed`, debug | `consumer` | debug `read`, or warn if an event was refused or some were lost: `accepted`, `lost`, `refused`, `has_turn`, `took_s`; debug `event refused`: `task`, `seq`, `error` |
//! | `stationmaster::store` | – | | trace `transaction`: `mode`, `result`, `took_s`; by [`ObservedStore`](super::ObservedStore) |
//!
//! A tick that fails emits a warning of its target: `error`, `result` (as in [`metrics`](super::metrics)) and
//! `took_s`. Nothing that happens per task or per poke is above debug. Durations are in seconds. What a
//! host's store, poke or handler logs during a tick or poke is inside its span. A feed's handler runs in `read_feed`.
//!
//! Panics of a subscriber are not caught, unlike those of an [`Observer`](super::Observer). The panic passes
//! through the tick. On one of the poker's threads, the call counts as hung.

use std::time::Duration;

#[cfg(feature = "tracing")]
use super::emitter::result;
use crate::error::Error;
use crate::id::{Holder, SensorKind};
use crate::store::TxMode;

/// An entered span, which is left when this is dropped.
#[must_use]
pub(in crate::service) struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

macro_rules! spans {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) => $span:expr;)+) => {$(
        $(#[$doc])*
        #[cfg(feature = "tracing")]
        pub(in crate::service) fn $name($($arg: $ty),*) -> Span {
            Span { _entered: $span.entered() }
        }

        $(#[$doc])*
        #[cfg(not(feature = "tracing"))]
        pub(in crate::service) fn $name($(_: $ty),*) -> Span {
            Span {}
        }
    )+};
}

spans! {
    /// Returns the span of an admission.
    fn admit(holder: &Holder, budget: usize) =>
        tracing::debug_span!(target: "stationmaster::admitter", "admit", %holder, budget);
    /// Returns the span of a keeper's tick.
    fn keep() => tracing::debug_span!(target: "stationmaster::keeper", "keep");
    /// Returns the span of an upkeep tick.
    fn reap() => tracing::debug_span!(target: "stationmaster::upkeep", "reap");
    /// Returns the span of a poker's tick.
    fn cycle(worker: &Holder) => tracing::debug_span!(target: "stationmaster::poker", "cycle", %worker);
    /// Returns the span of a call of a host's poke.
    fn poke(kind: &SensorKind, targets: usize) =>
        tracing::trace_span!(target: "stationmaster::poker", "poke", %kind, targets);
    /// Returns the span of a feed reader's tick.
    fn feed(consumer: &Holder) => tracing::debug_span!(target: "stationmaster::feed", "read_feed", %consumer);
}

/// Emits an event that is a warning if something is wrong. An event's level and fields are fixed at its call
/// site, so there are two.
#[cfg(feature = "tracing")]
macro_rules! debug_or_warn {
    ($wrong:expr, $($rest:tt)+) => {
        if $wrong { tracing::warn!($($rest)+) } else { tracing::debug!($($rest)+) }
    };
}
#[cfg(feature = "tracing")]
pub(in crate::service) use debug_or_warn;

/// Warns of a tick that failed.
#[cfg(feature = "tracing")]
pub(super) fn failed(service: &str, took: Duration, error: Option<&Error>) {
    // An event's target is fixed at its call site, so there is one for each service.
    macro_rules! warn_of {
        ($error:ident, $($service:literal)+) => {
            match service {
                $($service => tracing::warn!(target: concat!("stationmaster::", $service),
                    result = result(error), took_s = took.as_secs_f64(), error = %$error, "tick failed"),)+
                _ => {}
            }
        };
    }
    if let Some(cause) = error {
        warn_of!(cause, "admitter" "keeper" "upkeep" "poker" "feed");
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) fn failed(_: &str, _: Duration, _: Option<&Error>) {}

/// Emits the event of a transaction that has ended.
#[cfg(feature = "tracing")]
pub(super) fn transacted(mode: TxMode, took: Duration, error: Option<&Error>) {
    let (mode, result, took_s) = (mode.as_str(), result(error), took.as_secs_f64());
    tracing::trace!(target: "stationmaster::store", mode, result, took_s, "transaction");
}

#[cfg(not(feature = "tracing"))]
pub(super) fn transacted(_: TxMode, _: Duration, _: Option<&Error>) {}
