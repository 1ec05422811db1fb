//! The store's verbs in the transactions of a plain connection.

use stationmaster::Result;
use stationmaster::store::Tx;
use stationmaster::store::postgres::{Schema, attach};

use super::Plain;

/// Whether the transaction notifies listeners. One that does cannot be prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    Yes,
    No,
}

impl Plain {
    /// Calls verbs in the transaction that was begun.
    pub fn call<T>(
        &self,
        schema: &Schema,
        notify: Notify,
        body: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        std::thread::scope(|scope| {
            let (tx, serving) = attach(&self.client, schema);
            scope.spawn(|| self.runtime.block_on(serving));
            let tx = if notify == Notify::Yes { tx } else { tx.without_notify() };
            let mut tx = tx.tx();
            let answer = body(&mut tx)?;
            tx.check_whole()?;
            Ok(answer)
        })
    }
}
