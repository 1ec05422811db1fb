//! Blocking work, on the runtime's blocking threads.

use std::panic::resume_unwind;

use ::tokio::runtime::Handle;
use ::tokio::task::JoinError;

use crate::error::NoRuntime;

/// Returns the runtime that polls this future.
pub(super) fn current() -> Result<Handle, NoRuntime> {
    Handle::try_current().map_err(|_| NoRuntime::Outside)
}

/// Returns the result of spawned work. Resumes its panic here.
pub(super) fn joined<T>(joined: Result<T, JoinError>) -> Result<T, NoRuntime> {
    joined.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => NoRuntime::ShutDown,
    })
}
