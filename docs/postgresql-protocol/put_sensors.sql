-- As today without `changed`: the sensor's row is inserted or replaced (its task is locked), each
-- registration noted in the inbox in order of places. Where the store's own transaction has the lock of
-- numbers, number_changes follows in the same round trip.
INSERT INTO sm.sensor_inbox (no, kind) SELECT no, 0 FROM unnest($1::bigint[]) WITH ORDINALITY given (no, place) ORDER BY place
