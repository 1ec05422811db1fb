//! Changes of sensors, and events of the feed, are followed by their numbers. In some stores a transaction
//! may append them without numbers: every follower assigns those before it reads.

use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::contract::SensorChanges;

/// How many changes get their numbers in one transaction.
const PAGE: usize = 10_000;

/// Returns the numbers of the latest changes, after all that wait for a number have got one.
pub(super) fn latest_changes(store: &dyn Store) -> Result<SensorChanges> {
    let changes = store.read(|tx| tx.raw().sensor_changes().map_err(Error::from))?;
    if !changes.unnumbered {
        return Ok(changes);
    }
    loop {
        let (numbered, changes) = store.write(|tx| {
            let numbered = tx.raw().number_changes(PAGE)?;
            Ok((numbered, tx.raw().sensor_changes()?))
        })?;
        if numbered < PAGE {
            return Ok(changes);
        }
    }
}
