//! Transactions of one statement that are sent as the statement alone.
//!
//! `BEGIN` with its gate, the statement and the `COMMIT` are three messages. The server responds to each separately,
//! and each response wakes the client. A statement outside a transaction is a transaction of its own, in one message.
//! It names the gate in its text, so the server locks the gate before all other tables that it reads.
//!
//! The session refuses to write outside transactions, because what is sent along with a failed `BEGIN` must have no
//! effect. So the session changes its setting before such statements, and changes it back before the next `BEGIN`.

use super::options::OUTSIDE;

/// How many transactions of one statement a session begins and commits before it sends the next ones alone. Changing
/// the setting there and back costs two messages, as many as one statement alone saves.
const BEFORE: u32 = 2;

/// Decides which transactions of one session are sent as a statement alone.
#[derive(Debug, Default)]
pub(super) struct Alone {
    /// How many transactions in a row had one statement.
    in_a_row: u32,
    /// Whether the session may write outside transactions.
    writes: bool,
}

impl Alone {
    /// Returns true if a transaction is to be sent as a statement alone. `is_one` says whether it has one statement.
    pub(super) fn may(&self, is_one: bool) -> bool {
        is_one && self.in_a_row >= BEFORE
    }

    /// Notes that a group is sent now, which lets the session write outside transactions.
    pub(super) fn may_write(&mut self) {
        (self.in_a_row, self.writes) = (BEFORE, true);
    }

    /// Notes that a transaction is sent now. Returns the setting to send first.
    pub(super) fn sends(&mut self, is_one: bool) -> Option<&'static str> {
        let is_alone = self.may(is_one);
        self.in_a_row = if is_one { self.in_a_row.saturating_add(1) } else { 0 };
        let changes = std::mem::replace(&mut self.writes, is_alone) != is_alone;
        changes.then_some(if is_alone { OUTSIDE.writes } else { OUTSIDE.reads })
    }
}

/// Adds the gate to a statement, as the first part of its `WITH`. The statement must name tables only in parts: the
/// server locks those of the outer query first.
pub(super) fn gated(sql: &str, gate: &str) -> String {
    let gate = format!("gate AS (SELECT FROM {gate} WHERE FALSE)");
    for with in ["WITH RECURSIVE ", "WITH "] {
        if let Some(rest) = sql.strip_prefix(with) {
            return format!("{with}{gate}, {rest}");
        }
    }
    format!("WITH {gate} {sql}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The setting that is in force when a transaction arrives is the one that it needs, however they alternate.
    #[test]
    fn only_a_statement_alone_meets_a_session_that_writes_outside_transactions() {
        for pattern in 0..1_u32 << 12 {
            let (mut alone, mut writes, mut row) = (Alone::default(), false, 0);
            for at in 0..12 {
                let is_one = pattern >> at & 1 == 1;
                let is_alone = alone.may(is_one);
                let setting = alone.sends(is_one);
                writes = setting.map_or(writes, |setting| setting == OUTSIDE.writes);
                assert_eq!(writes, is_alone, "{pattern:b} at {at}");
                assert_eq!(is_alone, is_one && row >= BEFORE, "{pattern:b} at {at}");
                row = if is_one { row + 1 } else { 0 };
            }
        }
    }

    #[test]
    fn the_setting_is_sent_only_when_it_changes() {
        let mut alone = Alone::default();
        let sent: Vec<bool> =
            [true, true, true, true, false, false].map(|is_one| alone.sends(is_one).is_some()).into();
        assert_eq!(sent, [false, false, true, false, true, false]);
    }

    #[test]
    fn a_statement_names_the_gate_first() {
        assert_eq!(gated("SELECT 1", "g"), "WITH gate AS (SELECT FROM g WHERE FALSE) SELECT 1");
        for with in ["WITH", "WITH RECURSIVE"] {
            let gated = gated(&format!("{with} a AS (SELECT 1) SELECT FROM a"), "g");
            let expected =
                format!("{with} gate AS (SELECT FROM g WHERE FALSE), a AS (SELECT 1) SELECT FROM a");
            assert_eq!(gated, expected);
        }
    }
}
