use super::*;
use crate::lease::TaskId;
use proptest::prelude::*;

const LENGTH: Duration = Duration::from_secs(60);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn millis(millis: i64) -> Timestamp {
    Timestamp::from_micros(millis * 1_000)
}

fn lease(id: i64) -> LeaseRef {
    LeaseRef::new(TaskId(id), 1)
}

/// Returns leases of 60 s that were granted at these seconds, numbered from 0.
fn granted(seconds: &[i64]) -> LeaseSet {
    let mut set = LeaseSet::new(LENGTH);
    for (id, granted) in (0..).zip(seconds) {
        set.insert(lease(id), at(granted + 60));
    }
    set
}

#[test]
fn a_lease_is_due_at_a_third_and_takes_along_those_that_are_due_soon() {
    let mut set = granted(&[0, 10, 11]);
    assert_eq!((set.next_due(), set.due(millis(19_999))), (Some(at(20)), vec![]));
    assert_eq!(set.due(at(20)), [lease(0), lease(1)]);
    assert_eq!(set.answered(at(20), &[lease(0), lease(1)], &[Renewal::Renewed; 2]), Notices::default());
    assert_eq!((set.next_due(), set.due(at(20))), (Some(at(31)), vec![]));
    assert_eq!(set.due(at(31)), [lease(0), lease(1), lease(2)]);
}

#[test]
fn what_failed_is_tried_again_after_growing_pauses_and_reported_at_the_expiry() {
    let mut set = granted(&[0]);
    let mut asked = Vec::new();
    while set.fallen_into_doubt(set.next_due().unwrap()).is_empty() {
        let now = set.next_due().unwrap();
        assert_eq!(set.due(now), [lease(0)]);
        set.failed(now, &[lease(0)]);
        asked.push((now.as_micros() + 500) / 1_000);
    }
    // First after 60 s / 64, then after at most 60 s / 8, and finally after half of the remaining time.
    let tried = [20_000, 20_938, 22_813, 26_563, 34_063, 41_563, 49_063, 54_531, 57_266, 58_633, 59_570];
    assert_eq!((asked, set.next_due()), (tried.to_vec(), Some(at(60))));
    assert!(set.fallen_into_doubt(at(60)).is_empty(), "reported once");
    set.failed(at(60), &[lease(0)]);
    assert_eq!(set.next_due(), Some(millis(67_500)), "and still asked for");
    assert_eq!(set.answered(millis(67_500), &[lease(0)], &[Renewal::Renewed]), Notices::default());
    assert_eq!(set.next_due(), Some(millis(87_500)));
}

#[test]
fn a_busy_lease_is_asked_for_again_soon_and_alone() {
    let mut set = granted(&[0, 0]);
    assert_eq!(
        set.answered(at(20), &set.due(at(20)), &[Renewal::Busy, Renewal::Renewed]),
        Notices::default()
    );
    let again = set.next_due().unwrap();
    assert!(again < at(21));
    assert_eq!(set.due(again), [lease(0)]);
}

#[test]
fn a_lost_lease_is_reported_once_and_forgotten() {
    let mut set = granted(&[0, 0]);
    let asked = set.due(at(20));
    assert_eq!(set.answered(at(20), &asked, &[Renewal::Lost, Renewal::Renewed]).lost, [lease(0)]);
    assert_eq!(set.answered(at(20), &asked, &[Renewal::Lost]), Notices::default());
    assert_eq!(set.iter().collect::<Vec<_>>(), [lease(1)]);
}

#[test]
fn after_a_long_pause_the_store_is_asked_before_the_holder_is_notified() {
    let mut set = granted(&[0, 0]);
    assert!(set.fallen_into_doubt(at(600)).is_empty());
    assert_eq!(set.due(at(600)), [lease(0), lease(1)]);
    set.answered(at(600), &[lease(0), lease(1)], &[Renewal::Renewed, Renewal::Busy]);
    assert_eq!(set.fallen_into_doubt(at(600)), [lease(1)]);
    assert_eq!(set.expires_at(lease(0)), Some(at(660)));
}

