//! Work that blocks, on the runtime's threads for such work.

use std::panic::resume_unwind;

use ::tokio::runtime::Handle;
use ::tokio::task::JoinError;

use crate::error::NoRuntime;

/// The runtime that polls this future.
pub(super) fn current() -> Result<Handle, NoRuntime> {
    Handle::try_current().map_err(|_| NoRuntime::Outside)
}

/// What became of work that was given away. A panic of it goes on here.
pub(super) fn joined<T>(joined: Result<T, JoinError>) -> Result<T, NoRuntime> {
    joined.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => NoRuntime::ShutDown,
    })
}
