//! A store that fails on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stationmaster::Error;
use stationmaster::error::{Result, StoreError, StoreErrorKind};
use stationmaster::store::{Store, StoreInfo, StoreTx, TxMode};

/// A store over this one that fails as many transactions of this mode, before they begin, as the counter is set to.
pub fn failing(inner: Arc<dyn Store>, mode: TxMode) -> (Arc<dyn Store>, Arc<AtomicU32>) {
    let faults = Arc::new(AtomicU32::new(0));
    (Arc::new(Failing { inner, mode, faults: faults.clone() }), faults)
}

#[derive(Debug)]
struct Failing {
    inner: Arc<dyn Store>,
    mode: TxMode,
    faults: Arc<AtomicU32>,
}

impl Store for Failing {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut dyn StoreTx) -> Result<()>) -> Result<()> {
        let less = |faults: u32| faults.checked_sub(1);
        if mode == self.mode && self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Error::Store(StoreError::new(StoreErrorKind::Io, "on purpose")));
        }
        self.inner.transact(mode, body)
    }
}
