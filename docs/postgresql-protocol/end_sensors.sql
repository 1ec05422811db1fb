WITH given AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY given (no, epoch, place)),
held AS MATERIALIZED (
  SELECT sensor.no, given.place FROM (SELECT * FROM given ORDER BY no) given CROSS JOIN LATERAL (
    SELECT no FROM sm.sensor WHERE sensor.no = given.no AND sensor.epoch = given.epoch AND sensor.state = 0 FOR NO KEY UPDATE) sensor),
ended AS (UPDATE sm.sensor SET state = 1 WHERE no = ANY (ARRAY(SELECT no FROM held)) RETURNING no),
noted AS (
  INSERT INTO sm.sensor_inbox (no, kind)
  SELECT no, 1 FROM (SELECT no FROM ended JOIN held USING (no) ORDER BY held.place) ended)
SELECT no, held.place FROM ended JOIN held USING (no)
