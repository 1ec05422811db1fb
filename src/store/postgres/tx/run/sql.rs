//! The statements on runs. Each answers for all asked namespaces at once.
//!
//! The numbers of parameters are the same in all that find active runs: 1 the names of the namespaces, none
//! of them for all; 2 and 3 the window; 4 to 6 the start, the namespace and the id of the place that the
//! answer goes on after; 7 how many; 8 and 9 the statuses and the workflows, none of them for any.

/// The columns of a run, without its namespace.
macro_rules! record {
    () => {
        "run.id, run.start, run.stop, run.status, run.workflow, run.method, run.running, run.heartbeat, run.\"user\", \
         run.suspended, run.attributes"
    };
}

/// The namespaces, by number, and where the runs go on that start at the place's instant: it has a number in
/// the order of starts, names and ids. No id is as long as the highest of these.
macro_rules! asked {
    () => {
        "asked AS MATERIALIZED (SELECT named.no, named.name, \
           CASE WHEN $4::bigint < $2::bigint OR named.name > $5::text THEN '' \
             WHEN named.name = $5::text THEN $6::text ELSE repeat(U&'\\+10FFFF', 129) END COLLATE \"C\" AS low \
         FROM (SELECT namespace.no, namespace.name FROM unnest($1::text[]) given (name) CROSS JOIN LATERAL \
             (SELECT no, name FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace \
           UNION ALL SELECT no, name FROM sm.namespace WHERE cardinality($1::text[]) = 0) named)"
    };
}

/// The one fork of the window's first instant on a level: the bits of the instant above the level's, and that
/// one.
macro_rules! fork {
    () => {
        "(($2::bigint & level.mask) | level.bit)"
    };
}

/// The levels on which runs reach from before the instant to after it. No run reaches as far as the level's
/// bit, so a level whose multiples the instant is one of has no fork, and falls out here.
macro_rules! reached {
    (left) => {
        concat!(
            "(SELECT ",
            fork!(),
            " AS fork FROM sm.level WHERE level.ns = asked.no AND $2::bigint - ",
            fork!(),
            " BETWEEN 1 AND level.after OFFSET 0) reached"
        )
    };
    (right) => {
        concat!(
            "(SELECT ",
            fork!(),
            " AS fork FROM sm.level WHERE level.ns = asked.no AND ",
            fork!(),
            " - $2::bigint BETWEEN 0 AND level.before - 1 OFFSET 0) reached"
        )
    };
}

/// What is active in the window and stands after the place: what starts in it, then what started before it.
/// But for a filter, and for runs that stop before they start, no row is read that is not answered; places
/// are read from the indexes alone.
macro_rules! active {
    ($columns:expr, $filter:expr, $page:expr) => {
        concat!(
            "SELECT asked.name, ",
            $columns,
            " FROM asked CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = asked.no \
             AND (run.start, run.id) > (greatest($2::bigint, $4::bigint), asked.low) AND run.start < $3::bigint \
             AND (run.stop IS NULL OR run.stop >= $2::bigint)",
            $filter,
            " ",
            $page,
            " OFFSET 0) run UNION ALL ",
            surrounding!($columns, $filter)
        )
    };
}

/// What started before the window and is active in it. Each part comes in the order of the index that it is
/// to be read from.
macro_rules! surrounding {
    ($columns:expr, $filter:expr) => {
        concat!(
            "SELECT asked.name, ",
            $columns,
            " FROM asked CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = asked.no AND run.stop IS NULL \
               AND run.start < $2::bigint",
            $filter,
            " OFFSET 0) run WHERE ",
            after!(),
            " UNION ALL SELECT asked.name, ",
            $columns,
            " FROM asked CROSS JOIN LATERAL ",
            reached!(left),
            " CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = asked.no \
               AND run.node IS NOT NULL AND run.node = reached.fork AND run.stop >= $2::bigint",
            $filter,
            " ORDER BY run.stop OFFSET 0) run WHERE ",
            after!(),
            " UNION ALL SELECT asked.name, ",
            $columns,
            " FROM asked CROSS JOIN LATERAL ",
            reached!(right),
            " CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = asked.no \
               AND run.node IS NOT NULL AND run.node = reached.fork AND run.start < $2::bigint",
            $filter,
            " ORDER BY run.start OFFSET 0) run WHERE ",
            after!()
        )
    };
}

/// Nothing that started before the window stands after a place inside it, and then nothing of it is read.
macro_rules! after {
    () => {
        "$4::bigint < $2::bigint AND (run.start, asked.name, run.id) > ($4::bigint, $5::text, $6::text)"
    };
}

macro_rules! wanted {
    () => {
        " AND (cardinality($8::bigint[]) = 0 OR run.status = ANY ($8::bigint[])) \
          AND (cardinality($9::text[]) = 0 OR run.workflow = ANY ($9::text[]))"
    };
}

