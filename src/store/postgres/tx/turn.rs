//! Transactions that take turns because they give the same name.

use super::super::error::Outcome;
use super::super::text::escape;
use super::super::wire::ask;
use super::Db;
use crate::store::sql::statement::statement;

pub(super) const TAKE: &str = statement!("turn.sql");
pub(super) const FORGET: &str = statement!("forget_turns.sql");

impl Db<'_> {
    pub(super) fn serialize(&mut self, names: &[&str]) -> Outcome<()> {
        if names.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = names.iter().map(|name| escape(name).into_owned()).collect();
        self.one(ask!(TAKE, names)).map(|_| ())
    }
}
