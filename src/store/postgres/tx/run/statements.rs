//! The statements on runs, each in its own file. Each covers all requested namespaces at once.

use crate::store::sql::statement::statement;

/// Two versions of a statement: for queries that filter by more than namespaces, and for those that do not.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Both {
    pub(in super::super) any: &'static str,
    pub(in super::super) filtered: &'static str,
}

const FILTERS: &str = "AND (cardinality($8::bigint[]) = 0 OR run.status = ANY ($8::bigint[])) \
     AND (cardinality($9::text[]) = 0 OR run.workflow = ANY ($9::text[])) \
     AND (cardinality($10::bigint[]) = 0 OR run.method = ANY ($10::bigint[])) \
     AND (cardinality($11::text[]) = 0 OR run.\"user\" = ANY ($11::text[]))";
const RECORD: &str = "run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running, \
     run.heartbeat, run.\"user\", run.suspended, run.nodes, run.attributes";
const PLACE: &str = "run.id, run.start";
const PLACE_AND_NAMESPACE: &str = "asked.no, run.id, run.start";
/// How a page limits the runs of each namespace.
const FIRST: &str = "ORDER BY run.start, run.id LIMIT $7::bigint";

const ASKED: &str = statement!("asked.sql");
/// The node is 1 to `after` before the instant.
const NODES_BEFORE: &str = statement!(
    "nodes.sql",
    is_reached = "$2::bigint - (($2::bigint & level.mask) | level.bit) BETWEEN 1 AND level.after",
);
/// The node is 0 to `before - 1` after the instant.
const NODES_AFTER: &str = statement!(
    "nodes.sql",
    is_reached = "(($2::bigint & level.mask) | level.bit) - $2::bigint BETWEEN 0 AND level.before - 1",
);

/// Builds both versions of a statement on a window.
macro_rules! both {
    ($file:literal, $columns:expr) => {
        both!($file, $columns, "")
    };
    ($file:literal, $columns:expr, $first:expr) => {
        Both {
            any: both!(@ $file, $columns, $first, ""),
            filtered: both!(@ $file, $columns, $first, FILTERS),
        }
    };
    (@ $file:literal, $columns:expr, $first:expr, $filters:expr) => {
        statement!(
            $file,
            asked = ASKED,
            window = statement!(
                "window.sql",
                columns = $columns,
                filters = $filters,
                first = $first,
                nodes_before = NODES_BEFORE,
                nodes_after = NODES_AFTER,
            ),
        )
    };
}

/// The runs that are active in a window.
pub(in super::super) const ACTIVE: Both = both!("active_runs.sql", RECORD);
/// The places of [`ACTIVE`].
pub(in super::super) const ACTIVE_PLACES: Both = both!("active_runs.sql", PLACE);
/// The number of [`ACTIVE`] runs.
pub(in super::super) const COUNT_ACTIVE: Both = both!("count_active.sql", "1");
/// The first runs that are active in a window, after a place.
pub(in super::super) const PAGE: Both = both!("page_of_runs.sql", PLACE_AND_NAMESPACE, FIRST);
/// The places of [`PAGE`].
pub(in super::super) const PAGE_PLACES: Both = both!("page_of_places.sql", PLACE_AND_NAMESPACE, FIRST);
/// How many index ranges a window searches.
pub(in super::super) const COUNT_SEARCHES: &str =
    statement!("count_searches.sql", asked = ASKED, nodes_before = NODES_BEFORE, nodes_after = NODES_AFTER,);

pub(in super::super) const NAMESPACES: &str = statement!("namespaces.sql");
pub(in super::super) const PUT: &str = statement!("put_runs.sql");
const FARTHER: &str = statement!("farther.sql");
pub(in super::super) const RAISE_LEVELS: &str = statement!("raise_levels.sql", farther = FARTHER);
pub(in super::super) const CLOSE: &str = statement!("close_runs.sql", farther = FARTHER);
pub(in super::super) const BEAT: &str = statement!("beat_runs.sql");
pub(in super::super) const OPEN: &str = statement!("open_runs.sql");
pub(in super::super) const DELETE: &str = statement!("delete_runs.sql");
pub(in super::super) const RUNS: &str = statement!("runs_by_key.sql");
pub(in super::super) const TAKE_BEATS: &str = statement!("take_run_beats.sql");
pub(in super::super) const SILENT: &str = statement!("silent_runs.sql", lock = "");
pub(in super::super) const WAIT_FOR: &str = statement!("wait_for_runs.sql");
pub(in super::super) const LOCK: &str = statement!("lock_runs.sql");
/// [`SILENT`] for a transaction that writes and is about to close the runs. Runs locked by others are skipped.
pub(in super::super) const LOCK_SILENT: &str =
    statement!("silent_runs.sql", lock = "FOR NO KEY UPDATE SKIP LOCKED");
pub(in super::super) const FORGET: &str = statement!("forget_stopped_runs.sql");
