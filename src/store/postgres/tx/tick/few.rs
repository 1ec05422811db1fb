//! Grants tasks of one lane without limits. The commit is sent along.
//!
//! Setting up the plan of [`GRANT`](super::GRANT) costs the server more than granting a few tasks.

use super::super::super::wire::{Statement, ask};
use super::super::Digest;
use super::reach::{Place, Raised};
use crate::store::contract::GrantBatch;
use crate::store::sql::statement::statement;

pub(in super::super) const GRANT_FEW: &str = statement!("grant_few.sql");
const TAKE_FEW: &str = "SELECT sm._take_few($1::bigint[], ($2::uuid[])[1], $3::bigint[], $4::bigint[], $5::bigint, $6::text, $7::text, $8::bigint, $9::bigint)";

/// For more tasks than this, the plan is a small part of the cost.
const MOST: usize = 16;

/// The tasks to grant, all of one lane.
pub(super) struct Few<'a> {
    ids: &'a [i64],
    lane: Digest,
    places: &'a [(Digest, Place)],
    raised: Option<&'a Raised>,
}

impl<'a> Few<'a> {
    /// Returns `None` if there are many tasks, or if they are not of one lane.
    pub(super) fn new(ids: &'a [i64], places: &'a [(Digest, Place)], raised: &'a [Raised]) -> Option<Self> {
        let &(lane, _) = places.first()?;
        let is_one = ids.len() <= MOST && places.iter().all(|(digest, _)| *digest == lane);
        is_one.then(|| Self { ids, lane, places, raised: raised.iter().find(|raised| raised.digest == lane) })
    }

    /// Moves the tasks.
    pub(super) fn grant(&self, batch: &GrantBatch<'_>) -> Statement {
        let place = |at: usize| self.places.iter().map(|(_, place)| place.0[at]).collect::<Vec<i64>>();
        ask!(
            GRANT_FEW,
            self.ids.to_vec(),
            place(0),
            place(1),
            place(2),
            vec![self.lane],
            batch.holder.as_str(),
            batch.expires_at.as_micros(),
            batch.now.as_micros(),
            i64::from(batch.started),
        )
    }

    /// Counts the tasks, and fails if not all were moved or if there is no room. Also deletes at most `most` ticks
    /// from before `before`, and returns how many.
    pub(super) fn take(&self, batch: &GrantBatch<'_>, before: i64, most: i64) -> Statement {
        ask!(
            TAKE_FEW,
            self.ids.to_vec(),
            vec![self.lane],
            self.raised.map_or(Vec::new(), |raised| raised.bound.0.to_vec()),
            self.raised.map_or(Vec::new(), |raised| raised.early.clone()),
            batch.now.as_micros(),
            batch.request.map(|request| request.as_str().to_owned()),
            batch.replaces.map(|request| request.as_str().to_owned()),
            before,
            most,
        )
    }
}
