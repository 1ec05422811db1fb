-- Whether a tick has anything to do, without the lock: an admitter that gets all FALSE (and no lane that fits) goes back to sleep.
SELECT EXISTS (SELECT FROM sm.unfolded AS delta) AS deltas,
  (SELECT due FROM sm.idle WHERE due IS NOT NULL AND due >= (SELECT tick.due FROM sm.tick ORDER BY no DESC LIMIT 1) ORDER BY due LIMIT 1) AS next_due
