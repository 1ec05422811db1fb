-- Returns the lanes with ready tasks, and the places before which only early tasks are ready. Tasks that wait
-- with slots that they kept form a lane of their own, under the negative number.
-- $1: the queues of the lanes, or NULL for all.
SELECT digest, no, pool, slots, limits, queue, ready, bound, early FROM sm.lane_now
WHERE ready > 0 AND ($1::text[] IS NULL OR coalesce(queue, 'default') = ANY ($1::text[]))
UNION ALL
SELECT keeping.lane, -coalesce(
    (SELECT no FROM sm.lane WHERE lane.digest = keeping.lane),
    (SELECT min(first) FROM sm.unfolded WHERE unfolded.lane = keeping.lane)),
  task.pool, task.slots, task.limits, task.queue, keeping.count, NULL, '{}'
FROM (
  SELECT lane, count(*) AS count, min(no) AS no FROM sm.idle WHERE due IS NULL AND rank IS NOT NULL GROUP BY lane
) keeping
CROSS JOIN LATERAL (SELECT pool, slots, limits, queue FROM sm.task WHERE task.no = keeping.no OFFSET 0) task
WHERE $1::text[] IS NULL OR coalesce(task.queue, 'default') = ANY ($1::text[])
