//! Families, rates and pauses.

use std::collections::HashSet;
use std::time::Duration;

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::wire::ask;
use super::{Db, clamp, row};
use crate::admission::Subject;
use crate::admission::limits::{LimitSpec, Rate, RateUse};
use crate::id::LimitKey;
use crate::store::contract::LeasesByLane;
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::time::{Timestamp, duration_micros};

const PUT_FAMILIES: &str = statement!("put_families.sql");
const DELETE_FAMILIES: &str = statement!("delete_families.sql");
pub(super) const FAMILIES: &str = statement!("families.sql");
pub(super) const PAUSE: &str = statement!("pause.sql");
pub(super) const RESUME: &str = statement!("resume.sql");
pub(super) const PAUSED: &str = statement!("paused.sql");
pub(super) const LEASES: &str = statement!("leases.sql");
pub(super) const RATES: &str = statement!("rates.sql");
pub(super) const PUT_RATES: &str = statement!("put_rates.sql");

/// The most keys that a grant deletes, in addition to two for each key that took a token.
const FORGET: usize = 64;

/// Names, maxima, starts, periods, bursts and weights, with one array per column.
pub(super) type RuleColumns = (Vec<String>, [Vec<Option<i64>>; 5]);

pub(super) fn rule_columns(specs: &[&LimitSpec]) -> RuleColumns {
    let column = |value: fn(&LimitSpec) -> Option<i64>| specs.iter().map(|spec| value(spec)).collect();
    (
        specs.iter().map(|spec| spec.key.as_str().to_owned()).collect(),
        [
            column(|spec| spec.max.map(i64::from)),
            column(|spec| spec.rate.map(|rate| rate.starts().into())),
            column(|spec| spec.rate.map(|rate| duration_micros(rate.period()))),
            column(|spec| spec.rate.map(|rate| rate.most_at_once().into())),
            column(|spec| spec.weight.map(i64::from)),
        ],
    )
}

fn parts(subjects: &[Subject]) -> (Vec<i64>, Vec<String>) {
    subjects.iter().map(Subject::parts).map(|(kind, name)| (kind, name.to_owned())).unzip()
}

/// Reads an array from a column. NULL becomes an empty one.
fn array<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, at: usize) -> Outcome<Vec<T>> {
    Ok(row::value::<Option<_>>(row, at)?.unwrap_or_default())
}

/// What a survey returns with the next due instant: families, pauses, and the latest instant at which a key took a
/// token.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) families: Vec<LimitSpec>,
    pub(super) paused: Vec<Subject>,
    pub(super) clock: Option<Timestamp>,
}

impl Beside {
    /// Reads them from this column on.
    pub(super) fn read(row: &Row, at: usize) -> Outcome<Self> {
        let prefixes: Vec<String> = array(row, at)?;
        let [maxima, starts, periods, bursts, weights] =
            [1, 2, 3, 4, 5].map(|column| array::<Option<i64>>(row, at + column));
        let numbers = maxima?.into_iter().zip(starts?).zip(periods?).zip(bursts?).zip(weights?);
        let families = prefixes.into_iter().zip(numbers).map(|(prefix, numbers)| {
            let ((((max, starts), period), burst), weight) = numbers;
            let spec = LimitSpec::of(prefix.try_into()?).family();
            rule(spec, max, starts.zip(period).zip(burst), weight)
        });
        let (kinds, names): (Vec<i64>, Vec<String>) = (array(row, at + 6)?, array(row, at + 7)?);
        let paused = kinds.into_iter().zip(names).map(|(kind, name)| subject(kind, name));
        let clock: Option<i64> = row::value(row, at + 8)?;
        Ok(Self {
            families: families.collect::<Outcome<_>>()?,
            paused: paused.collect::<Outcome<_>>()?,
            clock: clock.map(Timestamp::from_micros),
        })
    }
}

fn rule(
    spec: LimitSpec,
    max: Option<i64>,
    rate: Option<((i64, i64), i64)>,
    weight: Option<i64>,
) -> Outcome<LimitSpec> {
    let damaged = || Fault::Damaged(format!("the definition of {} is out of range", spec.key));
    let small = |value: i64| u32::try_from(value).map_err(|_| damaged());
    let rate = match rate {
        None => None,
        Some(((starts, period), burst)) => {
            let rate = Rate::new(small(starts)?, Duration::from_micros(period.unsigned_abs()));
            Some(rate.map_err(|_| damaged())?.burst(small(burst)?).map_err(|_| damaged())?)
        }
    };
    let (max, weight) = (max.map(small).transpose()?, weight.map(small).transpose()?);
    Ok(LimitSpec { max, rate, weight, ..spec })
}

