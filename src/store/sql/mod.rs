//! What the two SQL stores share.

#[cfg(feature = "sqlite")]
pub(super) mod audit;
pub(super) mod codes;
pub(super) mod ledger;
pub(super) mod needs;
pub(super) mod records;
pub(super) mod renamed;
pub(super) mod row;
pub(super) mod run_columns;
pub(super) mod statement;
