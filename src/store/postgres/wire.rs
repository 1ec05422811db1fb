//! What a transaction sends and receives.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::digest::Digest;
use super::error::Failure;
use super::tick_lock;
use super::tx::{END_ONE, TICK_AHEAD};
use crate::error::{StoreError, StoreErrorKind};

/// The most bytes of values sent with one statement. The server accepts a little less than 1 GiB in a message, and
/// closes a connection that sends more.
const MOST_BYTES: usize = (1 << 30) - (1 << 16);

/// A value for a statement, with its parameter type.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) value: Box<dyn ToSql + Send + Sync>,
    pub(super) kind: Type,
    /// Its length in a message, in bytes.
    bytes: usize,
}

/// The length of a value in a message, including its length field.
trait Size {
    fn size(&self) -> usize;
}

impl Size for i64 {
    fn size(&self) -> usize {
        4 + size_of::<Self>()
    }
}

impl Size for Digest {
    fn size(&self) -> usize {
        4 + Self::LEN
    }
}

impl Size for String {
    fn size(&self) -> usize {
        self.len().saturating_add(4)
    }
}

impl<T: Size> Size for Option<T> {
    fn size(&self) -> usize {
        self.as_ref().map_or(4, Size::size)
    }
}

impl<T: Size> Size for Vec<T> {
    fn size(&self) -> usize {
        self.iter().fold(4 + 20, |sum, element| sum.saturating_add(element.size()))
    }
}

macro_rules! params {
    ($($rust:ty => $postgres:ident),+ $(,)?) => {$(
        impl From<$rust> for Param {
            fn from(value: $rust) -> Self {
                Self { bytes: value.size(), value: Box::new(value), kind: Type::$postgres }
            }
        }
    )+};
}

params! {
    i64 => INT8,
    Option<i64> => INT8,
    Vec<i64> => INT8_ARRAY,
    Option<Vec<i64>> => INT8_ARRAY,
    Vec<Option<i64>> => INT8_ARRAY,
    Vec<Digest> => UUID_ARRAY,
    String => TEXT,
    Option<String> => TEXT,
    Vec<String> => TEXT_ARRAY,
    Option<Vec<String>> => TEXT_ARRAY,
    Vec<Option<String>> => TEXT_ARRAY,
}

impl From<&str> for Param {
    fn from(value: &str) -> Self {
        value.to_owned().into()
    }
}

/// One of the crate's statements and its values. The schema is written as `sm`.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: &'static str,
    pub(super) params: Vec<Param>,
}

impl Statement {
    /// Returns how many bytes its values take.
    pub(super) fn bytes(&self) -> usize {
        self.params.iter().fold(0, |sum: usize, param| sum.saturating_add(param.bytes))
    }

    /// Returns true if it can only take long by waiting for another transaction.
    pub(super) fn only_waits(&self) -> bool {
        self.sql.starts_with("LOCK TABLE ") || self.is_script() || self.is_tick_ahead()
    }

    /// Returns true if it ends one attempt.
    pub(super) fn is_one_end(&self) -> bool {
        self.sql == END_ONE
    }

    /// Returns true if it is a whole tick of a few tasks.
    pub(super) fn is_tick_ahead(&self) -> bool {
        self.sql == TICK_AHEAD
    }

    /// Returns true if these are several statements, without values and results.
    pub(super) fn is_script(&self) -> bool {
        self.sql == tick_lock::ENTER
    }
}

/// A [`Statement`] from its SQL and its values, in the order of `$1`, `$2`, ….
macro_rules! ask {
    ($sql:expr $(, $param:expr)* $(,)?) => {
        $crate::store::postgres::wire::Statement {
            sql: $sql,
            params: vec![$($crate::store::postgres::wire::Param::from($param)),*],
        }
    };
}
pub(super) use ask;

/// Refuses what the server would not accept, before anything is sent.
pub(super) fn fits(batch: &[Statement]) -> Result<(), Failure> {
    match batch.iter().map(Statement::bytes).find(|bytes| *bytes > MOST_BYTES) {
        None => Ok(()),
        Some(bytes) => {
            let text = format!(
                "the call carries {bytes} bytes, more than the {MOST_BYTES} that PostgreSQL takes at once: split it into \
                 several calls"
            );
            Err(Failure::Refused(StoreError::new(StoreErrorKind::TooMuch, text)))
        }
    }
}

/// The rows that a statement returned. A statement has to return a count of changed rows itself.
pub(super) type Answer = Vec<Row>;

/// Whether a batch changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Reads,
    Writes,
    /// It writes heartbeats, which must not wait for a host.
    Renews,
}

/// How a commit that is sent along reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// It waits for its own flush.
    Itself,
    /// It does not wait, and a flush follows.
    Follows,
    /// It does not wait. The last statement follows the commit, and flushes if there is something to flush.
    LastStatement,
}

/// Sends statements to the server, inside the transaction that it stands for.
pub(super) trait Wire: Send {
    /// Runs the statements in one round trip, one after another, and returns each one's rows. After an error
    /// the transaction is lost.
    fn send(&mut self, batch: Vec<Statement>, touch: Touch) -> Result<Vec<Answer>, Failure>;

    /// Sends the last statements of a transaction like [`Self::send`], with the commit. A host commits its own
    /// transaction.
    fn send_last(
        &mut self,
        batch: Vec<Statement>,
        touch: Touch,
        flush: Flush,
    ) -> Result<Vec<Answer>, Failure> {
        let _ = flush;
        self.send(batch, touch)
    }
}

impl<W: Wire + ?Sized> Wire for &mut W {
    fn send(&mut self, batch: Vec<Statement>, touch: Touch) -> Result<Vec<Answer>, Failure> {
        (**self).send(batch, touch)
    }

    fn send_last(
        &mut self,
        batch: Vec<Statement>,
        touch: Touch,
        flush: Flush,
    ) -> Result<Vec<Answer>, Failure> {
        (**self).send_last(batch, touch, flush)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::error::Error;

    use tokio_postgres::types::private::BytesMut;

    use super::*;

    /// A statement that claims to be too large.
    pub(in super::super) fn too_large() -> Statement {
        let mut statement = ask!("SELECT $1", 0);
        statement.params[0].bytes = MOST_BYTES + 1;
        statement
    }

    pub(in super::super) fn is_refused(done: Result<Vec<Answer>, Failure>) -> bool {
        matches!(done, Err(Failure::Refused(error)) if error.kind() == StoreErrorKind::TooMuch
            && !error.is_retryable() && error.to_string().contains("split it"))
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_is_sent() {
        assert!(fits(&[ask!("SELECT 1"), ask!("SELECT $1", "text")]).is_ok());
        assert!(is_refused(fits(&[ask!("SELECT 1"), too_large()]).map(|()| Vec::new())));
    }

    #[test]
    fn a_value_takes_as_much_as_is_counted() -> Result<(), Box<dyn Error + Sync + Send>> {
        let texts = || vec![Some("ü".to_owned()), None, Some(String::new())];
        for param in [
            Param::from(1),
            Param::from(None::<i64>),
            Param::from(vec![1, 2, 3]),
            Param::from(vec![Some(1), None]),
            Param::from(vec![Digest::of("a"), Digest::of("b")]),
            Param::from("text"),
            Param::from(None::<String>),
            Param::from(texts()),
            Param::from(texts().into_iter().flatten().collect::<Vec<String>>()),
        ] {
            let mut message = BytesMut::new();
            param.value.to_sql_checked(&param.kind, &mut message)?;
            assert_eq!(param.bytes, 4 + message.len(), "{param:?}");
        }
        Ok(())
    }
}
