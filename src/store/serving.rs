//! Marks the transactions of the crate's own services, for a store that reserves a connection for them.
//!
//! A service has an `Arc<dyn Store>`, perhaps one that a host wrapped around another store. So the mark is
//! kept per thread, and not passed through the trait.

use std::cell::Cell;
use std::sync::Arc;

use super::{Store, StoreInfo, Tx, TxMode};
use crate::error::Result;

thread_local! {
    static IS_SERVICE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true inside a transaction of a service.
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
pub(super) fn is_service() -> bool {
    IS_SERVICE.get()
}

/// Returns the store as a service uses it.
pub(crate) fn for_service(store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Serving(store))
}

struct Serving(Arc<dyn Store>);

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The previous value of the mark, which is restored on drop.
struct Before(bool);

impl Drop for Before {
    fn drop(&mut self) {
        IS_SERVICE.set(self.0);
    }
}

impl Store for Serving {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let _before = Before(IS_SERVICE.replace(true));
        self.0.transact(mode, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn the_mark_lasts_as_long_as_the_transaction() {
        let store = for_service(Arc::new(MemoryStore::new()));
        assert!(!is_service());
        assert!(store.read(|_| Ok(is_service())).unwrap());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.write(|_| -> Result<()> { std::panic::resume_unwind(Box::new("on purpose")) })
        }));
        assert!(panicked.is_err() && !is_service());
    }
}
