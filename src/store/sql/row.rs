//! Reads the columns of a row from either database.

use std::num::NonZeroU32;
use std::str::FromStr;

use super::codes::{Code, UnknownCode};
use crate::error::Invalid;
use crate::id::{Holder, Namespace, RunId, SensorKind, TaskKey, WorkflowId};
use crate::time::Timestamp;

/// A column contains a value that the store never wrote.
#[derive(Debug)]
pub(in crate::store) struct Damaged(pub(in crate::store) String);

pub(in crate::store) fn out_of_range(value: i64) -> Damaged {
    Damaged(format!("{value} is out of range"))
}

/// A driver's row. Columns are identified by their position, from 0.
pub(in crate::store) trait ReadRow {
    type Fault: From<Damaged> + From<Invalid> + From<UnknownCode> + From<serde_json::Error>;

    fn integer(&self, at: usize) -> Read<i64, Self>;

    fn maybe_integer(&self, at: usize) -> Read<Option<i64>, Self>;

    /// Reads a text that the store wrote.
    fn text(&self, at: usize) -> Read<&str, Self>;

    fn maybe_text(&self, at: usize) -> Read<Option<&str>, Self>;

    /// Reads a text that the host passed, unchanged.
    fn host_text(&self, at: usize) -> Read<String, Self>;

    fn maybe_host_text(&self, at: usize) -> Read<Option<String>, Self>;
}

/// The value that was read, or why it could not be read.
pub(in crate::store) type Read<T, R> = Result<T, <R as ReadRow>::Fault>;

pub(in crate::store) fn name<T: FromStr<Err = Invalid>, R: ReadRow>(row: &R, at: usize) -> Read<T, R> {
    Ok(row.text(at)?.parse()?)
}

pub(in crate::store) fn maybe_name<T, R>(row: &R, at: usize) -> Read<Option<T>, R>
where
    T: FromStr<Err = Invalid>,
    R: ReadRow,
{
    Ok(row.maybe_text(at)?.map(str::parse).transpose()?)
}

pub(in crate::store) fn count<R: ReadRow>(row: &R, at: usize) -> Read<u32, R> {
    let value = row.integer(at)?;
    Ok(u32::try_from(value).map_err(|_| out_of_range(value))?)
}

pub(in crate::store) fn at_least_one<R: ReadRow>(row: &R, at: usize) -> Read<NonZeroU32, R> {
    Ok(NonZeroU32::new(count(row, at)?).ok_or_else(|| out_of_range(0))?)
}

pub(in crate::store) fn number<R: ReadRow>(row: &R, at: usize) -> Read<u64, R> {
    let value = row.integer(at)?;
    Ok(u64::try_from(value).map_err(|_| out_of_range(value))?)
}

pub(in crate::store) fn instant<R: ReadRow>(row: &R, at: usize) -> Read<Timestamp, R> {
    row.integer(at).map(Timestamp::from_micros)
}

pub(in crate::store) fn maybe_instant<R: ReadRow>(row: &R, at: usize) -> Read<Option<Timestamp>, R> {
    Ok(row.maybe_integer(at)?.map(Timestamp::from_micros))
}

pub(in crate::store) fn code<T: Code, R: ReadRow>(row: &R, at: usize) -> Read<T, R> {
    Ok(T::from_code(row.integer(at)?)?)
}

/// Reads a map index. A task that is not mapped has -1, so that it sorts before its mapped ones.
pub(in crate::store) fn map_index<R: ReadRow>(row: &R, at: usize) -> Read<Option<u32>, R> {
    match row.integer(at)? {
        -1 => Ok(None),
        _ => count(row, at).map(Some),
    }
}

pub(in crate::store) fn map_index_value(index: Option<u32>) -> i64 {
    index.map_or(-1, i64::from)
}

/// The names in the previous row. The next row often has the same names, and then shares them.
#[derive(Debug, Default)]
pub(in crate::store) struct Names {
    namespace: Option<Namespace>,
    workflow: Option<WorkflowId>,
    run: Option<RunId>,
    holder: Option<Holder>,
    kind: Option<SensorKind>,
}

impl Names {
    /// Reads a task's key from five columns, starting at this one.
    pub(in crate::store) fn key<R: ReadRow>(&mut self, row: &R, at: usize) -> Read<TaskKey, R> {
        Ok(TaskKey::from_parts(
            share(&mut self.namespace, row.text(at)?)?,
            share(&mut self.workflow, row.text(at + 1)?)?,
            share(&mut self.run, row.text(at + 2)?)?,
            name(row, at + 3)?,
            map_index(row, at + 4)?,
        ))
    }

    pub(super) fn kind<R: ReadRow>(&mut self, row: &R, at: usize) -> Read<SensorKind, R> {
        Ok(share(&mut self.kind, row.text(at)?)?)
    }

    pub(super) fn maybe_holder<R: ReadRow>(&mut self, row: &R, at: usize) -> Read<Option<Holder>, R> {
        Ok(row.maybe_text(at)?.map(|text| share(&mut self.holder, text)).transpose()?)
    }
}

fn share<T>(last: &mut Option<T>, text: &str) -> Result<T, Invalid>
where
    T: FromStr<Err = Invalid> + AsRef<str> + Clone,
{
    match last {
        Some(name) if (*name).as_ref() == text => Ok(name.clone()),
        _ => Ok(last.insert(text.parse()?).clone()),
    }
}
