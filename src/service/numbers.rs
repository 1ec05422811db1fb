//! Followers read sensor changes and feed events by number. In some stores a transaction may append them
//! without numbers, so every follower assigns the missing numbers before it reads.

use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::contract::SensorChanges;

/// How many changes one transaction numbers.
const PAGE: usize = 10_000;

/// Returns the numbers of the latest changes, after every change has a number.
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
