//! An admission tick: the data it plans with, the tasks it may admit, and what it commits. Each is one round
//! trip.

pub(super) mod ahead;
pub(super) mod few;
pub(super) mod filed;
mod reach;
pub(super) mod share;
pub(super) mod survey;

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;

pub(super) use self::reach::Reaches;
use self::reach::{Place, Reach, Ready};
use super::super::error::{Fault, Outcome};
use super::super::tick_lock;
use super::super::wire::{Answer, Statement, ask};
use super::{Db, Digest, clamp, first, row};
use crate::admission::{Candidate, LaneId, LanePage, OrderKey};
use crate::lease::TaskId;
use crate::store::contract::{GrantBatch, Granted};
use crate::store::sql::statement::statement;
use crate::task::TaskRecord;
use crate::time::Timestamp;

pub(super) const REQUEST: &str = statement!("request.sql");
pub(super) const NEXT_DUE: &str =
    statement!("next_due.sql", due = "least(last.due, (SELECT min(due) FROM sm.unfolded))");
/// Right after a fold. The tick's row includes the instants of all that it folded. What was committed since is found by
/// the next fold.
pub(super) const NEXT_DUE_FOLDED: &str = statement!("next_due.sql", due = "last.due");
pub(super) const READY_LANES: &str = statement!("ready_lanes.sql");
pub(super) const BOUNDS: &str = statement!("bounds.sql");
pub(super) const FOLDED_LANES: &str = statement!("folded_lanes.sql");
pub(super) const FOLDED_POOLS: &str = statement!("folded_pools.sql");
pub(super) const FOLDED_LIMITS: &str = statement!("folded_limits.sql");
pub(super) const NAMED_POOLS: &str = statement!("named_pools.sql");
pub(super) const NAMED_LIMITS: &str = statement!("named_limits.sql");
const LOCK: &str = "FOR UPDATE SKIP LOCKED";
pub(super) const CANDIDATES: &str = statement!("candidates.sql", lock = "OFFSET 0");
pub(super) const CANDIDATES_LOCKED: &str = statement!("candidates.sql", lock = LOCK);
pub(super) const KEEPING: &str = statement!("keeping.sql", lock = "OFFSET 0");
pub(super) const KEEPING_LOCKED: &str = statement!("keeping.sql", lock = LOCK);
pub(super) const GRANT: &str = statement!("grant.sql");
/// [`GRANT`] for tasks in lanes without limits.
pub(super) const GRANT_PLAIN: &str = statement!("grant.sql", plain);
pub(in super::super) const TICK_HOLDER: &str = statement!("tick_holder.sql");
pub(super) const FORGET_REQUESTS: &str = statement!("forget_requests.sql");

/// Reads a lane's bound from this column, and its early tasks from the next one.
fn reach(row: &Row, digest: usize, bound: usize) -> Outcome<Reach> {
    let place: Option<Vec<i64>> = row::value(row, bound)?;
    let place = place.and_then(|place| place.try_into().ok()).map_or(Place::BEGIN, Place);
    Ok(Reach::new(row::value(row, digest)?, place, row::value(row, bound + 1)?))
}

