//! The statements that find runs, each in its own file. Each covers all requested namespaces at once.

use crate::store::sql::statement::statement;

/// One statement for named namespaces, one for all.
pub(in super::super) struct Both {
    pub(in super::super) named: &'static str,
    pub(in super::super) all: &'static str,
}

/// The runs that are active in a window.
pub(in super::super) const ACTIVE: Both =
    Both { named: statement!("active_runs_in_named.sql"), all: statement!("active_runs_in_all.sql") };
/// The places of [`ACTIVE`].
pub(in super::super) const ACTIVE_PLACES: Both =
    Both { named: statement!("active_places_in_named.sql"), all: statement!("active_places_in_all.sql") };
/// The runs that started before the window and are active in it.
pub(in super::super) const SURROUNDING: Both = Both {
    named: statement!("surrounding_runs_in_named.sql"),
    all: statement!("surrounding_runs_in_all.sql"),
};
/// The places of [`SURROUNDING`].
pub(in super::super) const SURROUNDING_PLACES: Both = Both {
    named: statement!("surrounding_places_in_named.sql"),
    all: statement!("surrounding_places_in_all.sql"),
};
/// The first runs that start in the window after a place.
pub(in super::super) const PAGE: Both =
    Both { named: statement!("page_of_runs_in_named.sql"), all: statement!("page_of_runs_in_all.sql") };
/// The places of [`PAGE`].
pub(in super::super) const PAGE_PLACES: Both =
    Both { named: statement!("page_of_places_in_named.sql"), all: statement!("page_of_places_in_all.sql") };
/// The number of index ranges that a window searches.
pub(in super::super) const COUNT_SEARCHES: Both =
    Both { named: statement!("count_searches_in_named.sql"), all: statement!("count_searches_in_all.sql") };

pub(in super::super) const RUN: &str = statement!("run_by_id.sql");
pub(in super::super) const SILENT: &str = statement!("silent_runs.sql");
pub(in super::super) const STOPPED: &str = statement!("stopped_runs.sql");

/// The files repeat their common parts, so that each can be read alone. These parts must stay equal.
#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "name, sm_run.id, sm_run.start, stop, status, workflow, method, running, heartbeat, user, \
         suspended, nodes, attributes ";
    const PLACE: &str = "name, sm_run.id, sm_run.start, stop ";
    const PLACE_ALONE: &str = "name, sm_run.id, sm_run.start, NULL ";

    #[test]
    fn the_statements_for_all_namespaces_differ_in_the_namespaces_alone() {
        let named = "FROM json_each(?1) named CROSS JOIN sm_namespace INDEXED BY sm_namespace_name \
             WHERE name = named.value";
        let families =
            [ACTIVE, ACTIVE_PLACES, SURROUNDING, SURROUNDING_PLACES, PAGE, PAGE_PLACES, COUNT_SEARCHES];
        for family in families {
            assert_eq!(family.named.replace(named, "FROM sm_namespace WHERE ?1 IS NULL"), family.all);
        }
    }

    #[test]
    fn the_statements_for_places_differ_in_the_columns_alone() {
        for (records, places) in [
            (ACTIVE.named, ACTIVE_PLACES.named),
            (SURROUNDING.named, SURROUNDING_PLACES.named),
            (PAGE.named, PAGE_PLACES.named),
        ] {
            assert!(records.contains(RECORD));
            assert_eq!(records.replace(RECORD, PLACE), places.replace(PLACE_ALONE, PLACE));
        }
    }

    #[test]
    fn a_window_and_what_surrounds_its_first_instant_are_read_alike() {
        let begin = |sql: &'static str| sql.split_once(") SELECT ").unwrap();
        let ((asked, window), (same, surrounding)) = (begin(ACTIVE.named), begin(SURROUNDING.named));
        assert_eq!(asked, same);
        assert_eq!(window.split_once(" UNION ALL SELECT ").unwrap().1, surrounding);
        for reached in COUNT_SEARCHES.named.split("WHERE sm_level.").skip(1) {
            let condition = reached.split(") + (SELECT").next().unwrap().trim_end_matches(')');
            assert!(
                surrounding.contains(&format!("WHERE sm_level.{condition} AND sm_run.ns")),
                "{condition}"
            );
        }
    }
}
