//! Surveys and grants, one thing of them wrong.

use stationmaster::error::StoreResult;
use stationmaster::store::contract::{
    GrantBatch, Granted, Overdue, Promote, Survey, SurveyQuery, WhichPools,
};
use stationmaster::task::TaskRecord;

use super::{BentTx, Fault, later};

/// What the inner store is asked.
pub(super) fn bent_query(fault: Fault, query: &mut SurveyQuery) -> SurveyQuery {
    if let Some(promote) = &mut query.promote {
        match fault {
            Fault::PromotesOneTooEarly => promote.now = later(promote.now, 1),
            Fault::PromotesOneTooLate => promote.now = later(promote.now, -1),
            Fault::PromotesOneTooMany => promote.limit = promote.limit.saturating_add(1),
            _ => {}
        }
    }
    match fault {
        Fault::SurveysAllPools => query.pools = WhichPools::All,
        Fault::SurveysAllQueues => query.queues = None,
        Fault::SurveysWithoutTheRequest => query.request = None,
        _ => {}
    }
    let mut asked = query.clone();
    if fault == Fault::SurveysBeforeItPromotes {
        asked.promote = None;
    }
    asked
}

/// What is made of the inner store's answer.
pub(super) fn bent_survey(
    tx: &mut BentTx<'_>,
    query: &SurveyQuery,
    mut survey: Survey,
) -> StoreResult<Survey> {
    let mut anonymous = query.clone();
    anonymous.request = None;
    match tx.fault {
        Fault::PromotesForAKnownRequest if survey.granted.is_some() => drop(tx.tx.survey(&anonymous)?),
        Fault::SurveysBeforeItPromotes if survey.granted.is_none() => {
            survey.promoted = tx.tx.survey(&anonymous)?.promoted;
        }
        Fault::SurveysWithoutFamilies => survey.families.clear(),
        Fault::SurveysWithoutPauses => survey.paused.clear(),
        Fault::SurveysWithoutShares => survey.shares.clear(),
        Fault::SurveysDefinedLimitsOnly => survey.limits.retain(|limit| limit.max.is_some()),
        _ => {}
    }
    Ok(survey)
}

pub(super) fn overdue(tx: &mut BentTx<'_>, mut promote: Promote) -> StoreResult<Overdue> {
    match tx.fault {
        Fault::OverdueOneTooMany => promote.limit = promote.limit.saturating_add(1),
        Fault::OverdueIsPromoted => drop(tx.tx.survey(&SurveyQuery::new().promote(promote.now, 1))?),
        _ => {}
    }
    let mut overdue = tx.tx.overdue(promote)?;
    match tx.fault {
        Fault::OverdueTellsAllOfItsLanes => overdue.lanes = tx.tx.survey(&SurveyQuery::new())?.lanes,
        Fault::OverdueForgetsWhatIsDueNext => overdue.next_due = None,
        _ => {}
    }
    Ok(overdue)
}

pub(super) fn grant(tx: &mut BentTx<'_>, batch: &GrantBatch<'_>) -> StoreResult<Granted> {
    let mut batch = *batch;
    let mut numbers = batch.tasks.to_vec();
    match tx.fault {
        Fault::GrantWithoutTheReadiness => {
            tx.tx.survey(&SurveyQuery::new().promote(later(batch.now, 1_000_000), usize::MAX))?;
        }
        Fault::GrantsWithoutTheStart => batch.started = false,
        Fault::NotesNoRequest => batch.request = None,
        Fault::NotesNoRates => batch.rates = &[],
        Fault::StampsNoShares => batch.shares = &[],
        Fault::NotesRequestsInOrderOfNumbers => {
            numbers.sort_unstable();
            batch.tasks = &numbers;
        }
        Fault::ForgetsRequestsAtTheInstant => {
            batch.forget.iter_mut().for_each(|forget| forget.before = later(forget.before, 1));
        }
        Fault::ForgetsOneRequestTooMany => {
            batch.forget.iter_mut().for_each(|forget| forget.limit = forget.limit.saturating_add(1));
        }
        Fault::ReplacesNoRequest => batch.replaces = None,
        Fault::KeepsOneRequestTooMany => batch.forget.iter_mut().for_each(|forget| {
            forget.most = forget.most.map(|most| most.saturating_add(1));
        }),
        Fault::CountsNoRequests => batch.forget.iter_mut().for_each(|forget| forget.most = None),
        Fault::ForgetsBeforeItNotes => {
            let mut forget = GrantBatch::new(&[], batch.holder, batch.now, batch.expires_at);
            forget.forget = batch.forget.take();
            let forgotten = tx.tx.grant_if_open(&forget)?.forgotten;
            let mut granted = tx.tx.grant_if_open(&batch)?;
            granted.forgotten = forgotten;
            return Ok(granted);
        }
        _ => {}
    }
    let mut granted = tx.tx.grant_if_open(&batch)?;
    match tx.fault {
        Fault::GrantsInOrderOfNumbers => granted.tasks.sort_by_key(|task| task.id),
        Fault::StartsWhatIsRecorded if batch.started => {
            let leases: Vec<_> = granted.tasks.iter().map(TaskRecord::lease_ref).collect();
            tx.tx.start_if_queued(&leases, batch.now)?;
        }
        Fault::SaysThatThereWasRoom => granted.had_room = true,
        Fault::SaysThatThereWasNoRoom => granted.had_room = granted.tasks.is_empty(),
        _ => {}
    }
    Ok(granted)
}
