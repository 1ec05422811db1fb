-- Returns the keys of runs that started and stopped before an instant. Closed runs are filed under nodes
-- between their start and their stop, so two kinds of nodes hold all of them.
-- ?1 the instant; ?2 its forks as a JSON array; ?3 the nodes between these as a JSON array of [first, last];
-- ?4 how many.

-- Every run under a node between two forks stopped before the instant.
SELECT ns, sm_run.start, sm_run.id
FROM sm_namespace asked CROSS JOIN json_each(?3) span CROSS JOIN sm_run INDEXED BY sm_run_node_stop
WHERE ns = asked.no AND node IS NOT NULL AND node BETWEEN span.value ->> 0 AND span.value ->> 1

UNION ALL
-- Under a fork, some stopped later.
SELECT ns, sm_run.start, sm_run.id
FROM sm_namespace asked CROSS JOIN json_each(?2) fork CROSS JOIN sm_run INDEXED BY sm_run_node_stop
WHERE ns = asked.no AND node IS NOT NULL AND node = fork.value AND stop < ?1
LIMIT ?4
