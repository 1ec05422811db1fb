//! What the two SQL stores share.

pub(super) mod codes;
pub(super) mod run_columns;
pub(super) mod statement;
