-- Makes a whole tick. The columns are listed, because those of `survey` are needed, and not survey itself.
-- $1 to $16: the parameters of _tick_ahead.
SELECT (survey).*, no, namespace, workflow, run, task, map_index, lane, rank, logical_date, priority, state, due,
  epoch, held, expires_at, attempt, forgiven, lease_loss, attempt_runs, enqueued_at, queued_at, first_started_at,
  started_at, ended_at, holder, retry, message, value, payload, ready_at, lost, finished, cancel_at
FROM sm._tick_ahead($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint,
  $9::bigint, $10::bigint, $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[])