/// The first places of the answer: of each namespace so many of what starts in the window, and all of what
/// surrounds its first instant, which has no order.
macro_rules! first {
    ($filter:expr) => {
        concat!(
            "SELECT * FROM (",
            active!("asked.no, run.id, run.start", $filter, "ORDER BY run.start, run.id LIMIT $7::bigint"),
            ") found ORDER BY found.start, found.name, found.id LIMIT $7::bigint"
        )
    };
}

macro_rules! page {
    ($filter:expr) => {
        concat!(
            "WITH ",
            asked!(),
            ", place AS MATERIALIZED (",
            first!($filter),
            ") SELECT place.name, ",
            record!(),
            " FROM place CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = place.no \
               AND run.start = place.start AND run.id = place.id OFFSET 0) run"
        )
    };
}

macro_rules! page_places {
    ($filter:expr) => {
        concat!(
            "WITH ",
            asked!(),
            " SELECT place.name, place.id, place.start FROM (",
            first!($filter),
            ") place"
        )
    };
}

macro_rules! all {
    ($columns:expr, $filter:expr) => {
        concat!("WITH ", asked!(), " ", active!($columns, $filter, ""), " LIMIT $7::bigint")
    };
}

macro_rules! count {
    ($filter:expr) => {
        concat!(
            "WITH ",
            asked!(),
            " SELECT count(*) FROM (",
            active!("1", $filter, ""),
            " LIMIT $7::bigint) found"
        )
    };
}

/// One statement for queries that filter, one for those that do not.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Both {
    pub(in super::super) any: &'static str,
    pub(in super::super) wanted: &'static str,
}

pub(in super::super) const ACTIVE: Both =
    Both { any: all!(record!(), ""), wanted: all!(record!(), wanted!()) };
pub(in super::super) const PLACES: Both =
    Both { any: all!("run.id, run.start", ""), wanted: all!("run.id, run.start", wanted!()) };
pub(in super::super) const COUNT: Both = Both { any: count!(""), wanted: count!(wanted!()) };
pub(in super::super) const PAGE: Both = Both { any: page!(""), wanted: page!(wanted!()) };
pub(in super::super) const PAGE_PLACES: Both =
    Both { any: page_places!(""), wanted: page_places!(wanted!()) };

/// How many ranges a window searches.
pub(in super::super) const SEEKS: &str = concat!(
    "WITH ",
    asked!(),
    " SELECT 2 * (SELECT count(*) FROM asked) + (SELECT count(*) FROM asked CROSS JOIN LATERAL ",
    reached!(left),
    ") + (SELECT count(*) FROM asked CROSS JOIN LATERAL ",
    reached!(right),
    ")"
);

/// 1 names, to be given numbers if they have none.
pub(in super::super) const NAME: &str = "INSERT INTO sm.namespace (no, name) \
     SELECT coalesce((SELECT no FROM sm.namespace ORDER BY no DESC LIMIT 1), 0) + row_number() OVER (), given.name \
     FROM unnest($1::text[]) given (name) \
     WHERE NOT EXISTS (SELECT FROM sm.namespace WHERE namespace.name = given.name)";
