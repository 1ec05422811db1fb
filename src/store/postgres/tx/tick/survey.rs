//! The data that a tick plans with, and the result of a look.

use tokio_postgres::Row;

use super::super::super::error::{Fault, Outcome};
use super::super::super::wire::{Answer, Statement, ask};
use super::super::fold::Folded;
use super::super::queue::{serving, serving_of_texts};
use super::super::rules::{Beside, owed};
use super::super::{Db, Digest, clamp, first, fold, pool, promote, row};
use super::filed;
use super::reach::{Place, Ready};
use super::{
    FOLDED_LANES, FOLDED_LIMITS, FOLDED_POOLS, NAMED_LIMITS, NAMED_POOLS, NEXT_DUE, NEXT_DUE_FOLDED,
    READY_LANES, REQUEST, reach, share,
};
use crate::admission::{Lane, LaneId, Serving};
use crate::lease::{LeaseRef, TaskId};
use crate::pool::PoolRecord;
use crate::store::contract::{Promote, Survey, SurveyQuery, WhichPools};
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

/// Follows a fold of a few deltas when few lanes are ready. Its result is incomplete if it says so, or if there are
/// more than [`MOST`] lanes.
pub(in super::super) const SURVEY_FEW: &str = statement!("survey_few.sql");
const MOST: usize = 16;

/// The column of a lane's pool. The columns after it concern no lane: what the request granted, whether the result is
/// incomplete, and, only in the first row, the holders' announcements.
pub(super) const POOL: usize = 15;
const GRANTED: usize = 20;
const HAS_MORE: usize = 21;
pub(super) const SERVING: usize = 22;

/// Columns of a short fold: the next due instant, and false if tasks may wait for an earlier one.
const DUE: usize = 3;
const IS_SURE: usize = 4;

/// Replaces the fold in a survey that only reads. The sums that it reads include these deltas, so a few of them do not
/// justify a tick. Many make each look expensive.
const UNFOLDED: &str = "SELECT count(*) = 256 FROM (SELECT FROM sm.unfolded LIMIT 256) unfolded";

/// A tick that may admit more than this reads candidates separately. A round trip is a small part of its cost.
const FETCHED: usize = 1_024;

/// The fewest tasks of a lane that are worth reading together with it.
const SHARE: usize = 16;

/// The column where a lane's first ready tasks begin: how many were looked for, and five arrays.
const PAGE: usize = 9;

/// The column of a lane's limits, and its value if there are none.
const LIMITS: usize = 4;
const NO_LIMITS: &str = "[]";

/// The column where the families begin, after the next due instant.
const BESIDE: usize = 6;

/// The column of what a key owes, after the key.
pub(super) const OWED: usize = 8;

fn leases(ids: &[i64], epochs: &[i64]) -> Vec<LeaseRef> {
    ids.iter().zip(epochs).map(|(id, epoch)| LeaseRef::new(TaskId(*id), *epoch)).collect()
}

fn page(row: &Row) -> Outcome<Vec<Ready>> {
    let mut parts = [const { Vec::new() }; 5];
    for (at, part) in parts.iter_mut().enumerate() {
        *part = row::value::<Option<Vec<i64>>>(row, PAGE + 1 + at)?.unwrap_or_default();
    }
    let [ranks, dates, indices, numbers, instants] = &parts;
    let places = ranks.iter().zip(dates).zip(indices).zip(numbers).zip(instants);
    Ok(places.map(|((((rank, date), index), no), at)| (Place([*rank, *date, *index, *no]), *at)).collect())
}

/// Returns true if a lane has limit keys, or needs other pools.
fn carry_limits(lanes: &[Row]) -> Outcome<bool> {
    let limits: Outcome<Vec<&str>> = lanes.iter().map(|row| row::value(row, LIMITS)).collect();
    Ok(limits?.iter().any(|limits| *limits != NO_LIMITS))
}

/// The results of a survey's statements.
pub(super) struct Asked {
    pub(super) granted: Option<Vec<LeaseRef>>,
    pub(super) promoted: usize,
    pub(super) lanes: Answer,
    pub(super) pools: Vec<PoolRecord>,
    pub(super) limits: Answer,
    pub(super) shares: Answer,
    pub(super) around: Around,
    /// Whether there are deltas that are not folded yet.
    pub(super) is_behind: bool,
    /// How many lanes there are, if the fold created some.
    pub(super) live: usize,
}

