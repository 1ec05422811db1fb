//! The housekeeping of an admission tick, without an admission.

use crate::error::Result;
use crate::id::Holder;
use crate::store::Tx;
use crate::store::contract::{Forget, GrantBatch, SurveyQuery};
use crate::time::Timestamp;

/// Makes at most `promotes` overdue tasks ready. Then forgets ticks that were recorded before the instant in
/// `requests`, up to the limit there. Returns both counts. The store treats this as a tick, so no other tick
/// runs at the same time.
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
        // An empty grant, so its holder is not recorded.
        let nobody = Holder::new("upkeep")?;
        let batch = GrantBatch::new(&[], &nobody, now, now).forget(Forget::before(before, limit));
        Ok((promoted, tx.grant(&batch)?.forgotten))
    })
}
