//! The statements that find runs. Each answers for all asked namespaces at once.
//!
//! The numbers of parameters are the same in all of them: 1 the names of the namespaces as a JSON array, or
//! NULL for all; 2 and 3 the window.

/// The columns of a run, the namespace's name first.
macro_rules! record {
    () => {
        "name, sm_run.id, sm_run.start, stop, status, workflow, method, running, heartbeat, user, suspended, attributes"
    };
}

/// The namespaces, by number.
macro_rules! asked {
    ($named:literal) => {
        concat!("asked (no, name) AS MATERIALIZED (SELECT no, name FROM ", $named, ")")
    };
}

/// The one fork of the window's first instant on a level: the bits of the instant above the level's, and that
/// one.
macro_rules! fork {
    () => {
        "(?2 & mask | bit)"
    };
}

/// Whether runs reach from before the instant to after it there. No run reaches as far as the level's bit, so
/// a level whose multiples the instant is one of has no fork, and falls out here.
macro_rules! reached {
    (left) => {
        concat!("sm_level.ns = asked.no AND ?2 - ", fork!(), " BETWEEN 1 AND after")
    };
    (right) => {
        concat!("sm_level.ns = asked.no AND ", fork!(), " - ?2 BETWEEN 0 AND before - 1")
    };
}

/// What started before the window and is active in it. No row is read that is not answered; the places are
/// read from the indexes alone.
macro_rules! surrounding {
    ($columns:expr) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM asked CROSS JOIN sm_run INDEXED BY sm_run_open \
             WHERE ns = asked.no AND stop IS NULL AND start < ?2 \
             UNION ALL \
             SELECT ",
            $columns,
            " FROM asked CROSS JOIN sm_level CROSS JOIN sm_run INDEXED BY sm_run_node_stop WHERE ",
            reached!(left),
            " AND sm_run.ns = asked.no AND node IS NOT NULL AND node = ",
            fork!(),
            " AND stop >= ?2 UNION ALL SELECT ",
            $columns,
            " FROM asked CROSS JOIN sm_level CROSS JOIN sm_run INDEXED BY sm_run_node_start WHERE ",
            reached!(right),
            " AND sm_run.ns = asked.no AND node IS NOT NULL AND node = ",
            fork!(),
            " AND start < ?2"
        )
    };
}

/// What starts in the window.
macro_rules! started {
    ($columns:expr) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM asked CROSS JOIN sm_run \
             WHERE ns = asked.no AND start >= ?2 AND start < ?3"
        )
    };
}

macro_rules! active {
    ($named:literal, $columns:expr, $of_started:expr) => {
        concat!("WITH ", asked!($named), " ", started!($of_started), " UNION ALL ", surrounding!($columns))
    };
}

macro_rules! surround {
    ($named:literal, $columns:expr) => {
        concat!("WITH ", asked!($named), " ", surrounding!($columns))
    };
}

/// The run of a namespace that comes next after a place.
macro_rules! next {
    ($no:literal, $start:literal, $id:literal) => {
        concat!(
            "ns = ",
            $no,
            " AND (run.start, run.id) = (SELECT start, id FROM sm_run \
             WHERE ns = ",
            $no,
            " AND (start, id) > (",
            $start,
            ", ",
            $id,
            ") AND start < ?3 ORDER BY start, id LIMIT 1)"
        )
    };
}

