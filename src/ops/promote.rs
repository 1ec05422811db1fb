//! The housekeeping of an admission tick, without an admission.

use crate::error::Result;
use crate::id::Holder;
use crate::store::Tx;
use crate::store::contract::{Forget, GrantBatch, SurveyQuery};
use crate::time::Timestamp;

/// Makes at most this many overdue tasks ready, and forgets at most as many ticks that were recorded before
/// an instant. Returns both numbers. The store treats it as a tick, so no other tick runs meanwhile.
pub(crate) fn promote_and_forget_requests(
    tx: &mut Tx<'_>,
    now: Timestamp,
    promotes: usize,
    requests: Option<(Timestamp, usize)>,
) -> Result<(usize, usize)> {
    tx.tick(|tx| {
        let promoted = match promotes {
            0 => 0,
            limit => tx.raw().survey(&SurveyQuery::new().promote(now, limit))?.promoted,
        };
        if promoted > 0 {
            tx.capacity_changed();
        }
        let Some((before, limit)) = requests else { return Ok((promoted, 0)) };
        // A grant of nothing: its holder is recorded nowhere.
        let nobody = Holder::new("upkeep")?;
        let batch = GrantBatch::new(&[], &nobody, now, now).forget(Forget::before(before, limit));
        Ok((promoted, tx.grant(&batch)?.forgotten))
    })
}
