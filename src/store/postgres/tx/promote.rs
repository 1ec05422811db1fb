//! Promotion: tasks whose instant has come become ready, earliest first.

use crate::store::sql::statement::statement;

/// Does nothing for a tick that was noted. A tick for which nothing is due writes nothing.
pub(super) const PROMOTE: &str = statement!("promote.sql");
