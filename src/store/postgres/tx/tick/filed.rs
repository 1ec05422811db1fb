//! Ticks with many lanes that have ready tasks. Such lanes are filed: see `lane_order` in the schema, and the
//! protocol's section on many lanes.
//!
//! Folds, promotions and grants change the counters of lanes. Each files these lanes again in the same transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_postgres::Row;

use super::super::super::error::{Fault, Outcome};
use super::super::super::wire::{Answer, Statement, ask};
use super::super::fold::{self, FILE, Folded};
use super::super::rules::owed;
use super::super::{Db, Digest, clamp, first, pool, promote, row};
use super::reach::{Place, Reach};
use super::survey::{Around, queues, request};
use super::{NEXT_DUE, NEXT_DUE_FOLDED, REQUEST, reach, share};
use crate::admission::{
    Behind, Lane, LaneId, Mark, NAMED, OrderKey, Place as Whose, ShareTurn, Subject, Turn, UnreadOf,
};
use crate::id::{LimitKey, PoolName};
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::{First, LanesBehind, Promote, Survey, SurveyQuery, WhichPools};
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

pub(in super::super) const FIRST_LANES: &str = statement!("first_lanes.sql");
pub(in super::super) const LANES_BEHIND: &str = statement!("lanes_behind.sql");
pub(in super::super) const TURNS_BEHIND: &str = statement!("turns_behind.sql");
pub(in super::super) const LANES_OF_SHARE: &str = statement!("lanes_of_share.sql");
pub(in super::super) const POOLS_IN_USE: &str = statement!("pools_in_use.sql");
pub(in super::super) const LIMITS_IN_USE: &str = statement!("limits_in_use.sql");
pub(in super::super) const SHARES_IN_USE: &str = statement!("shares_in_use.sql");
pub(in super::super) const LOOK_FILED: &str = statement!("look_filed.sql");
pub(in super::super) const NEXT_TOKEN: &str = statement!("next_token.sql");
pub(in super::super) const FILE_ALL: &str = "SELECT sm._file_all($1::bigint = 1)";
/// For repairs: files all lanes again, without marks. Files none if there are too many for one statement.
pub(in super::super) const REFILE: &str = "SELECT sm._file_all(many AND (SELECT count(*) <= 100000 FROM (SELECT FROM sm.lane LIMIT 100001) lanes)) \
     FROM (SELECT many FROM sm.tick ORDER BY no DESC LIMIT 1) last";
const WAKE_BY: &str = "SELECT sm._wake_by($1::bigint, $2::bigint, $3::text[])";
const WAKE_NODES: &str = "SELECT sm._wake_nodes($1::uuid[])";
const MARK: &str = "SELECT sm._mark($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[])";
/// Removes all marks. Every change of a definition does this.
pub(in super::super) const WAKE_ALL: &str = "SELECT sm._wake_all()";

const COUNT_LANES: &str = "SELECT count(*) FROM (SELECT FROM sm.lane LIMIT $1::bigint) lanes";
const COUNT_READY_LANES: &str = "SELECT count(*) FROM (SELECT FROM sm.ready_lane LIMIT $1::bigint) lanes";

/// How many lanes count as many even if few have ready tasks, per lane that a tick reads before it reads in pages.
const LIVE: usize = 16;

/// The most lanes that are filed at once. One statement files them, and blocks all ticks meanwhile. If there are more,
/// ticks read all of them, as if they were few. Lanes that were filed earlier stay filed, however many there are
/// later.
const MOST_AT_ONCE: usize = 100_000;

/// Columns of a page or a survey: why the lane was returned, and whether it sleeps.
const PART: usize = 9;
const SLEEPS: usize = 10;

/// Column of a page: the place after which the other lanes begin.
const UNREAD: usize = 10;

/// Columns of a page of turns: whether the contender has other lanes, its turn, and whether more contenders follow the
/// page. The columns before these contain the place of the first task.
const FIRST: usize = 9;
const ARE_MORE: usize = 10;
const TURN: usize = 11;
const IS_CUT: usize = 12;

/// A reason for which [`FIRST_LANES`] returns a lane.
const LISTED: i64 = 0;

/// Returns how many lanes count as many even if few have ready tasks.
pub(super) fn live_lanes(query: &SurveyQuery) -> usize {
    query.first.map_or(0, |first| first.lanes.saturating_mul(LIVE))
}

