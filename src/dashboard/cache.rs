//! Caches recently computed pages.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;

/// The page at an address, the same for all users with the same rights.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Arc<Rendered>)>>>;

/// The rendered pages, by address.
#[derive(Debug, Default)]
pub(super) struct Cache {
    slots: Mutex<HashMap<String, (Instant, Slot)>>,
}

impl Cache {
    /// Returns a page that is at most `age` old, or computes it. Requests for the same page wait for that.
    pub(super) async fn get(
        &self,
        address: String,
        age: Duration,
        compute: impl Future<Output = Rendered>,
    ) -> Arc<Rendered> {
        let slot = {
            let mut slots = self.slots.lock();
            let now = Instant::now();
            // A slot with waiters is kept: a second slot would compute the same page concurrently.
            slots.retain(|_, (until, slot)| now < *until || Arc::strong_count(slot) > 1);
            Arc::clone(&slots.entry(address).or_insert_with(|| (now + age, Slot::default())).1)
        };
        let mut place = slot.lock().await;
        if let Some((at, rendered)) = &*place
            && at.elapsed() < age
        {
            return Arc::clone(rendered);
        }
        let rendered = Arc::new(compute.await);
        *place = Some((Instant::now(), Arc::clone(&rendered)));
        rendered
    }

    /// Forgets all pages, because the store was changed.
    pub(super) fn clear(&self) {
        self.slots.lock().clear();
    }
}
