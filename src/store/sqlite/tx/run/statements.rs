//! The statements that find runs, each in its own file. Each covers all requested namespaces at once.

use crate::store::sql::statement::statement;

/// One statement for named namespaces, one for all.
pub(in super::super) struct Both {
    pub(in super::super) named: &'static str,
    pub(in super::super) all: &'static str,
}

const NAMED: &str = "FROM json_each(?1) named CROSS JOIN sm_namespace INDEXED BY sm_namespace_name \
     WHERE name = named.value";
/// The condition is always true: the parameter must occur.
const ALL: &str = "FROM sm_namespace WHERE ?1 IS NULL";

const RECORD: &str = "sm_run.id, sm_run.start, stop, status, workflow, method, running, heartbeat, user, suspended, \
     nodes, attributes";
/// A place, with the stop of a run that must be checked again.
const PLACE: &str = "sm_run.id, sm_run.start, stop";
/// A place, read from an index alone.
const PLACE_ALONE: &str = "sm_run.id, sm_run.start, NULL";

/// Builds both versions of a statement.
macro_rules! both {
    ($file:literal $(, $place:ident = $text:expr)*) => {
        Both {
            named: statement!($file, namespaces = NAMED $(, $place = $text)*),
            all: statement!($file, namespaces = ALL $(, $place = $text)*),
        }
    };
}

const SURROUNDING_WINDOW: &str = statement!("surrounding_window.sql", columns = RECORD);
const PLACES_AROUND_WINDOW: &str = statement!("surrounding_window.sql", columns = PLACE_ALONE);

/// The runs that are active in a window.
pub(in super::super) const ACTIVE: Both =
    both!("active_runs.sql", first_columns = RECORD, surrounding = SURROUNDING_WINDOW);
/// The places of [`ACTIVE`]. Only runs that start in the window must be checked again, so only their stop is read.
pub(in super::super) const ACTIVE_PLACES: Both =
    both!("active_runs.sql", first_columns = PLACE, surrounding = PLACES_AROUND_WINDOW);
/// The runs that started before the window and are active in it.
pub(in super::super) const SURROUNDING: Both =
    both!("surrounding_runs.sql", surrounding = SURROUNDING_WINDOW);
/// The places of [`SURROUNDING`].
pub(in super::super) const SURROUNDING_PLACES: Both =
    both!("surrounding_runs.sql", surrounding = PLACES_AROUND_WINDOW);
/// The first runs that start in the window after a place.
pub(in super::super) const PAGE: Both = both!("page_of_runs.sql", columns = RECORD);
/// The places of [`PAGE`].
pub(in super::super) const PAGE_PLACES: Both = both!("page_of_runs.sql", columns = PLACE);
/// The number of index ranges that a window searches.
pub(in super::super) const COUNT_SEARCHES: Both = both!("count_searches.sql");

pub(in super::super) const RUN: &str = statement!("run_by_id.sql");
pub(in super::super) const SILENT: &str = statement!("silent_runs.sql");
pub(in super::super) const STOPPED: &str = statement!("stopped_runs.sql");