impl Db<'_> {
    /// Like [`Self::all`], but first takes the tick lock if `locks` is set and the transaction does not have
    /// it.
    pub(super) fn at_tick<const N: usize>(
        &mut self,
        locks: bool,
        statements: [Statement; N],
    ) -> Outcome<[Answer; N]> {
        if !locks || self.reaches.holds_lock {
            return self.all(statements);
        }
        let mut batch = vec![ask!(if self.is_own { tick_lock::ENTER } else { tick_lock::TICK })];
        batch.extend(statements);
        let mut answers = self.send(batch, |wire, batch, touch| wire.send(batch, touch))?;
        answers.drain(..1.min(answers.len()));
        self.reaches.holds_lock = true;
        self.hurries = self.is_own;
        answers.try_into().map_err(|answers: Vec<Answer>| {
            Fault::Damaged(format!("{} statements of {N} were answered", answers.len()))
        })
    }

    pub(super) fn candidates(&mut self, pages: &[LanePage]) -> Outcome<Vec<Candidate>> {
        self.meet(pages)?;
        // For each page whose lane exists: the page, its lane, and the place it is read from.
        let begins = |page: &LanePage| page.after.map_or(Place::BEGIN, Place::behind);
        let asked: Vec<(&LanePage, Digest, Place)> = pages
            .iter()
            .filter_map(|page| self.reaches.get(page.lane).map(|lane| (page, lane)))
            .map(|(page, lane)| (page, lane.digest, begins(page).max(lane.bound)))
            .collect();
        let read = match self.reaches.take_fetched(pages) {
            Some(fetched) => fetched,
            None => self.read_all_pages(&asked)?,
        };
        let mut candidates = Vec::new();
        for ((page, _, from), ready) in asked.into_iter().zip(read) {
            let Some(lane) = self.reaches.get_mut(page.lane) else { continue };
            for (place, ready_at) in lane.page(begins(page), from, ready, page.limit) {
                candidates.push(candidate(page, place, ready_at)?);
            }
        }
        Ok(candidates)
    }

    /// Reads pages of both kinds of lanes.
    fn read_all_pages(&mut self, asked: &[Asking<'_>]) -> Outcome<Vec<Vec<Ready>>> {
        if !asked.iter().any(|(page, ..)| page.lane.keeps_slots()) {
            return if asked.is_empty() { Ok(Vec::new()) } else { self.read_pages(asked) };
        }
        let (keeping, others): (Vec<Asking<'_>>, Vec<Asking<'_>>) =
            asked.iter().partition(|(page, ..)| page.lane.keeps_slots());
        let statement = if self.reaches.is_second() { KEEPING_LOCKED } else { KEEPING };
        let [ranks, dates, indices, numbers] = begins(&keeping);
        let rows =
            self.one(ask!(statement, digests(&keeping), ranks, dates, indices, numbers, limits(&keeping)))?;
        let mut kept: Vec<Vec<Ready>> = vec![Vec::new(); keeping.len()];
        for row in &rows {
            kept.get_mut(row::place(row, 0)?).into_iter().try_for_each(|page| {
                page.push(ready(row)?);
                Ok::<(), Fault>(())
            })?;
        }
        kept.iter_mut().for_each(|page| page.sort_unstable());
        let others = if others.is_empty() { Vec::new() } else { self.read_pages(&others)? };
        let (mut kept, mut others) = (kept.into_iter(), others.into_iter());
        let next = |(page, ..): &Asking<'_>| {
            let of = if page.lane.keeps_slots() { &mut kept } else { &mut others };
            of.next().unwrap_or_default()
        };
        Ok(asked.iter().map(next).collect())
    }

    /// Reads pages, each from its start, and the early tasks of their lanes.
    fn read_pages(&mut self, asked: &[Asking<'_>]) -> Outcome<Vec<Vec<Ready>>> {
        let ids: HashSet<LaneId> = asked.iter().map(|(page, ..)| page.lane).collect();
        let early = ids.iter().filter_map(|id| self.reaches.get(*id)).filter(|lane| lane.asks_for_early());
        let (early_lanes, early): (Vec<Digest>, Vec<i64>) =
            early.flat_map(|lane| lane.early.iter().map(|no| (lane.digest, *no))).unzip();
        let [ranks, dates, indices, numbers] = begins(asked);
        // The usual tick locks only what it grants. If another transaction has locked some of it, the tick
        // plans again, and then locks candidates as it reads them.
        let statement = if self.reaches.is_second() { CANDIDATES_LOCKED } else { CANDIDATES };
        let rows = self.one(ask!(
            statement,
            digests(asked),
            ranks,
            dates,
            indices,
            numbers,
            limits(asked),
            early_lanes,
            early,
        ))?;
        let mut read: Vec<Vec<Ready>> = vec![Vec::new(); asked.len()];
        let mut found: HashMap<Digest, Vec<Ready>> = HashMap::new();
        for row in &rows {
            let ready = ready(row)?;
            match row::value::<Option<i64>>(row, 0)? {
                None => found.entry(row::value(row, 1)?).or_default().push(ready),
                Some(_) => read.get_mut(row::place(row, 0)?).into_iter().for_each(|page| page.push(ready)),
            }
        }
        for id in ids {
            if let Some(lane) = self.reaches.get_mut(id) {
                lane.found_early(found.remove(&lane.digest).unwrap_or_default());
            }
        }
        read.iter_mut().for_each(|page| page.sort_unstable());
        Ok(read)
    }

    /// Looks up those lanes of these pages that the transaction does not know, or no longer knows.
    fn meet(&mut self, pages: &[LanePage]) -> Outcome<()> {
        let unknown: HashSet<LaneId> =
            pages.iter().map(|page| page.lane).filter(|id| self.reaches.get(*id).is_none()).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let digests: Vec<(Digest, LaneId)> =
            unknown.iter().filter_map(|id| Some((self.reaches.digest(*id)?, *id))).collect();
        let numbers: Vec<i64> = unknown.iter().map(|id| id.assigned().0).collect();
        let asked: Vec<Digest> = digests.iter().map(|(digest, _)| *digest).collect();
        for row in self.one(ask!(BOUNDS, numbers, asked))? {
            let (digest, no): (Digest, i64) = (row::value(&row, 0)?, row::value(&row, 1)?);
            for id in &unknown {
                let known = digests.iter().find(|(_, lane)| lane == id);
                if !known.map_or(id.assigned().0 == no, |(of, _)| *of == digest) {
                    continue;
                }
                let lane = if id.keeps_slots() {
                    Reach::new(digest, Place::BEGIN, Vec::new())
                } else {
                    reach(&row, 0, 2)?
                };
                self.reaches.put(*id, lane);
            }
        }
        Ok(())
    }

    pub(super) fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> Outcome<Granted> {
        if !self.reaches.is_folded {
            self.fold()?;
            self.reaches.begin();
        }
        let mut places: HashMap<i64, usize> = HashMap::with_capacity(batch.tasks.len());
        let mut ids: Vec<i64> = batch.tasks.iter().map(|id| id.0).collect();
        ids.retain(|id| {
            let place = places.len();
            *places.entry(*id).or_insert(place) == place
        });
        let request = batch.request.map(|request| request.as_str().to_owned());
        let replaces = batch.replaces.map(|request| request.as_str().to_owned());
        let (before, limit, most) = match batch.forget {
            Some(forget) => (forget.before.as_micros(), clamp(forget.limit), forget.most.map(clamp)),
            None => (i64::MIN, 0, None),
        };
        // Tokens and the stamps of shares are recorded after the grant, under the same lock.
        let notes_more = !batch.rates.is_empty() || !batch.shares.is_empty();
        let is_last = self.is_last() && self.reaches.holds_lock && batch.whole && !notes_more;
        let raised = self.reaches.raised(&ids);
        let stand = self.reaches.places(&ids).unwrap_or_default();
        let keeping = if stand.is_empty() { ids.clone() } else { self.reaches.keeping(&ids) };
        let plain = !stand.is_empty() && !self.reaches.carry_limits();
        let keeping_none = keeping.is_empty();
        let place = |at: usize| stand.iter().map(|(_, place)| place.0[at]).collect::<Vec<i64>>();
        let bound = |at: usize| raised.iter().map(|lane| lane.bound.0[at]).collect::<Vec<i64>>();
        let (early_lanes, early): (Vec<Digest>, Vec<i64>) =
            raised.iter().flat_map(|lane| lane.early.iter().map(|no| (lane.digest, *no))).unzip();
        let grant = ask!(
            if plain { GRANT_PLAIN } else { GRANT },
            ids.clone(),
            batch.holder.as_str(),
            batch.expires_at.as_micros(),
            batch.now.as_micros(),
            request,
            replaces,
            raised.iter().map(|lane| lane.digest).collect::<Vec<_>>(),
            bound(0),
            bound(1),
            bound(2),
            bound(3),
            early_lanes,
            early,
            i64::from(batch.whole),
            i64::from(batch.started),
            stand.iter().map(|(lane, _)| *lane).collect::<Vec<_>>(),
            place(0),
            place(1),
            place(2),
            keeping,
            i64::from(is_last),
        );
        let forget = ask!(FORGET_REQUESTS, before, limit, most);
        let is_filed = self.reaches.files_lanes;
        let few =
            few::Few::new(&ids, &stand, &raised).filter(|_| is_last && keeping_none && plain && !is_filed);
        let mut unfiled = Vec::new();
        let [grants, forgotten] = match few {
            // Each lane is filed as the grant leaves it.
            _ if is_filed && is_last && !stand.is_empty() => {
                let lanes: HashSet<Digest> = stand.iter().map(|(lane, _)| *lane).collect();
                let file = filed::file(lanes.into_iter().collect());
                let [grants, _, forgotten] = self.all_last([grant, file, forget])?;
                [grants, forgotten]
            }
            _ if is_filed => {
                let [grants, forgotten] = self.at_tick(true, [grant, forget])?;
                unfiled = grants.iter().map(|row| row::value(row, row::LANE)).collect::<Outcome<_>>()?;
                [grants, forgotten]
            }
            // Only if the number of ticks is limited must the statement look at all of them.
            Some(few) if most.is_none() => {
                self.all_last([few.grant(batch), few.take(batch, before, limit)])?
            }
            Some(few) => {
                let [grants, _, forgotten] =
                    self.all_last([few.grant(batch), few.take(batch, before, 0), forget])?;
                [grants, forgotten]
            }
            None if is_last => self.all_last([grant, forget])?,
            None => self.at_tick(true, [grant, forget])?,
        };
        self.hands_out |= !grants.is_empty();
        // Not sent along with the grant: if that finds a task locked, the tokens belong to another plan.
        if !grants.is_empty() && !batch.rates.is_empty() {
            self.put_rates(batch.rates)?;
        }
        if !grants.is_empty() && !batch.shares.is_empty() {
            self.stamp_shares(batch.shares)?;
        }
        // After the stamps, because these decide the turns.
        if !unfiled.is_empty() {
            self.one(filed::file(unfiled))?;
        }
        match grants.is_empty() && batch.whole {
            true => {
                self.take_marks_back()?;
                self.reaches.again();
            }
            false => self.reaches.begin(),
        }
        if let Some(grant) = grants.first()
            && !row::value::<bool>(grant, row::AFTER_TASK + 1)?
        {
            let text = "ready tasks were granted in a lane that is not counted: restore a backup";
            return Err(Fault::Damaged(text.into()));
        }
        let mut tasks =
            grants.iter().map(|row| row::task(self, row)).collect::<Outcome<Vec<TaskRecord>>>()?;
        tasks.sort_unstable_by_key(|task| places.get(&task.id.0));
        let had_room = grants.first().map_or(Ok(true), |row| row::value(row, row::AFTER_TASK))?;
        Ok(Granted::new(tasks, had_room, row::whole(first(&forgotten)?, 0)?))
    }
}

