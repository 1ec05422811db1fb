//! Promotion: tasks whose instant has come become ready, earliest first.

/// Does nothing for a tick that was noted. A tick for which nothing is due writes nothing, not even that it
/// writes.
///
/// `= ANY` instead of a join: a host's transaction leaves the planner as it is, and a join it may merge,
/// which reads the whole index of numbers.
pub(super) const PROMOTE: &str = "WITH due AS MATERIALIZED ( \
       SELECT no, lane FROM sm.task WHERE due IS NOT NULL AND due <= $1::bigint \
         AND NOT EXISTS (SELECT FROM sm.request WHERE id = $2::text) \
       ORDER BY due, rank, logical_date, map_index, no LIMIT $3::bigint), \
     ticket AS (UPDATE sm.writer SET ticket = ticket + 1 WHERE EXISTS (SELECT FROM due)), \
     promoted AS (UPDATE sm.task SET state = 0, due = NULL WHERE no = ANY (ARRAY(SELECT no FROM due))), \
     counted AS (UPDATE sm.lane SET ready = ready + more \
       FROM (SELECT lane, count(*) AS more FROM due GROUP BY lane) due WHERE lane.no = due.lane) \
     SELECT count(*) FROM due";
