//! Queues: which tasks a worker may take, and who serves them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cap::WaitingCap;
use super::lane::Lane;
use crate::id::{Holder, QueueName};
use crate::time::{Timestamp, duration_micros};

/// A holder's announcement of the queues that it serves.
///
/// It is valid for twice the length of the holder's leases. Until then the queues count as served, whether or
/// not the holder is still alive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Serving {
    /// The holder.
    pub holder: Holder,
    /// The queues; `None` means all.
    pub queues: Option<BTreeSet<QueueName>>,
    /// When it announced them.
    pub announced_at: Timestamp,
    /// The length of its leases.
    pub lease: Duration,
}

impl Serving {
    /// Creates an announcement that a holder makes at this instant.
    pub fn new(
        holder: Holder,
        queues: Option<BTreeSet<QueueName>>,
        announced_at: Timestamp,
        lease: Duration,
    ) -> Self {
        // Truncated to whole microseconds, as stored.
        let lease = Duration::from_micros(duration_micros(lease).unsigned_abs());
        Self { holder, queues, announced_at, lease }
    }

    /// Returns when it expires.
    pub fn until(&self) -> Timestamp {
        self.announced_at + self.lease.saturating_mul(2)
    }

    /// Returns true if the holder serves this queue.
    pub fn includes(&self, queue: &QueueName) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }

    /// Returns when the holder must announce it again.
    pub(crate) fn due(&self) -> Timestamp {
        self.announced_at + self.lease
    }

    /// Returns true if the holder must replace this announcement with `new`: it is due, or it is valid for
    /// longer than the holder's current lease length and clock imply.
    pub(crate) fn is_outdated_by(&self, new: &Self) -> bool {
        new.announced_at >= self.due() || self.until() > new.until()
    }

    /// Returns true if `new` replaces this announcement. A holder may announce several sets of queues.
    pub(crate) fn is_replaced_by(&self, new: &Self) -> bool {
        (&self.holder, &self.queues) == (&new.holder, &new.queues)
    }
}

/// Returns until when a queue is served, according to the announcements; `None` if no holder serves it.
pub(crate) fn served_until(serving: &[Serving], queue: &QueueName) -> Option<Timestamp> {
    serving.iter().filter(|serving| serving.includes(queue)).map(Serving::until).max()
}

/// Keeps only the lanes that take part in a tick that serves these queues: its own, and others' lanes that
/// are served. Tasks in a queue that no holder serves must not keep slots from the others.
pub(crate) fn leave_unserved(
    lanes: &mut Vec<Lane>,
    queues: &BTreeSet<QueueName>,
    serving: &[Serving],
    now: Timestamp,
) {
    lanes.retain(|lane| {
        let queue = &lane.key.queue;
        queues.contains(queue) || served_until(serving, queue).is_some_and(|until| now < until)
    });
}

/// The tasks that wait and run in one queue, and until when the queue is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueRecord {
    /// The queue.
    pub name: QueueName,
    /// The number of ready tasks, which wait for admission.
    pub ready: u64,
    /// The number of waiting tasks: ready, not yet due, or between two attempts.
    pub waiting: u64,
    /// The number of leased tasks.
    pub leased: u64,
    /// The number of tasks that wait as sensors.
    pub sensing: u64,
    /// Until when admitters serve it, according to their announcements. An admitter announces it once per
    /// lease length, and the announcement is valid for two. If this instant has passed or is `None`, no
    /// admitter serves the queue.
    pub served_until: Option<Timestamp>,
    /// How many tasks may wait; `None` means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<WaitingCap>,
}

impl QueueRecord {
    /// Creates the record of a queue from a store's counts. The caller fills in who serves it and its cap.
    pub fn new(name: QueueName, ready: u64, waiting: u64, leased: u64, sensing: u64) -> Self {
        Self { name, ready, waiting, leased, sensing, served_until: None, cap: None }
    }

    /// Returns true if a holder serves the queue at this instant.
    pub fn is_served(&self, now: impl Into<Timestamp>) -> bool {
        let now = now.into();
        self.served_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(at: i64, queues: Option<&[&str]>) -> Serving {
        let queues = queues.map(|names| names.iter().map(|name| QueueName::new(name).unwrap()).collect());
        let at = Timestamp::from_micros(at);
        Serving::new(Holder::new("h").unwrap(), queues, at, Duration::from_micros(10))
    }

    #[test]
    fn it_is_announced_again_once_in_a_lease_and_if_it_counts_for_too_long() {
        let (first, gpu) = (serving(5, Some(&["gpu"])), Some(&["gpu"][..]));
        assert!(!first.is_outdated_by(&serving(14, gpu)) && first.is_outdated_by(&serving(15, gpu)));
        assert!(first.is_outdated_by(&serving(4, gpu)), "the clock was set back");
        let shorter = Serving { lease: Duration::from_micros(9), ..serving(6, gpu) };
        assert!(first.is_outdated_by(&shorter));
        assert!(first.is_replaced_by(&shorter) && !first.is_replaced_by(&serving(6, None)));
    }

    #[test]
    fn it_counts_for_two_leases() {
        let gpu = QueueName::new("gpu").unwrap();
        let all = [serving(5, Some(&["cpu"])), serving(7, None), serving(1, Some(&["gpu"]))];
        assert_eq!(served_until(&all, &gpu), Some(Timestamp::from_micros(27)));
        assert_eq!(served_until(&all[..1], &gpu), None);
    }
}