fn subject(kind: i64, name: String) -> Outcome<Subject> {
    Ok(match kind {
        0 => Subject::Queue(name.try_into()?),
        1 => Subject::Pool(name.try_into()?),
        2 => Subject::Key(name.try_into()?),
        3 => Subject::Family(name.try_into()?),
        _ => return Err(Fault::Damaged(format!("what is paused has the unknown kind {kind}"))),
    })
}

/// Reads from four columns what a key owes, if anything.
pub(super) fn owed(key: LimitKey, row: &Row, at: usize) -> Outcome<Option<RateUse>> {
    let Some(owed) = row::value::<Option<i64>>(row, at)? else { return Ok(None) };
    let (last, period): (i64, i64) = (row::value(row, at + 1)?, row::value(row, at + 3)?);
    let (starts, period) = (row::count(row, at + 2)?, Duration::from_micros(period.unsigned_abs()));
    Ok(Some(RateUse::new(key, owed, Timestamp::from_micros(last), starts, period)))
}

impl Db<'_> {
    pub(super) fn put_families(&mut self, specs: &[&LimitSpec]) -> Outcome<()> {
        let (prefixes, [maxima, starts, periods, bursts, weights]) = rule_columns(specs);
        self.define(ask!(PUT_FAMILIES, prefixes, maxima, starts, periods, bursts, weights), true).map(drop)
    }

    /// Returns which ones existed. A prefix that is named twice is deleted once.
    pub(super) fn delete_families(&mut self, prefixes: &[LimitKey]) -> Outcome<Vec<bool>> {
        let names: Vec<String> = prefixes.iter().map(|prefix| prefix.as_str().to_owned()).collect();
        let rows = self.define(ask!(DELETE_FAMILIES, names), true)?;
        let mut gone: HashSet<String> = rows.iter().map(|row| row::value(row, 0)).collect::<Outcome<_>>()?;
        Ok(prefixes.iter().map(|prefix| gone.remove(prefix.as_str())).collect())
    }

    pub(super) fn families(&mut self) -> Outcome<Vec<LimitSpec>> {
        self.one(ask!(FAMILIES))?.iter().map(records::family).collect()
    }

    pub(super) fn put_paused(&mut self, subjects: &[Subject], paused: bool) -> Outcome<Vec<bool>> {
        let (kinds, names) = parts(subjects);
        let changed = self.define(ask!(if paused { PAUSE } else { RESUME }, kinds, names), !paused)?;
        let mut answers = vec![false; subjects.len()];
        for row in &changed {
            if let Some(answer) = answers.get_mut(row::place(row, 0)?) {
                *answer = true;
            }
        }
        Ok(answers)
    }

    pub(super) fn paused(&mut self) -> Outcome<Vec<Subject>> {
        self.one(ask!(PAUSED))?.iter().map(records::subject).collect()
    }

    pub(super) fn leases(&mut self) -> Outcome<(Vec<Subject>, LeasesByLane)> {
        let (mut paused, mut leases) = (Vec::new(), Vec::new());
        for row in &self.one(ask!(LEASES))? {
            match row::value::<Option<i64>>(row, 4)? {
                None => paused.push(subject(row::value(row, 1)?, row::value(row, 0)?)?),
                Some(_) => leases.push((row::lane_key(row, 0)?, row::number(row, 4)?)),
            }
        }
        paused.sort_unstable();
        Ok((paused, leases))
    }

    pub(super) fn rates(&mut self, keys: &[LimitKey]) -> Outcome<(Vec<RateUse>, Option<Timestamp>)> {
        let names: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let (mut found, mut clock) = (Vec::new(), None);
        for row in &self.one(ask!(RATES, names))? {
            clock = Some(Timestamp::from_micros(row::value(row, 5)?));
            if let Some(key) = row::maybe_name(row, 0)? {
                found.extend(owed(key, row, 1)?);
            }
        }
        Ok((found, clock))
    }

    pub(super) fn put_rates(&mut self, rates: &[RateUse]) -> Outcome<()> {
        let column = |value: fn(&RateUse) -> i64| rates.iter().map(value).collect::<Vec<i64>>();
        self.one(ask!(
            PUT_RATES,
            rates.iter().map(|used| used.key.as_str().to_owned()).collect::<Vec<_>>(),
            column(|used| used.owed),
            column(|used| used.at.as_micros()),
            column(|used| used.starts.into()),
            column(|used| duration_micros(used.period)),
            column(|used| used.full_at().as_micros()),
            clamp(FORGET + 2 * rates.len()),
        ))
        .map(drop)
    }
}
