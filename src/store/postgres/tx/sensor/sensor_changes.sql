-- The number of the last change, the highest last change of a sensor that was deleted, and whether changes or
-- events of the feed wait for numbers. A sensor whose deletion waits for the numberer is gone all the same.
SELECT last.sensor,
  greatest(last.forgotten, (
    SELECT max(change.seq)
    FROM (SELECT no FROM sm.sensor_inbox WHERE kind = 2) gone
    CROSS JOIN LATERAL (SELECT seq FROM sm.sensor_change WHERE sensor_change.no = gone.no OFFSET 0) change
  )),
  (SELECT id FROM sm.sensor_inbox ORDER BY id LIMIT 1) IS NOT NULL
    OR (SELECT id FROM sm.feed_inbox ORDER BY id LIMIT 1) IS NOT NULL
FROM (SELECT * FROM sm.numbers ORDER BY version DESC LIMIT 1) last
