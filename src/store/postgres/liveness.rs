//! Gives up a server that has fallen silent.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::error::Failure;

/// When the server was last heard.
pub(super) struct Liveness(Mutex<Instant>);

impl Liveness {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Records that the server was heard now.
    pub(super) fn heard(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Runs `work`, and gives up after `patience` without hearing from the server. Work of many parts may
    /// last longer, as long as the server responds to one part after another.
    pub(super) async fn limit<T>(
        &self,
        patience: Option<Duration>,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(patience) = patience else { return work.await };
        self.heard();
        let mut work = pin!(work);
        loop {
            let last = *self.0.lock();
            // If no instant can be that far away, there is no limit.
            let Some(deadline) = last.checked_add(patience) else { return work.await };
            match timeout_at(deadline, &mut work).await {
                Ok(done) => return done,
                Err(_) if *self.0.lock() > last => {}
                Err(_) => return Err(Failure::silent(patience)),
            }
        }
    }
}
