//! What a transaction sends, and what comes back.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::error::Failure;

/// A value for a statement, with the type that the statement takes it as.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) value: Box<dyn ToSql + Send + Sync>,
    pub(super) kind: Type,
}

macro_rules! params {
    ($($rust:ty => $postgres:ident),+ $(,)?) => {$(
        impl From<$rust> for Param {
            fn from(value: $rust) -> Self {
                Self { value: Box::new(value), kind: Type::$postgres }
            }
        }
    )+};
}

params! {
    i64 => INT8,
    Option<i64> => INT8,
    Vec<i64> => INT8_ARRAY,
    Vec<Option<i64>> => INT8_ARRAY,
    String => TEXT,
    Option<String> => TEXT,
    Vec<String> => TEXT_ARRAY,
    Vec<Option<String>> => TEXT_ARRAY,
}

impl From<&str> for Param {
    fn from(value: &str) -> Self {
        value.to_owned().into()
    }
}

/// A statement of the crate's, with the schema written as `sm`, and its values.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: &'static str,
    pub(super) params: Vec<Param>,
}

/// A [`Statement`] of its SQL and its values, in the order of `$1`, `$2`, ….
macro_rules! ask {
    ($sql:expr $(, $param:expr)* $(,)?) => {
        $crate::store::postgres::wire::Statement {
            sql: $sql,
            params: vec![$($crate::store::postgres::wire::Param::from($param)),*],
        }
    };
}
pub(super) use ask;

/// What a statement answered. How many rows it changed it must be asked to say.
pub(super) type Answer = Vec<Row>;

/// Whether a batch changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Reads,
    Writes,
}

/// Takes statements to the server, inside the transaction that it stands for.
pub(super) trait Wire: Send {
    /// Runs the statements in one round trip, one after another, and answers each. After an error the transaction is lost.
    fn send(&mut self, batch: Vec<Statement>, touch: Touch) -> Result<Vec<Answer>, Failure>;
}

impl<W: Wire + ?Sized> Wire for &mut W {
    fn send(&mut self, batch: Vec<Statement>, touch: Touch) -> Result<Vec<Answer>, Failure> {
        (**self).send(batch, touch)
    }
}
