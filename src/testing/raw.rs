//! The contract's own methods, for tests of stores.

use crate::error::Result;
use crate::store::contract::StoreTx;
use crate::store::{self, ReadTx, Store};

/// Returns the backend's own transaction. Some of its methods break the counters when they are called alone.
pub fn raw<'t, 'a>(tx: &'t mut ReadTx<'a>) -> &'t mut (dyn StoreTx + 'a) {
    tx.raw()
}

/// [`Store`] with the contract's own methods instead of a host's verbs.
pub trait RawStoreExt {
    /// Works like [`read`](crate::store::MemoryStore::read).
    ///
    /// # Errors
    ///
    /// As [`Store::transact`].
    fn read_raw<T>(&self, body: impl FnMut(&mut dyn StoreTx) -> Result<T>) -> Result<T>;

    /// Works like [`write`](crate::store::MemoryStore::write).
    ///
    /// # Errors
    ///
    /// As [`Store::transact`].
    fn write_raw<T>(&self, body: impl FnMut(&mut dyn StoreTx) -> Result<T>) -> Result<T>;
}

impl<S: Store + ?Sized> RawStoreExt for S {
    fn read_raw<T>(&self, mut body: impl FnMut(&mut dyn StoreTx) -> Result<T>) -> Result<T> {
        store::read(self, |tx| body(tx.raw()))
    }

    fn write_raw<T>(&self, mut body: impl FnMut(&mut dyn StoreTx) -> Result<T>) -> Result<T> {
        store::write(self, |tx| body(tx.raw()))
    }
}