#[test]
fn a_clock_that_was_set_back_is_noticed() {
    let mut set = granted(&[3_600]);
    assert!(set.due(at(3_600)).is_empty());
    assert_eq!(set.due(at(0)), [lease(0)]);
    set.answered(at(0), &[lease(0)], &[Renewal::Renewed]);
    assert_eq!((set.due(at(0)), set.next_due()), (vec![], Some(at(20))));
}

#[test]
fn a_store_that_answers_for_too_few_is_asked_again() {
    let mut set = granted(&[0, 0]);
    assert_eq!(set.answered(at(20), &[lease(0), lease(1)], &[Renewal::Renewed]), Notices::default());
    assert_eq!((set.expires_at(lease(1)), set.due(at(21))), (Some(at(60)), vec![lease(1)]));
}

#[test]
fn a_cancelled_lease_is_cut_to_its_deadline_and_in_doubt_from_then_on() {
    let mut set = granted(&[0, 0]);
    let cancelled = |deadline| [Renewal::Cancelled(at(deadline)), Renewal::Renewed];
    let notices = set.answered(at(20), &[lease(0), lease(1)], &cancelled(70));
    assert_eq!(notices, Notices { lost: vec![], cancelled: vec![(lease(0), at(70))] });
    assert_eq!((set.expires_at(lease(0)), set.expires_at(lease(1))), (Some(at(70)), Some(at(80))));
    assert_eq!(set.due(at(40)), [lease(0), lease(1)], "renewed as before");
    set.answered(at(40), &[lease(0), lease(1)], &cancelled(50));
    assert_eq!((set.expires_at(lease(0)), set.next_due()), (Some(at(50)), Some(at(50))), "a sooner one");
    assert!(set.fallen_into_doubt(at(50)).is_empty(), "the store is asked first");
    assert_eq!(set.answered(at(50), &set.due(at(50)), &cancelled(50)).cancelled, [(lease(0), at(50))]);
    assert_eq!(set.fallen_into_doubt(at(50)), [lease(0)]);
    let again = set.next_due().unwrap();
    assert!(at(50) < again && again < at(51), "asked again soon, and not at once");
    assert_eq!(set.answered(again, &[lease(0)], &[Renewal::Lost]).lost, [lease(0)]);
}

#[test]
fn a_cancel_has_all_leases_asked_for_at_once_and_many_share_a_call() {
    let mut set = granted(&[0, 5]);
    set.ask_all(at(6));
    assert_eq!((set.next_due(), set.due(at(6))), (Some(at(6)), vec![lease(0), lease(1)]));
    set.answered(at(6), &[lease(0), lease(1)], &[Renewal::Renewed, Renewal::Busy]);
    for tenth in 1..=9 {
        set.ask_all(millis(6_000 + tenth * 50));
    }
    assert_eq!(set.due(millis(6_937)), [], "60 s / 64 after the first");
    assert_eq!(set.due(millis(6_938)), [lease(0), lease(1)]);
    set.answered(millis(6_938), &[lease(0), lease(1)], &[Renewal::Renewed; 2]);
    set.ask_all(at(20));
    assert_eq!(set.due(at(20)), [lease(0), lease(1)], "long after: at once");
    // A clock that is set back must not delay renewals.
    set.answered(at(20), &[lease(0), lease(1)], &[Renewal::Renewed; 2]);
    set.ask_all(at(-100));
    assert!(set.next_due().is_some_and(|next| next <= at(-99)));
}

#[test]
fn extremes_overflow_nothing() {
    for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let mut set = LeaseSet::new(length);
        for expires_at in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            for now in [Timestamp::MIN, Timestamp::MAX] {
                set.insert(lease(0), expires_at);
                for _ in 0..70 {
                    set.failed(now, &[lease(0)]);
                }
                set.ask_all(now);
                set.due(now);
                set.fallen_into_doubt(now);
                set.answered(now, &[lease(0)], &[Renewal::Renewed]);
                set.answered(now, &[lease(0)], &[Renewal::Cancelled(expires_at)]);
            }
        }
    }
}

