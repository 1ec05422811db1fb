//! The numbers that represent states and choices in tables, equal in every database. They never change once released.

use crate::run::{RunStatus, StartMethod};
use crate::sensor::{EndReason, OnLanded, OnMissed, SensorState};
use crate::task::{LeaseLoss, TaskState};

macro_rules! codes {
    ($($type:ident { $($variant:ident = $code:literal),+ $(,)? })+) => {$(
        impl Code for $type {
            fn code(self) -> i64 {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            fn from_code(code: i64) -> Result<Self, UnknownCode> {
                match code {
                    $($code => Ok(Self::$variant),)+
                    _ => Err(UnknownCode { code, of: stringify!($type) }),
                }
            }
        }
    )+};
}

/// A number in a table without a meaning.
#[derive(Debug, thiserror::Error)]
#[error("{code} is no {of}")]
pub(in crate::store) struct UnknownCode {
    code: i64,
    of: &'static str,
}

/// A choice that is stored as a number.
pub(in crate::store) trait Code: Sized {
    fn code(self) -> i64;
    fn from_code(code: i64) -> Result<Self, UnknownCode>;
}

codes! {
    TaskState {
        Scheduled = 0, Queued = 1, Running = 2, UpForRetry = 3, Sensing = 4, Success = 6, Failed = 7, Skipped = 8,
        Cancelled = 9,
    }
    SensorState { Waiting = 0, Ended = 1 }
    OnLanded { Succeed = 0, Resume = 1 }
    OnMissed { Fail = 0, Skip = 1 }
    EndReason {
        Landed = 0, TimedOut = 1, Failed = 2, Cancelled = 3, ExecutionTimedOut = 4, Unreachable = 5,
    }
    RunStatus {
        Pending = 0, Starting = 1, Running = 2, Suspended = 3, Resuming = 4, Completed = 5, Failed = 6, Killed = 7,
        Rejected = 8,
    }
    StartMethod { Manual = 0, Scheduled = 1, Triggered = 2 }
}

impl Code for bool {
    fn code(self) -> i64 {
        self.into()
    }

    fn from_code(code: i64) -> Result<Self, UnknownCode> {
        match code {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(UnknownCode { code, of: "flag" }),
        }
    }
}

/// Scheduled, and waiting for an instant. It has its own number, so the index of ready tasks needs only the state.
const LATER: i64 = 5;

/// Returns the number for a task in this state, with or without a due instant, and with or without slots that it keeps.
/// Ready tasks that keep none have their own number.
pub(in crate::store) fn task_state<T>(state: TaskState, due: Option<T>, keeps_slots: bool) -> i64 {
    match state {
        TaskState::Scheduled if due.is_some() || keeps_slots => LATER,
        _ => state.code(),
    }
}

/// Returns the state of a task with this number.
pub(in crate::store) fn from_task_state(code: i64) -> Result<TaskState, UnknownCode> {
    if code == LATER { Ok(TaskState::Scheduled) } else { TaskState::from_code(code) }
}

/// Returns the numbers of a task in this state as bits, the lowest for number 0.
#[cfg(feature = "postgres")]
pub(in crate::store) fn mask(state: TaskState) -> i64 {
    let later = if state == TaskState::Scheduled { 1 << LATER } else { 0 };
    later | 1 << state.code()
}

/// Returns how often to requeue, or `None` to fail.
pub(in crate::store) fn lease_loss(loss: LeaseLoss) -> Option<i64> {
    match loss {
        LeaseLoss::Fail => None,
        LeaseLoss::Requeue { at_most } => Some(at_most.into()),
    }
}
