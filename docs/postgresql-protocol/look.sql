-- Whether a tick has anything to do, without the lock: with neither deltas, nor a due task, nor a lane that
-- fits, an admitter goes back to sleep.
WITH last AS MATERIALIZED (SELECT * FROM sm.tick ORDER BY no DESC LIMIT 1)
SELECT EXISTS (SELECT FROM sm.unfolded AS delta) AS deltas,
  least(
    (SELECT due FROM sm.idle WHERE due >= (SELECT last.due FROM last) ORDER BY due LIMIT 1),
    (SELECT min(idle.due) FROM unnest((SELECT early FROM last)) early (no)
     CROSS JOIN LATERAL (SELECT due FROM sm.idle WHERE idle.no = early.no OFFSET 0) idle)) AS next_due