pub(in super::super) const PUT: &str = "INSERT INTO sm.run AS run (ns, start, id, stop, node, status, method, running, \
       heartbeat, workflow, \"user\", suspended, attributes) \
     SELECT namespace.no, start, id, stop, node, status, method, running, heartbeat, workflow, given.\"user\", \
       suspended, attributes \
     FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
       $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[]) \
       given (name, start, id, stop, node, status, method, running, heartbeat, workflow, \"user\", suspended, attributes) \
     CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace \
     ON CONFLICT (ns, id) DO UPDATE SET start = excluded.start, stop = excluded.stop, node = excluded.node, \
       status = excluded.status, method = excluded.method, running = excluded.running, \
       heartbeat = excluded.heartbeat, workflow = excluded.workflow, \"user\" = excluded.\"user\", \
       suspended = excluded.suspended, attributes = excluded.attributes";

macro_rules! raise_levels {
    () => {
        " ON CONFLICT (ns, bit) DO UPDATE \
           SET before = greatest(level.before, excluded.before), after = greatest(level.after, excluded.after) \
           WHERE excluded.before > level.before OR excluded.after > level.after"
    };
}

pub(in super::super) const LEVELS: &str = concat!(
    "INSERT INTO sm.level AS level (ns, bit, mask, before, after) \
     SELECT namespace.no, bit, mask, before, after \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) \
       given (name, bit, mask, before, after) \
     CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace",
    raise_levels!()
);

/// 1 to 4 namespaces, ids, stops and statuses, no run twice. Files each run as [`crate::run::index::node`]
/// does: `x` has the bits in which the number before the start and the stop differ, and then all bits below
/// the highest of them, too.
pub(in super::super) const CLOSE: &str = concat!(
    "WITH open AS MATERIALIZED ( \
       SELECT place, given.status, run.ns, run.start, run.id, greatest(given.stop, run.start) AS stop \
       FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY \
         given (name, id, stop, status, place) \
       CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace \
       CROSS JOIN LATERAL (SELECT ns, start, id FROM sm.run \
         WHERE run.ns = namespace.no AND run.id = given.id AND run.stop IS NULL OFFSET 0) run), \
     filed AS MATERIALIZED ( \
       SELECT open.*, CASE WHEN a.x < 0 THEN 0 ELSE open.stop & ~(g.x >> 1) END AS node FROM open \
       CROSS JOIN LATERAL (SELECT (open.start - 1) # open.stop AS x OFFSET 0) a \
       CROSS JOIN LATERAL (SELECT a.x | (a.x >> 1) AS x OFFSET 0) b \
       CROSS JOIN LATERAL (SELECT b.x | (b.x >> 2) AS x OFFSET 0) c \
       CROSS JOIN LATERAL (SELECT c.x | (c.x >> 4) AS x OFFSET 0) d \
       CROSS JOIN LATERAL (SELECT d.x | (d.x >> 8) AS x OFFSET 0) e \
       CROSS JOIN LATERAL (SELECT e.x | (e.x >> 16) AS x OFFSET 0) f \
       CROSS JOIN LATERAL (SELECT f.x | (f.x >> 32) AS x OFFSET 0) g), \
     closed AS (UPDATE sm.run SET stop = filed.stop, node = filed.node, status = filed.status FROM filed \
       WHERE run.ns = filed.ns AND run.start = filed.start AND run.id = filed.id), \
     raised AS (INSERT INTO sm.level AS level (ns, bit, mask, before, after) \
       SELECT ns, bit, CASE bit WHEN 0 THEN 0 ELSE ~(bit | (bit - 1)) END, max(node - start), max(stop - node) \
       FROM filed CROSS JOIN LATERAL (SELECT node & -node AS bit OFFSET 0) level GROUP BY ns, bit",
    raise_levels!(),
    ") SELECT place FROM filed"
);
/// 1 to 3 namespaces, ids and instants, no run twice.
pub(in super::super) const BEAT: &str = "WITH given AS MATERIALIZED ( \
       SELECT place, given.at, run.ns, run.start, run.id \
       FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY given (name, id, at, place) \
       CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace \
       CROSS JOIN LATERAL (SELECT ns, start, id FROM sm.run \
         WHERE run.ns = namespace.no AND run.id = given.id AND run.stop IS NULL OFFSET 0) run), \
     alive AS (UPDATE sm.run SET heartbeat = greatest(run.heartbeat, given.at) FROM given \
       WHERE run.ns = given.ns AND run.start = given.start AND run.id = given.id) \
     SELECT place FROM given";
pub(in super::super) const DELETE: &str = "WITH gone AS (DELETE FROM sm.run USING \
       unnest($1::text[], $2::text[]) given (name, id) \
       CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace \
       WHERE run.ns = namespace.no AND run.id = given.id RETURNING 1) SELECT count(*) FROM gone";
pub(in super::super) const RUNS: &str = concat!(
    "SELECT given.place, ",
    record!(),
    " FROM unnest($1::text[], $2::text[]) WITH ORDINALITY given (name, id, place) \
     CROSS JOIN LATERAL (SELECT no FROM sm.namespace WHERE namespace.name = given.name OFFSET 0) namespace \
     CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = namespace.no AND run.id = given.id OFFSET 0) run"
);
pub(in super::super) const SILENT: &str = concat!(
    "SELECT namespace.name, ",
    record!(),
    " FROM (SELECT * FROM sm.run WHERE heartbeat < $1::bigint AND heartbeat IS NOT NULL AND stop IS NULL AND status <> 3 \
       ORDER BY heartbeat LIMIT $2::bigint) run \
     CROSS JOIN LATERAL (SELECT name FROM sm.namespace WHERE namespace.no = run.ns OFFSET 0) namespace"
);
/// 1 the instant, 2 its forks, 3 and 4 the first and the last of the nodes between them, 5 how many.
pub(in super::super) const FORGET: &str = "WITH stopped AS MATERIALIZED (SELECT * FROM ( \
       SELECT run.ns, run.start, run.id FROM sm.namespace asked \
       CROSS JOIN unnest($3::bigint[], $4::bigint[]) span (low, high) \
       CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = asked.no AND run.node IS NOT NULL \
         AND run.node BETWEEN span.low AND span.high OFFSET 0) run \
       UNION ALL SELECT run.ns, run.start, run.id FROM sm.namespace asked \
       CROSS JOIN unnest($2::bigint[]) given (fork) \
       CROSS JOIN LATERAL (SELECT * FROM sm.run WHERE run.ns = asked.no AND run.node IS NOT NULL \
         AND run.node = given.fork AND run.stop < $1::bigint OFFSET 0) run) found LIMIT $5::bigint), \
     gone AS (DELETE FROM sm.run USING stopped \
       WHERE run.ns = stopped.ns AND run.start = stopped.start AND run.id = stopped.id RETURNING 1) \
     SELECT count(*) FROM gone";
