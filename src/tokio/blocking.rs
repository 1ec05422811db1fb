//! Blocking work, on the runtime's blocking threads.

use std::panic::resume_unwind;

use ::tokio::runtime::Handle;
use ::tokio::task::JoinError;

use crate::error::{Error, Result};

/// Returns the runtime that polls this future.
pub(super) fn current() -> Result<Handle> {
    Handle::try_current().map_err(|_| Error::NoRuntime)
}

/// Returns the result of spawned work. Resumes its panic here.
pub(super) fn joined<T>(joined: Result<T, JoinError>) -> Result<T> {
    joined.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => Error::RuntimeShutDown,
    })
}
