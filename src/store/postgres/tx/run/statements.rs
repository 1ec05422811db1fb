//! The statements on runs, each in its own file. Each covers all requested namespaces at once.

use crate::store::sql::statement::statement;

/// Two versions of a statement: for queries that filter by more than namespaces, and for those that do not.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Both {
    pub(in super::super) any: &'static str,
    pub(in super::super) filtered: &'static str,
}

/// The runs that are active in a window.
pub(in super::super) const ACTIVE: Both =
    Both { any: statement!("active_runs.sql"), filtered: statement!("active_runs_filtered.sql") };
/// The places of [`ACTIVE`].
pub(in super::super) const ACTIVE_PLACES: Both =
    Both { any: statement!("active_places.sql"), filtered: statement!("active_places_filtered.sql") };
/// The number of [`ACTIVE`] runs.
pub(in super::super) const COUNT_ACTIVE: Both =
    Both { any: statement!("count_active.sql"), filtered: statement!("count_active_filtered.sql") };
/// The first runs that are active in a window, after a place.
pub(in super::super) const PAGE: Both =
    Both { any: statement!("page_of_runs.sql"), filtered: statement!("page_of_runs_filtered.sql") };
/// The places of [`PAGE`].
pub(in super::super) const PAGE_PLACES: Both =
    Both { any: statement!("page_of_places.sql"), filtered: statement!("page_of_places_filtered.sql") };
/// How many index ranges a window searches.
pub(in super::super) const COUNT_SEARCHES: &str = statement!("count_searches.sql");

pub(in super::super) const NAMESPACES: &str = statement!("namespaces.sql");
pub(in super::super) const PUT: &str = statement!("put_runs.sql");
pub(in super::super) const RAISE_LEVELS: &str = statement!("raise_levels.sql");
pub(in super::super) const CLOSE: &str = statement!("close_runs.sql");
pub(in super::super) const BEAT: &str = statement!("beat_runs.sql");
pub(in super::super) const OPEN: &str = statement!("open_runs.sql");
pub(in super::super) const DELETE: &str = statement!("delete_runs.sql");
pub(in super::super) const RUNS: &str = statement!("runs_by_key.sql");
pub(in super::super) const TAKE_BEATS: &str = statement!("take_run_beats.sql");
pub(in super::super) const SILENT: &str = statement!("silent_runs.sql");
pub(in super::super) const WAIT_FOR: &str = statement!("wait_for_runs.sql");
pub(in super::super) const LOCK: &str = statement!("lock_runs.sql");
/// [`SILENT`] for a transaction that writes and is about to close the runs.
pub(in super::super) const LOCK_SILENT: &str = statement!("lock_silent_runs.sql");
pub(in super::super) const FORGET: &str = statement!("forget_stopped_runs.sql");

/// Each file repeats the parts that it shares with others, so that it can be read alone. The parts must stay
/// equal.
#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running, \
         run.heartbeat, run.\"user\", run.suspended, run.nodes, run.attributes ";
    const FILTER: &str = " AND (cardinality($8::bigint[]) = 0 OR run.status = ANY ($8::bigint[])) \
         AND (cardinality($9::text[]) = 0 OR run.workflow = ANY ($9::text[])) \
         AND (cardinality($10::bigint[]) = 0 OR run.method = ANY ($10::bigint[])) \
         AND (cardinality($11::text[]) = 0 OR run.\"user\" = ANY ($11::text[]))";

    /// Returns the part of a statement that reads its result: what follows the namespaces asked for.
    fn window(sql: &str) -> &str {
        let begin = sql.find("SELECT asked.name, ").unwrap();
        let end = sql.rfind("> ($4::bigint, $5::text, $6::text)").unwrap();
        &sql[begin..end]
    }

    #[test]
    fn filtered_statements_differ_in_the_filter_alone() {
        for family in [ACTIVE, ACTIVE_PLACES, COUNT_ACTIVE, PAGE, PAGE_PLACES] {
            assert_eq!(family.filtered.matches(FILTER).count(), 4);
            assert_eq!(family.filtered.replace(FILTER, ""), family.any);
        }
    }

    #[test]
    fn a_window_is_read_alike_by_all_statements() {
        let records = window(ACTIVE.any);
        assert_eq!(records.matches(RECORD).count(), 4);
        assert_eq!(records.replace(RECORD, "run.id, run.start "), window(ACTIVE_PLACES.any));
        assert_eq!(records.replace(RECORD, "1 "), window(COUNT_ACTIVE.any));
        let page = window(PAGE.any);
        assert_eq!(page, window(PAGE_PLACES.any));
        let first = " ORDER BY run.start, run.id LIMIT $7::bigint OFFSET 0";
        assert_eq!(page.replace(first, " OFFSET 0").replace("asked.no, run.id, run.start ", RECORD), records);
    }

    #[test]
    fn all_statements_ask_for_namespaces_alike() {
        let asked = |sql: &'static str| &sql[..sql.find(") named )").unwrap()];
        for sql in [ACTIVE_PLACES.any, COUNT_ACTIVE.any, PAGE.any, PAGE_PLACES.any, COUNT_SEARCHES] {
            assert_eq!(asked(sql), asked(ACTIVE.any));
        }
    }

    #[test]
    fn the_reach_of_levels_rises_alike() {
        let rises =
            |sql: &'static str| sql.split_once("farther AS ").unwrap().1.rsplit_once(" SELECT ").unwrap().0;
        assert_eq!(rises(CLOSE), rises(RAISE_LEVELS));
    }

    #[test]
    fn silent_runs_are_locked_and_otherwise_alike() {
        assert_eq!(LOCK_SILENT.replace(" FOR NO KEY UPDATE SKIP LOCKED", ""), SILENT);
    }
}