/// A page, its lane, and the place it is read from.
type Asking<'a> = (&'a LanePage, Digest, Place);

fn digests(asked: &[Asking<'_>]) -> Vec<Digest> {
    asked.iter().map(|(_, digest, _)| *digest).collect()
}

fn begins(asked: &[Asking<'_>]) -> [Vec<i64>; 4] {
    [0, 1, 2, 3].map(|at| asked.iter().map(|(_, _, from)| from.0[at]).collect())
}

fn limits(asked: &[Asking<'_>]) -> Vec<i64> {
    asked.iter().map(|(page, ..)| clamp(page.limit)).collect()
}

/// Reads a ready task. Its row begins with the index of its page and the task's lane.
fn ready(row: &Row) -> Outcome<Ready> {
    let mut place = [0; 4];
    for (at, part) in place.iter_mut().enumerate() {
        *part = row::value(row, at + 2)?;
    }
    Ok((Place(place), row::value(row, 6)?))
}

fn candidate(page: &LanePage, place: Place, ready_at: i64) -> Outcome<Candidate> {
    let [rank, date, index, no] = place.0;
    let index = match index {
        -1 => None,
        index => Some(u32::try_from(index).map_err(|_| Fault::Damaged(format!("{index} is no map index")))?),
    };
    let order = OrderKey::new(rank, Timestamp::from_micros(date), index, TaskId(no));
    let candidate = Candidate::new(page.lane, order);
    Ok(if page.with_ready_at { candidate.ready_at(Timestamp::from_micros(ready_at)) } else { candidate })
}