/// The results that do not concern a lane.
pub(super) struct Around {
    /// The next due instant, and the next one after now.
    pub(super) due: [Option<i64>; 2],
    pub(super) serving: Vec<Serving>,
    pub(super) beside: Beside,
}

impl Around {
    pub(super) fn read(answer: &[Row]) -> Outcome<Self> {
        let row = first(answer)?;
        let due = [row::value(row, 0)?, row::value(row, 1)?];
        Ok(Self { due, serving: serving(row)?, beside: Beside::read(row, BESIDE)? })
    }
}

/// Why a survey that was expected to be short is not.
enum Refused {
    Fold,
    Survey,
}

/// Returns the statements of a survey that follow its fold, without the request.
fn plans_with(query: &SurveyQuery) -> [Statement; 5] {
    let queues: Option<Vec<String>> = queues(query);
    match query.promote {
        Some(promote) => [
            ask!(FOLDED_LANES, clamp(fetched(query)), queues),
            ask!(FOLDED_POOLS, i64::from(query.pools == WhichPools::All)),
            ask!(FOLDED_LIMITS),
            ask!(share::FOLDED_SHARES),
            ask!(NEXT_DUE_FOLDED, Some(promote.now.as_micros())),
        ],
        None => {
            let pools = match query.pools {
                WhichPools::All => pool::ALL_POOLS,
                WhichPools::Named => NAMED_POOLS,
            };
            [
                ask!(READY_LANES, queues),
                ask!(pools),
                ask!(NAMED_LIMITS),
                ask!(share::SHARES),
                ask!(NEXT_DUE, None::<i64>),
            ]
        }
    }
}

pub(super) fn queues(query: &SurveyQuery) -> Option<Vec<String>> {
    query.queues.as_ref().map(|queues| queues.iter().map(|queue| queue.as_str().to_owned()).collect())
}

/// Returns the most tasks of each lane that are read together with it.
fn fetched(query: &SurveyQuery) -> usize {
    Some(query.budget).filter(|most| *most <= FETCHED).unwrap_or(0)
}

pub(super) fn request(query: &SurveyQuery) -> Option<String> {
    query.request.as_ref().map(|request| request.as_str().to_owned())
}

