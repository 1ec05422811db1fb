-- Returns the number of the last change, the highest last change of a deleted sensor, and whether sensor
-- changes or feed events wait for numbers. A sensor counts as deleted even while its deletion is in the inbox.
SELECT last.sensor,
  greatest(last.forgotten, (
    SELECT max(change.seq)
    FROM (SELECT no FROM sm.sensor_inbox WHERE kind = 2) gone
    CROSS JOIN LATERAL (SELECT seq FROM sm.sensor_change WHERE sensor_change.no = gone.no OFFSET 0) change
  )),
  (SELECT id FROM sm.sensor_inbox ORDER BY id LIMIT 1) IS NOT NULL
    OR (SELECT id FROM sm.feed_inbox ORDER BY id LIMIT 1) IS NOT NULL
FROM (SELECT * FROM sm.numbers ORDER BY version DESC LIMIT 1) last
