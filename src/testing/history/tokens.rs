//! Whether rates were kept.

use std::collections::HashMap;

use super::{History, Instant, Operation, Rule, Violation};

/// A number of starts in a period, with a burst.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) starts: u32,
    pub(super) period: Instant,
    pub(super) burst: u32,
}

/// A call that started a number of tasks of a key, at some instant between its invocation and its return.
struct Call {
    invoked: Instant,
    returned: Instant,
    starts: i128,
}

impl History {
    /// Checks the rates. A start takes one token, whatever it counts against the key.
    pub(super) fn check_tokens(&self) -> Result<(), Violation> {
        let mut calls: HashMap<&str, Vec<Call>> = HashMap::new();
        for event in &self.events {
            let (Operation::Admit(grants), Some(returned)) = (&event.operation, event.returned) else {
                continue;
            };
            let mut starts: HashMap<&str, i128> = HashMap::new();
            for (name, _) in grants.iter().flat_map(|grant| grant.takes()) {
                if self.rates.contains_key(name) {
                    *starts.entry(name).or_default() += 1;
                }
            }
            for (name, starts) in starts {
                calls.entry(name).or_default().push(Call { invoked: event.invoked, returned, starts });
            }
        }
        calls.into_iter().try_for_each(|(key, calls)| check(key, self.rates[key], calls))
    }
}

/// Checks each window from the invocation of a call to the return of another one. What was made within it
/// surely started within it.
fn check(key: &str, rate: Rate, mut calls: Vec<Call>) -> Result<(), Violation> {
    calls.sort_unstable_by_key(|call| call.returned);
    let (n, period) = (i128::from(rate.starts), i128::from(rate.period));
    for from in calls.iter().map(|call| call.invoked) {
        let mut started = 0;
        let behind = calls.partition_point(|call| call.returned < from);
        for call in calls[behind..].iter().filter(|call| call.invoked >= from) {
            started += call.starts;
            let length = i128::from(call.returned - from);
            if started * period > i128::from(rate.burst) * period + n * length {
                let at = call.returned;
                let what = format!("key {key} was started {started} times between {from} and {at}");
                return Err(Violation { rule: Rule::Tokens, at, what });
            }
        }
    }
    Ok(())
}