/// Files lanes whose ready tasks have changed.
pub(super) fn file(lanes: Vec<Digest>) -> Statement {
    let [pools, keys, of, shares] = [const { Vec::<String>::new() }; 4];
    ask!(FILE, lanes, pools, keys, of, shares)
}

fn order(place: &[i64]) -> Outcome<OrderKey> {
    let Ok([rank, date, index, no]) = <[i64; 4]>::try_from(place) else {
        return Err(Fault::Damaged(format!("a place of {} parts", place.len())));
    };
    let index = match index {
        i64::MIN..0 => None,
        index => Some(u32::try_from(index).map_err(|_| Fault::Damaged(format!("{index} is no map index")))?),
    };
    Ok(OrderKey::new(rank, Timestamp::from_micros(date), index, TaskId(no)))
}

/// The results that come with the lanes of a survey.
type Read = (Answer, Answer, Answer);

impl Db<'_> {
    /// Surveys filed lanes without reading all of them. Returns `None` if lanes are not filed, or if all are asked
    /// for.
    pub(super) fn survey_filed(&mut self, query: &SurveyQuery, locks: bool) -> Outcome<Option<Survey>> {
        let Some(begins) = query.first.filter(|_| query.pools == WhichPools::Named) else { return Ok(None) };
        if !self.habits.files_lanes() {
            return Ok(None);
        }
        let asked = match query.promote {
            Some(promote) => self.fold_and_ask(query, promote, begins, locks)?,
            None => self.look_and_ask(query, begins, locks)?,
        };
        let Some((survey, lanes)) = asked else {
            self.habits.file_lanes(false);
            return Ok(None);
        };
        self.reaches.begin();
        self.hands_out |= survey.granted.is_some();
        if survey.granted.is_some() {
            return Ok(Some(survey));
        }
        self.first_lanes(survey, begins, query, &lanes).map(Some)
    }

    /// Runs a tick's statements: folds, files what changed, wakes lanes whose instant has come, and promotes.
    fn fold_and_ask(
        &mut self,
        query: &SurveyQuery,
        promote: Promote,
        begins: First,
        locks: bool,
    ) -> Outcome<Option<(Survey, Answer)>> {
        let [folded] = self.at_tick(locks, [ask!(fold::FOLD, fold::MOST, 0)])?;
        let folded = first(&folded)?;
        let is_behind = !fold::is_whole(folded)?;
        self.reaches.set_folded();
        let changed = Folded::read(folded)?;
        self.reaches.files_lanes = changed.is_some();
        let Some(changed) = changed else { return Ok(None) };
        let now = promote.now.as_micros();
        let wake = ask!(WAKE_BY, begins.now.as_micros(), clamp(begins.wakes), queues(query));
        let [granted, _, _, lanes, token, due] = self.all([
            ask!(REQUEST, request(query)),
            changed.file(),
            wake,
            ask!(FIRST_LANES, clamp(begins.lanes).saturating_add(1), queues(query)),
            ask!(NEXT_TOKEN, queues(query)),
            ask!(NEXT_DUE_FOLDED, Some(now)),
        ])?;
        let granted = granted.first().map(granted_before).transpose()?;
        let mut read = (lanes, token, due);
        let mut promoted = 0;
        let overdue: Option<i64> = row::value(first(&read.2)?, 0)?;
        if granted.is_none() && promote.limit > 0 && overdue.is_some_and(|due| due <= now) {
            let promotion = ask!(promote::PROMOTE, Some(now), clamp(promote.limit));
            let [moved] = self.all([promotion])?;
            let moved = first(&moved)?;
            promoted = row::whole(moved, 0)?;
            let [_, lanes, token, due] = self.all([
                file(row::value::<Option<_>>(moved, 1)?.unwrap_or_default()),
                ask!(FIRST_LANES, clamp(begins.lanes).saturating_add(1), queues(query)),
                ask!(NEXT_TOKEN, queues(query)),
                ask!(NEXT_DUE_FOLDED, Some(now)),
            ])?;
            read = (lanes, token, due);
        }
        // As elsewhere, overdue tasks that were passed over are locked by another transaction.
        let next = usize::from(granted.is_none() && promoted < promote.limit);
        let (mut survey, lanes) = surveyed(read, next)?;
        (survey.granted, survey.promoted, survey.is_behind) = (granted, promoted, is_behind);
        if is_behind {
            survey.next_due = Some(promote.now);
        }
        Ok(Some((survey, lanes)))
    }

    fn look_and_ask(
        &mut self,
        query: &SurveyQuery,
        begins: First,
        locks: bool,
    ) -> Outcome<Option<(Survey, Answer)>> {
        let [look, granted, lanes, token, due] = self.at_tick(
            locks,
            [
                ask!(LOOK_FILED, begins.now.as_micros(), queues(query)),
                ask!(REQUEST, request(query)),
                ask!(FIRST_LANES, clamp(begins.lanes).saturating_add(1), queues(query)),
                ask!(NEXT_TOKEN, queues(query)),
                ask!(NEXT_DUE, None::<i64>),
            ],
        )?;
        let look = first(&look)?;
        if !row::value::<bool>(look, 0)? {
            return Ok(None);
        }
        let (mut survey, lanes) = surveyed((lanes, token, due), 0)?;
        survey.granted = granted.first().map(granted_before).transpose()?;
        survey.is_behind = row::value(look, 1)?;
        Ok(Some((survey, lanes)))
    }

    /// Adds the lanes that a survey returns first, and the capacity that they name.
    fn first_lanes(
        &mut self,
        mut survey: Survey,
        begins: First,
        query: &SurveyQuery,
        rows: &[Row],
    ) -> Outcome<Survey> {
        let (mut named, mut whole) = (Vec::new(), Vec::new());
        for row in rows {
            let lane = self.filed_lane(row)?.sleeps(row::value(row, SLEEPS)?);
            match row::value::<i32>(row, PART)? {
                part if i64::from(part) == LISTED => named.push(lane),
                _ => {
                    named.extend(lane.keeps_slots.then(|| lane.clone()));
                    whole.push(lane);
                }
            }
        }
        if query.promote.is_some() {
            self.stop_filing_if_few(begins.lanes)?;
            self.habits.file_lanes(self.reaches.files_lanes);
        }
        named.sort_unstable_by_key(|lane| lane.id);
        if named.len() > begins.lanes {
            survey.unread = Some(OrderKey::FIRST);
            named.truncate(begins.lanes);
            named.append(&mut whole);
            named.sort_by_key(|lane| lane.id);
            named.dedup_by_key(|lane| lane.id);
        } else {
            survey.unread_shares = None;
        }
        survey.lanes = named;
        self.name_capacity(&mut survey)?;
        Ok(survey)
    }

    /// Reads a lane. Notes how far its pages reach unless that is known.
    fn filed_lane(&mut self, row: &Row) -> Outcome<Lane> {
        let id = LaneId(row::value(row, 1)?);
        let lane = Lane::new(id, self.lane(row, 0, 2)?, row::number(row, 6)?).keeps_slots(id.keeps_slots());
        if self.reaches.get(id).is_none() {
            let found: Reach = reach(row, 0, 7)?;
            self.reaches.put_new(id, found);
        }
        Ok(lane)
    }

    /// Adds the pools and limits that a survey's lanes name, what these limits owe, and what shares hold.
    fn name_capacity(&mut self, survey: &mut Survey) -> Outcome<()> {
        let lanes = survey.lanes.iter().map(|lane| &lane.key);
        let pools: BTreeSet<&PoolName> =
            lanes.clone().flat_map(|key| key.pools()).map(|(pool, _)| pool).collect();
        let keys: BTreeSet<&LimitKey> = lanes.clone().flat_map(|key| &key.limits).collect();
        let shares: BTreeSet<(&PoolName, &LimitKey)> =
            lanes.filter_map(|key| Some((&key.pool, key.share.as_ref()?))).collect();
        let pools =
            ask!(POOLS_IN_USE, pools.into_iter().map(|pool| pool.as_str().to_owned()).collect::<Vec<_>>());
        let keys =
            ask!(LIMITS_IN_USE, keys.into_iter().map(|key| key.as_str().to_owned()).collect::<Vec<_>>());
        let (of, shares): (Vec<String>, Vec<String>) = shares
            .into_iter()
            .map(|(pool, share)| (pool.as_str().to_owned(), share.as_str().to_owned()))
            .unzip();
        let [pools, limits, shares] = self.all([pools, keys, ask!(SHARES_IN_USE, of, shares)])?;
        survey.pools = pools.iter().map(pool::pool).collect::<Outcome<_>>()?;
        survey.limits = limits.iter().map(pool::limit).collect::<Outcome<_>>()?;
        // The number of grants was read with the survey: where no share is named, these rows do not have it.
        (survey.shares, _) = share::read(&shares)?;
        for (limit, row) in survey.limits.iter().zip(&limits) {
            survey.rates.extend(owed(limit.key.clone(), row, super::survey::OWED)?);
        }
        Ok(())
    }

    /// Stops filing lanes if there are too few, over all queues, for it to be worthwhile. From the next tick on, all
    /// lanes are read again.
    fn stop_filing_if_few(&mut self, many: usize) -> Outcome<()> {
        let ready = many.div_ceil(2);
        if self.habits.counts_lanes()
            && self.number(ask!(COUNT_READY_LANES, clamp(ready)))? < ready
            && !self.has_lanes(many.saturating_mul(LIVE / 2))?
        {
            self.one(ask!(FILE_ALL, 0))?;
            self.reaches.files_lanes = false;
        }
        Ok(())
    }

    /// Returns whether there are at least this many lanes, with or without ready tasks.
    fn has_lanes(&mut self, most: usize) -> Outcome<bool> {
        Ok(self.number(ask!(COUNT_LANES, clamp(most)))? >= most)
    }

    /// Files all lanes once more of them have ready tasks than a tick should read. Also files them once there are so
    /// many that going through them costs more: some may be in queues that this tick does not serve, or have no ready
    /// tasks. `live` is their number, if it was counted.
    pub(super) fn file_lanes_if_many(
        &mut self,
        query: &SurveyQuery,
        lanes: usize,
        live: usize,
    ) -> Outcome<()> {
        if query.promote.is_some() && query.first.is_none() && self.reaches.files_lanes {
            // Ticks that read all lanes do not use the order.
            self.stop_filing_if_few(NAMED)?;
        }
        let first = query.first.filter(|_| query.promote.is_some() && !self.reaches.files_lanes);
        let is_many = match first {
            None => false,
            Some(first) if lanes > first.lanes || live >= live_lanes(query) => true,
            Some(_) => self.habits.counts_lanes() && self.has_lanes(live_lanes(query))?,
        };
        if is_many && !self.has_lanes(MOST_AT_ONCE + 1)? {
            self.one(ask!(FILE_ALL, 1))?;
            self.reaches.files_lanes = true;
        }
        if query.promote.is_some() {
            self.habits.file_lanes(self.reaches.files_lanes);
        }
        Ok(())
    }

    pub(in super::super) fn lanes_behind(&mut self, page: &LanesBehind<'_>) -> Outcome<Survey> {
        let queues: Option<Vec<String>> =
            page.queues.map(|queues| queues.iter().map(|queue| queue.as_str().to_owned()).collect());
        let (limit, after) = (clamp(page.limit), Place::of(page.after).0.to_vec());
        let mut survey = Survey::default();
        let rows = match page.of {
            Some(Behind::Turn(turn)) => {
                let rows = self.one(turns_behind(turn, limit, queues))?;
                self.first_of_shares(&mut survey, &rows)?;
                rows
            }
            of => {
                let rows = match of {
                    Some(Behind::Of(of)) => match self.reaches.digest(of.lane) {
                        Some(lane) => self.one(ask!(LANES_OF_SHARE, vec![lane], after, limit))?,
                        None => Answer::new(),
                    },
                    _ => self.one(ask!(LANES_BEHIND, after, limit, queues))?,
                };
                if let Some(row) = rows.first()
                    && let Some(place) = row::value::<Option<Vec<i64>>>(row, UNREAD)?
                {
                    survey.unread = Some(order(&place)?);
                }
                survey.lanes = rows.iter().map(|row| self.filed_lane(row)).collect::<Outcome<_>>()?;
                rows
            }
        };
        if !rows.is_empty() {
            self.name_capacity(&mut survey)?;
        }
        Ok(survey)
    }

    /// Adds the first lanes of contenders, and records what was left out among and after them.
    fn first_of_shares(&mut self, survey: &mut Survey, rows: &[Row]) -> Outcome<()> {
        for row in rows {
            let lane = self.filed_lane(row)?;
            let behind = order(&row::value::<Vec<i64>>(row, FIRST)?)?;
            if row::value(row, ARE_MORE)? {
                survey.unread_of.push(UnreadOf { lane: lane.id, number: lane.id.0, behind, pages: 0 });
            }
            if row::value(row, IS_CUT)? {
                let turn = row::value::<Vec<i64>>(row, TURN)?;
                let (&[level, holds, parts, stamp], Some(share)) = (turn.as_slice(), &lane.key.share) else {
                    return Err(Fault::Damaged(format!("a turn of {} parts", turn.len())));
                };
                let turn = ShareTurn { holds: holds > 0, parts, stamp };
                let pair = Arc::new((lane.key.pool.clone(), share.clone()));
                survey.unread_shares = Some(Turn::of_share(level, turn, pair, behind));
            }
            survey.lanes.push(lane);
        }
        Ok(())
    }

    pub(in super::super) fn put_marks(&mut self, marks: &[Mark]) -> Outcome<()> {
        if !self.reaches.files_lanes {
            return Ok(());
        }
        let (mut lanes, mut pools, mut causes, mut keys, mut nexts) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for mark in marks {
            let (Mark::Class { lane, .. } | Mark::Group { lane, .. }) = mark;
            let Some(digest) = self.reaches.digest(*lane) else { continue };
            lanes.push(digest);
            let (pool, cause, key, next) = match mark {
                Mark::Class { by: Subject::Pool(full), is_full: true, .. } => (Some(full), None, None, None),
                Mark::Class { .. } => (None, None, None, None),
                Mark::Group { cause, next, .. } => {
                    (None, Some(serde_json::to_string(cause)?), cause.key(), *next)
                }
            };
            pools.push(pool.map(|pool| pool.as_str().to_owned()));
            causes.push(cause);
            keys.push(key.map(|key| key.as_str().to_owned()));
            nexts.push(next.map(Timestamp::as_micros));
        }
        let made = self.one(ask!(MARK, lanes, pools, causes, keys, nexts))?;
        let made: Option<Vec<Digest>> = row::value(first(&made)?, 0)?;
        self.reaches.marked.extend(made.unwrap_or_default());
        Ok(())
    }

    /// Removes the marks that the transaction made. They assume a plan that was not granted.
    pub(super) fn take_marks_back(&mut self) -> Outcome<()> {
        let marked = std::mem::take(&mut self.reaches.marked);
        if !marked.is_empty() {
            self.one(ask!(WAKE_NODES, marked))?;
        }
        Ok(())
    }
}

