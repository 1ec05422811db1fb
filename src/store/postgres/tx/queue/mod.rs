//! Who serves which queues, and what is in them.

use std::time::Duration;

use tokio_postgres::Row;

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, Digest, row};
use crate::admission::{QueueRecord, Serving};
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::time::{Timestamp, duration_micros};

pub(super) const SERVING: &str = statement!("serving.sql");
pub(super) const PUT_SERVING: &str = statement!("put_serving.sql");
pub(super) const FORGET_SERVING: &str = statement!("forget_serving.sql");
pub(super) const QUEUES: &str = statement!("queues.sql");

/// Reads the holders' announcements from the arrays that a survey returns with the next due instant.
pub(super) fn serving(row: &Row) -> Outcome<Vec<Serving>> {
    let holders: Vec<String> = row::value::<Option<_>>(row, 2)?.unwrap_or_default();
    let queues: Vec<String> = row::value::<Option<_>>(row, 3)?.unwrap_or_default();
    let instants: Vec<i64> = row::value::<Option<_>>(row, 4)?.unwrap_or_default();
    let leases: Vec<i64> = row::value::<Option<_>>(row, 5)?.unwrap_or_default();
    let serving = holders.into_iter().zip(queues).zip(instants).zip(leases);
    in_order(serving.map(|(((holder, queues), announced_at), lease)| (holder, queues, announced_at, lease)))
}

/// Reads the holders' announcements, each a JSON array of holder, queues, instant and lease length.
pub(super) fn serving_of_texts(texts: Vec<String>) -> Outcome<Vec<Serving>> {
    let serving: Vec<(String, String, i64, i64)> =
        texts.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>()?;
    in_order(serving)
}

fn in_order(serving: impl IntoIterator<Item = (String, String, i64, i64)>) -> Outcome<Vec<Serving>> {
    let serving: Outcome<_> = serving
        .into_iter()
        .map(|(holder, queues, announced_at, lease)| {
            let (queues, lease) =
                (serde_json::from_str(&queues)?, Duration::from_micros(lease.unsigned_abs()));
            Ok(Serving::new(holder.try_into()?, queues, Timestamp::from_micros(announced_at), lease))
        })
        .collect();
    serving.map(records::in_order)
}

impl Db<'_> {
    pub(super) fn put_serving(&mut self, serving: &Serving, forget: Timestamp) -> Outcome<()> {
        let holder = serving.holder.as_str();
        let queues = serde_json::to_string(&serving.queues)?;
        let digest = vec![Digest::of(&queues)];
        let (announced_at, lease) = (serving.announced_at.as_micros(), duration_micros(serving.lease));
        let until = serving.until().as_micros();
        let put = ask!(PUT_SERVING, holder, queues, announced_at, lease, until, digest.clone());
        self.habits.announced();
        self.at_tick(true, [put, ask!(FORGET_SERVING, forget.as_micros(), holder, digest)]).map(drop)
    }

    pub(super) fn serving(&mut self) -> Outcome<Vec<Serving>> {
        let serving: Outcome<_> = self.one(ask!(SERVING))?.iter().map(records::serving).collect();
        serving.map(records::in_order)
    }

    pub(super) fn queues(&mut self) -> Outcome<Vec<QueueRecord>> {
        let queue = |row: &Row| {
            let [ready, waiting, leased, sensing] = [1, 2, 3, 4].map(|at| row::number(row, at));
            Ok(QueueRecord::new(row::name(row, 0)?, ready?, waiting?, leased?, sensing?))
        };
        self.one(ask!(QUEUES))?.iter().map(queue).collect()
    }
}