/// The outcome of one call to the store, for each of four leases.
#[derive(Debug, Clone)]
enum Call {
    Fails,
    Answers([Renewal; 4]),
}

/// What happens between two ticks.
#[derive(Debug, Clone)]
enum Between {
    Nothing,
    /// The keeper runs this much later than it is due, in microseconds.
    Late(u64),
    Keeps(i64),
    Drops(i64),
}

/// Everything that happened to a lease since it was added. The model recomputes the lease's state from
/// this.
#[derive(Debug, Clone)]
struct Log {
    expires_at: Timestamp,
    in_vain: Vec<Timestamp>,
    is_notified: bool,
    /// When to ask next about a lease whose task was cancelled.
    cut: Option<Timestamp>,
}

impl Log {
    fn confirmed(expires_at: Timestamp) -> Self {
        Self { expires_at, in_vain: Vec::new(), is_notified: false, cut: None }
    }

    /// Returns true, once, if its lease has expired after a failed renewal: the holder must be notified.
    fn falls_into_doubt(&mut self, now: Timestamp) -> bool {
        let falls = self.expires_at <= now && !self.in_vain.is_empty() && !self.is_notified;
        self.is_notified |= falls;
        falls
    }
}

fn fallen(logs: &mut BTreeMap<LeaseRef, Log>, now: Timestamp) -> Vec<LeaseRef> {
    logs.iter_mut().filter_map(|(lease, log)| log.falls_into_doubt(now).then_some(*lease)).collect()
}

fn calls() -> impl Strategy<Value = Call> {
    let renewal = prop_oneof![
        6 => Just(Renewal::Renewed),
        2 => Just(Renewal::Busy),
        1 => Just(Renewal::Lost),
        1 => (0_i64..200).prop_map(|deadline| Renewal::Cancelled(at(deadline))),
    ];
    prop_oneof![1 => Just(Call::Fails), 2 => prop::array::uniform4(renewal).prop_map(Call::Answers)]
}

fn betweens() -> impl Strategy<Value = Between> {
    prop_oneof![
        4 => Just(Between::Nothing),
        1 => (1_u64..90_000_000).prop_map(Between::Late),
        2 => (0_i64..4).prop_map(Between::Keeps),
        1 => (0_i64..4).prop_map(Between::Drops),
    ]
}