fn turns_behind(behind: &Turn, limit: i64, queues: Option<Vec<String>>) -> Statement {
    let (turn, pair, head) = match &behind.place {
        Whose::Share(turn, pair, head) => {
            ([i64::from(turn.holds), turn.parts, turn.stamp], Some(pair), *head)
        }
        Whose::Alone(_) => ([0, i64::MIN, i64::MIN], None, OrderKey::FIRST),
    };
    ask!(
        TURNS_BEHIND,
        std::iter::once(behind.level).chain(turn).collect::<Vec<i64>>(),
        pair.map(|pair| pair.0.as_str().to_owned()),
        pair.map(|pair| pair.1.as_str().to_owned()),
        Place::of(head).0.to_vec(),
        limit,
        queues,
    )
}

fn granted_before(row: &Row) -> Outcome<Vec<LeaseRef>> {
    let (ids, epochs): (Vec<i64>, Vec<i64>) = (row::value(row, 0)?, row::value(row, 1)?);
    Ok(ids.iter().zip(epochs).map(|(id, epoch)| LeaseRef::new(TaskId(*id), epoch)).collect())
}

/// Returns the parts of a survey that do not concern lanes.
fn surveyed((lanes, token, due): Read, next: usize) -> Outcome<(Survey, Answer)> {
    let Around { due, serving, beside } = Around::read(&due)?;
    let token = first(&token)?;
    let next_token: Option<i64> = row::value(token, 0)?;
    let has_shares: bool = row::value(token, 1)?;
    let survey = Survey {
        next_due: due[next].map(Timestamp::from_micros),
        next_token: next_token.map(Timestamp::from_micros),
        unread_shares: has_shares.then_some(Turn::FIRST),
        grants: row::value(token, 2)?,
        serving,
        families: beside.families,
        paused: beside.paused,
        clock: beside.clock,
        ..Survey::default()
    };
    Ok((survey, lanes))
}
