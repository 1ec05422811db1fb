//! What is told of a tick before it comes: its plan.

use stationmaster::ops::{Admission, AdmitRequest};
use stationmaster::store::Tx;
use stationmaster::testing::raw;
use stationmaster::{Result, TaskRecord, Timestamp};

/// Makes a tick, and compares it with its preview.
pub(crate) fn admit(tx: &mut Tx<'_>, now: Timestamp, order: &AdmitRequest) -> Result<Admission> {
    let preview = tx.preview(now, order)?;
    let ids = |tasks: &[TaskRecord]| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    assert_eq!(
        raw(tx).tasks_by_id(&ids(&preview.granted))?.into_iter().flatten().collect::<Vec<_>>(),
        preview.granted
    );
    let again = tx.preview(now, order)?;
    assert_eq!(again, preview, "it changed nothing");
    let tick = tx.admit(now, order)?;
    assert_eq!(ids(&preview.granted), ids(&tick.granted));
    assert_eq!((&preview.refusals, &preview.missing), (&tick.refusals, &tick.missing));
    assert_eq!((preview.promoted, preview.next_due), (tick.promoted, tick.next_due));
    Ok(tick)
}