proptest! {
    /// Compares the keeper with a log of each lease: which leases are renewed and when, which holders are
    /// notified and when, and that no lease is renewed too often or too late.
    #[test]
    fn leases_are_asked_for_in_time_and_holders_notified_in_time(
        length_us in 1_000_u64..120_000_000,
        steps in prop::collection::vec((betweens(), calls()), 1..80),
    ) {
        let length = Duration::from_micros(length_us);
        // Instants are whole microseconds.
        let first = Duration::from_micros((length_us / 64).clamp(1_000, 1_000_000));
        let third = |until: Timestamp| until - (length - length / 3);
        let ask_at = |log: &Log| log.cut.unwrap_or_else(|| third(log.expires_at));
        let mut set = LeaseSet::new(length);
        let mut logs: BTreeMap<LeaseRef, Log> = BTreeMap::new();
        let mut now = Timestamp::UNIX_EPOCH;
        // When the last call was made, and whether all leases were confirmed after it.
        let mut last_call = None;
        for (between, call) in steps {
            let due = set.next_due();
            prop_assert_eq!(due.is_none(), logs.is_empty());
            let late_by = match between {
                Between::Nothing => 0,
                Between::Late(by) => by,
                Between::Keeps(id) => {
                    set.insert(lease(id), now + length);
                    logs.insert(lease(id), Log::confirmed(now + length));
                    continue;
                }
                Between::Drops(id) => {
                    set.remove(lease(id));
                    logs.remove(&lease(id));
                    continue;
                }
            };
            let is_punctual = late_by == 0;
            now = due.unwrap_or(now) + Duration::from_micros(late_by);

            let expired: Vec<LeaseRef> = fallen(&mut logs, now);
            let is_on_time = |lease| !is_punctual || logs[lease].expires_at == now;
            prop_assert!(expired.iter().all(is_on_time), "reported too late");
            prop_assert_eq!(set.fallen_into_doubt(now), expired);

            let asked = set.due(now);
            let mut is_someone_due = false;
            for (lease, log) in &logs {
                let is_asked = asked.contains(lease);
                match log.in_vain.last() {
                    None if ask_at(log) <= now => {
                        prop_assert!(is_asked);
                        prop_assert!(!is_punctual || ask_at(log) == now, "asked for too late");
                        is_someone_due = true;
                    }
                    None => prop_assert!(!is_asked || ask_at(log) <= now + length / 6, "too early"),
                    Some(before) if is_asked => {
                        is_someone_due = true;
                        let left = log.expires_at.saturating_duration_since(*before);
                        let pause = now.saturating_duration_since(*before);
                        let is_at_expiry = !left.is_zero() && now >= log.expires_at;
                        prop_assert!(pause >= first || is_at_expiry, "after {:?}", pause);
                        if is_punctual {
                            prop_assert!(pause <= (length / 8).max(first), "after {:?}", pause);
                            prop_assert!(left.is_zero() || now <= log.expires_at, "the expiry was passed");
                            prop_assert!(left / 2 < first || now < log.expires_at, "a last chance");
                        }
                    }
                    Some(_) => {}
                }
            }
            prop_assert!(asked.is_empty() || is_someone_due, "asked for nothing");
            prop_assert!(asked.iter().all(|lease| logs.contains_key(lease)));
            if asked.is_empty() {
                continue;
            }
            let all_are_confirmed = |logs: &BTreeMap<_, Log>| {
                // At a deadline the store is asked, however soon that is after the last call.
                logs.values().all(|log| log.in_vain.is_empty() && log.cut.is_none())
            };
            if let Some((before, true)) = last_call.filter(|_| all_are_confirmed(&logs)) {
                prop_assert!(now.saturating_duration_since(before) >= length / 6, "calls too close");
            }

            match call {
                Call::Fails => {
                    set.failed(now, &asked);
                    asked.iter().for_each(|lease| logs.get_mut(lease).unwrap().in_vain.push(now));
                }
                Call::Answers(renewals) => {
                    let renewal = |lease: &LeaseRef| renewals[usize::try_from(lease.id.0).unwrap()];
                    let renewals: Vec<Renewal> = asked.iter().map(renewal).collect();
                    let mut expected = Notices::default();
                    for (lease, renewal) in asked.iter().zip(&renewals) {
                        match renewal {
                            Renewal::Renewed => drop(logs.insert(*lease, Log::confirmed(now + length))),
                            Renewal::Busy => logs.get_mut(lease).unwrap().in_vain.push(now),
                            Renewal::Lost => expected.lost.extend(logs.remove(lease).map(|_| *lease)),
                            Renewal::Cancelled(deadline) if now < *deadline => {
                                expected.cancelled.push((*lease, *deadline));
                                let until = (now + length).min(*deadline);
                                let cut = Some(third(now + length).min(*deadline));
                                logs.insert(*lease, Log { cut, ..Log::confirmed(until) });
                            }
                            Renewal::Cancelled(deadline) => {
                                expected.cancelled.push((*lease, *deadline));
                                let log = logs.get_mut(lease).unwrap();
                                log.expires_at = (now + length).min(*deadline);
                                log.in_vain.push(now);
                            }
                        }
                    }
                    prop_assert_eq!(set.answered(now, &asked, &renewals), expected);
                }
            }
            last_call = Some((now, all_are_confirmed(&logs)));
            prop_assert_eq!(set.fallen_into_doubt(now), fallen(&mut logs, now));
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), logs.keys().copied().collect::<Vec<_>>());
            for (lease, log) in &logs {
                prop_assert_eq!(set.expires_at(*lease), Some(log.expires_at));
            }
        }
    }
}