/// The first 6 runs that start in the window after a place: 2 its start, 4 its namespace, 5 its id. The
/// namespaces' next runs wait in a queue; the earliest is taken and the one after it put in.
macro_rules! page {
    ($named:literal, $columns:expr) => {
        concat!(
            "WITH RECURSIVE asked (no, name, low) AS MATERIALIZED (SELECT no, name, \
               CASE WHEN name < ?4 THEN x'' WHEN name = ?4 THEN ?5 ELSE '' END FROM ",
            $named,
            "), merged (no, name, start, id) AS ( \
               SELECT no, name, run.start, run.id FROM asked CROSS JOIN sm_run run WHERE ",
            next!("asked.no", "?2", "asked.low"),
            " UNION ALL \
               SELECT no, name, run.start, run.id FROM merged CROSS JOIN sm_run run WHERE ",
            next!("merged.no", "merged.start", "merged.id"),
            " ORDER BY 3, 2, 4 LIMIT ?6) \
             SELECT ",
            $columns,
            " FROM merged CROSS JOIN sm_run \
             WHERE ns = merged.no AND sm_run.start = merged.start AND sm_run.id = merged.id"
        )
    };
}

/// How many ranges a window searches.
macro_rules! seeks {
    ($named:literal) => {
        concat!(
            "WITH ",
            asked!($named),
            " SELECT (SELECT 2 * count(*) FROM asked) + (SELECT count(*) FROM asked CROSS JOIN sm_level WHERE ",
            reached!(left),
            ") + (SELECT count(*) FROM asked CROSS JOIN sm_level WHERE ",
            reached!(right),
            ")"
        )
    };
}

/// One statement for the namespaces that are named, one for all.
pub(in super::super) struct Both {
    pub(in super::super) named: &'static str,
    pub(in super::super) all: &'static str,
}

macro_rules! both {
    ($make:ident $(, $argument:expr)*) => {
        Both {
            named: $make!("json_each(?1) named CROSS JOIN sm_namespace INDEXED BY sm_namespace_name WHERE name = named.value" $(, $argument)*),
            all: $make!("sm_namespace WHERE ?1 IS NULL" $(, $argument)*),
        }
    };
}

/// What a place needs; only what starts in a window must be checked again, so only there the stop is read.
macro_rules! place {
    ($stop:literal) => {
        concat!("name, sm_run.id, sm_run.start, ", $stop)
    };
}

pub(in super::super) const ACTIVE: Both = both!(active, record!(), record!());
pub(in super::super) const ACTIVE_PLACES: Both = both!(active, place!("NULL"), place!("stop"));
pub(in super::super) const SURROUNDING: Both = both!(surround, record!());
pub(in super::super) const SURROUNDING_PLACES: Both = both!(surround, place!("NULL"));
pub(in super::super) const PAGE: Both = both!(page, record!());
pub(in super::super) const PAGE_PLACES: Both = both!(page, place!("stop"));
pub(in super::super) const SEEKS: Both = both!(seeks);

pub(in super::super) const RUN: &str = concat!(
    "SELECT ",
    record!(),
    " FROM sm_run CROSS JOIN sm_namespace WHERE ns = ?1 AND id = ?2 AND no = ?1"
);
pub(in super::super) const SILENT: &str = concat!(
    "SELECT ",
    record!(),
    " FROM sm_run INDEXED BY sm_run_watched CROSS JOIN sm_namespace \
     WHERE heartbeat < ?1 AND heartbeat IS NOT NULL AND stop IS NULL AND status <> 3 AND no = ns \
     ORDER BY heartbeat LIMIT ?2"
);
/// 1 the instant, 2 its forks, 3 the nodes between them, 4 how many.
pub(in super::super) const STOPPED: &str = "SELECT ns, sm_run.start, sm_run.id \
     FROM sm_namespace asked CROSS JOIN json_each(?3) span CROSS JOIN sm_run INDEXED BY sm_run_node_stop \
     WHERE ns = asked.no AND node IS NOT NULL AND node BETWEEN span.value ->> 0 AND span.value ->> 1 \
     UNION ALL \
     SELECT ns, sm_run.start, sm_run.id \
     FROM sm_namespace asked CROSS JOIN json_each(?2) fork CROSS JOIN sm_run INDEXED BY sm_run_node_stop \
     WHERE ns = asked.no AND node IS NOT NULL AND node = fork.value AND stop < ?1 \
     LIMIT ?4";