impl Db<'_> {
    /// `locks` means that no other tick runs from then on until the transaction ends.
    pub(in super::super) fn survey(&mut self, query: &SurveyQuery, locks: bool) -> Outcome<Survey> {
        if let Some(survey) = self.survey_filed(query, locks)? {
            return Ok(survey);
        }
        let (ahead, asked) = match self.tick_ahead(query)? {
            Some((asked, granted)) => (Some(granted), asked),
            None => (None, self.ask_survey(query, locks)?),
        };
        let Asked { granted, promoted, lanes, pools, limits, shares, around, is_behind, live } = asked;
        // If it promoted fewer than allowed, the tasks that are still overdue are locked by another transaction.
        // Another tick right after this one would not promote them either.
        let is_passed = |promote: &Promote| granted.is_none() && promoted < promote.limit;
        let next = usize::from(query.promote.as_ref().is_some_and(is_passed));
        let mut survey = Survey {
            granted,
            next_due: around.due[next].map(Timestamp::from_micros),
            serving: around.serving,
            ahead,
            ..Survey::default()
        };
        self.reaches.begin();
        // They were granted by a tick that may not be flushed yet.
        self.hands_out |= survey.granted.is_some();
        if survey.granted.is_none() {
            survey.promoted = promoted;
            survey.is_behind = is_behind;
            // Deltas that are not folded yet only add and give back. The next tick folds more of them.
            if is_behind && let Some(promote) = query.promote {
                survey.next_due = Some(promote.now);
            }
            survey.lanes = lanes.iter().map(|row| self.met_lane(row)).collect::<Outcome<_>>()?;
            match survey.ahead {
                None => self.file_lanes_if_many(query, lanes.len(), live)?,
                // Its transaction is over, and it does not count lanes.
                Some(_) => _ = self.habits.counts_lanes(),
            }
            survey.pools = pools;
            survey.limits = limits.iter().map(pool::limit).collect::<Outcome<_>>()?;
            (survey.shares, survey.grants) = share::read(&shares)?;
            for (limit, row) in survey.limits.iter().zip(&limits) {
                survey.rates.extend(owed(limit.key.clone(), row, OWED)?);
            }
            Beside { families: survey.families, paused: survey.paused, clock: survey.clock } = around.beside;
            survey.lanes.sort_unstable_by_key(|lane| lane.id);
            survey.pools.sort_unstable_by(|a, b| a.spec.name.cmp(&b.spec.name));
            survey.limits.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        }
        Ok(survey)
    }

    /// If likely, asks as if there were only a few deltas to fold and a few ready lanes. Otherwise, or if that fails,
    /// asks for many.
    fn ask_survey(&mut self, query: &SurveyQuery, locks: bool) -> Outcome<Asked> {
        let mut few = query.promote.is_some() && self.habits.folds_few();
        if few && query.pools == WhichPools::Named && self.habits.surveys_few() {
            match self.ask_short(query, locks)? {
                Ok(asked) => return Ok(asked),
                Err(Refused::Survey) => self.habits.surveyed_many(),
                Err(Refused::Fold) => {
                    self.habits.folded_many();
                    few = false;
                }
            }
        }
        if few {
            if let Some(asked) = self.ask_survey_of(query, locks, true)? {
                return Ok(asked);
            }
            self.habits.folded_many();
        }
        let asked = self.ask_survey_of(query, locks, false)?;
        asked.ok_or_else(|| Fault::Damaged("a fold of many deltas refused to fold".into()))
    }

    /// Asks in one round trip for a fold of a few deltas and for what a few lanes need. If tasks became due, asks for
    /// the lanes again.
    fn ask_short(&mut self, query: &SurveyQuery, locks: bool) -> Outcome<Result<Asked, Refused>> {
        let share = (2 * fetched(query) / self.habits.lanes().max(1)).max(SHARE).min(fetched(query));
        let survey = ask!(SURVEY_FEW, clamp(share), queues(query), request(query));
        let [folded, mut lanes] = self.at_tick(locks, [ask!(fold::FOLD_FEW), survey])?;
        let Some(fold) = folded.first() else { return Ok(Err(Refused::Fold)) };
        let is_behind = !fold::is_whole(fold)?;
        self.reaches.set_folded();
        self.reaches.files_lanes = false;
        let all = first(&lanes)?;
        let has_more: bool = row::value(all, HAS_MORE)?;
        let granted: Option<Vec<i64>> = row::value(all, GRANTED)?;
        let granted = granted.map(|both| {
            let (ids, epochs) = both.split_at(both.len() / 2);
            leases(ids, epochs)
        });
        let serving = serving_of_texts(row::value(all, SERVING)?)?;
        if row::value::<Option<Digest>>(all, 0)?.is_none() {
            lanes.clear();
        }
        self.habits.met_lanes(lanes.len());
        let is_sure: bool = row::value(fold, IS_SURE)?;
        if !is_sure || has_more || lanes.len() > MOST || carry_limits(&lanes)? {
            return Ok(Err(Refused::Survey));
        }
        let mut pools: Vec<PoolRecord> = Vec::new();
        for row in &lanes {
            if row::value::<Option<&str>>(row, POOL)?.is_some() {
                pools.push(records::pool_at(row, POOL)?);
            }
        }
        pools.sort_unstable_by(|a, b| a.spec.name.cmp(&b.spec.name));
        pools.dedup_by(|a, b| a.spec.name == b.spec.name);
        // Unless tasks are overdue, both instants are the same.
        let due = [row::value(fold, DUE)?; 2];
        let around = Around { due, serving, beside: Beside::default() };
        let (limits, shares) = (Answer::new(), Answer::new());
        let asked = Asked { granted, promoted: 0, lanes, pools, limits, shares, around, is_behind, live: 0 };
        self.promote_in(query, asked).map(Ok)
    }

    /// Asks in one round trip. If tasks became due, a second one follows: promotion is too expensive for each tick.
    /// Returns `None` if `few` deltas were expected, and there are more or others.
    fn ask_survey_of(&mut self, query: &SurveyQuery, locks: bool, few: bool) -> Outcome<Option<Asked>> {
        let is_tick = query.promote.is_some();
        let fold = match (is_tick, few) {
            (true, true) => ask!(fold::FOLD_FEW),
            (true, false) => ask!(fold::FOLD, fold::MOST, clamp(filed::live_lanes(query))),
            (false, _) => ask!(UNFOLDED),
        };
        let [lanes, pools, limits, shares, next_due] = plans_with(query);
        let request = ask!(REQUEST, request(query));
        // A task with a share carries a limit key, so without limits there are no shares. Skipping them matters only
        // in ticks, and in looks before them, because only these are frequent.
        let [folded, granted, lanes, pools, limits, shares, next_due] = if self.is_own
            && !self.habits.has_limits()
        {
            let [folded, granted, lanes, pools, next_due] = if query.request.is_some() {
                self.at_tick(locks, [fold, request, lanes, pools, next_due])?
            } else {
                let [folded, lanes, pools, next_due] = self.at_tick(locks, [fold, lanes, pools, next_due])?;
                [folded, Answer::new(), lanes, pools, next_due]
            };
            if few && folded.is_empty() {
                return Ok(None);
            }
            let [limits, shares] = if carry_limits(&lanes)? {
                self.all([limits, shares])?
            } else {
                [Answer::new(), Answer::new()]
            };
            [folded, granted, lanes, pools, limits, shares, next_due]
        } else {
            self.at_tick(locks, [fold, request, lanes, pools, limits, shares, next_due])?
        };
        if few && folded.is_empty() {
            return Ok(None);
        }
        if is_tick {
            self.habits.met_limits(!limits.is_empty());
        }
        let folded = first(&folded)?;
        let is_behind = if is_tick { !fold::is_whole(folded)? } else { row::value(folded, 0)? };
        if is_tick {
            self.reaches.set_folded();
            let changed = if few { None } else { Folded::read(folded)? };
            self.reaches.files_lanes = changed.is_some();
            if let Some(changed) = changed {
                self.one(changed.file())?;
            }
        }
        let granted = granted.first().map(|row| {
            let (ids, epochs): (Vec<i64>, Vec<i64>) = (row::value(row, 0)?, row::value(row, 1)?);
            Ok::<_, Fault>(leases(&ids, &epochs))
        });
        let asked = Asked {
            granted: granted.transpose()?,
            promoted: 0,
            lanes,
            pools: pools.iter().map(pool::pool).collect::<Outcome<_>>()?,
            limits,
            shares,
            around: Around::read(&next_due)?,
            is_behind,
            live: if is_tick && !few { fold::lanes(folded)? } else { 0 },
        };
        self.promote_in(query, asked).map(Some)
    }

    /// Promotes overdue tasks, and asks again for what that changes.
    fn promote_in(&mut self, query: &SurveyQuery, asked: Asked) -> Outcome<Asked> {
        let Some(Promote { now, limit, .. }) = query.promote else { return Ok(asked) };
        let now = now.as_micros();
        if asked.granted.is_some() || limit == 0 || asked.around.due[0].is_none_or(|due| due > now) {
            return Ok(asked);
        }
        let [lanes, pools, limits, shares, next_due] = plans_with(query);
        let promotion = ask!(promote::PROMOTE, Some(now), clamp(limit));
        let [promoted, lanes, pools, limits, shares, next_due] =
            self.all([promotion, lanes, pools, limits, shares, next_due])?;
        let (promoted, moved) = (row::whole(first(&promoted)?, 0)?, row::value(first(&promoted)?, 1)?);
        if let Some(moved) = moved {
            self.one(filed::file(moved))?;
        }
        let pools = pools.iter().map(pool::pool).collect::<Outcome<_>>()?;
        Ok(Asked { promoted, lanes, pools, limits, shares, around: Around::read(&next_due)?, ..asked })
    }

    fn met_lane(&mut self, row: &Row) -> Outcome<Lane> {
        let id = LaneId(row::value(row, 1)?);
        let lane = Lane::new(id, self.lane(row, 0, 2)?, row::number(row, 6)?).keeps_slots(id.keeps_slots());
        let mut reach = reach(row, 0, 7)?;
        reach.carries_limits = carry_limits(std::slice::from_ref(row))?;
        if row.len() > PAGE
            && let most @ 1.. = row::whole(row, PAGE)?
        {
            reach.fetched(most, page(row)?);
        }
        self.reaches.put(id, reach);
        Ok(lane)
    }
}
