-- Returns sensors that changed after a number, in the order of their changes. ?1 the number. The index orders
-- the changes only within a state, so the two states are merged.
SELECT no, fingerprint, epoch, attempt, generation, interval, timeout, on_landed, on_missed, registered_at,
  times_out_at, state, changed, kind, context, execution, poke, max_interval, holder
FROM sm_sensor
WHERE state = 0 AND changed > ?1
UNION ALL
SELECT no, fingerprint, epoch, attempt, generation, interval, timeout, on_landed, on_missed, registered_at,
  times_out_at, state, changed, kind, context, execution, poke, max_interval, holder
FROM sm_sensor
WHERE state = 1 AND changed > ?1
ORDER BY changed
