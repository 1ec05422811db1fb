-- The views that hosts use with their own drivers: see docs/sql.md. The checks come first and cover everything
-- that the tables would refuse. So an insert takes effect as a whole or not at all, whatever conflict clause
-- the host uses.

CREATE VIEW sm_status AS
SELECT t.no AS id, t.epoch, t.namespace, t.workflow, t.run, t.task, nullif(t.map_index, -1) AS map_index,
    CASE t.state
        WHEN 0 THEN 'scheduled' WHEN 5 THEN 'scheduled' WHEN 1 THEN 'queued' WHEN 2 THEN 'running'
        WHEN 3 THEN 'up_for_retry' WHEN 4 THEN 'sensing' WHEN 6 THEN 'success' WHEN 7 THEN 'failed' WHEN 8 THEN 'skipped'
        ELSE 'cancelled'
    END AS state,
    lane.queue, lane.pool, lane.slots, lane.limits, t.priority, t.logical_date, t.due, t.attempt, t.forgiven, t.holder, t.expires_at,
    t.enqueued_at, t.queued_at, t.first_started_at, t.started_at, t.ended_at, t.retry, t.message, t.value, t.payload,
    t.map_index AS map_key, t.cancel_at
FROM sm_task AS t JOIN sm_lane AS lane ON lane.no = t.lane;

-- Shows what sharing saves: the waiting sensors and their distinct targets.
CREATE VIEW sm_sharing AS
SELECT kind, count(*) AS sensors, count(DISTINCT context) AS targets FROM sm_sensor WHERE state = 0 GROUP BY kind;

-- The limit keys that the tasks of a lane carry, and how much each task counts against them.
CREATE VIEW sm_carried AS
SELECT sm_lane.no AS lane, iif(need.type = 'array', json_extract(need.value, '$[0]'), need.value) AS name,
    iif(need.type = 'array', json_extract(need.value, '$[1]'), 1) AS more
FROM sm_lane, json_each(sm_lane.limits) AS need WHERE need.type <> 'object';

-- The share of the tasks of a lane, and their level.
CREATE VIEW sm_shared AS
SELECT sm_lane.no AS lane, sm_lane.pool AS pool, json_extract(need.value, '$[0]') AS share,
    -json_extract(need.value, '$[2]') AS level
FROM sm_lane, json_each(sm_lane.limits) AS need WHERE need.type = 'array' AND json_array_length(need.value) = 3;

-- The pools that the tasks of a lane need, and the slots of each. One list, because in a union SQLite does not
-- look up a lane by its number.
CREATE VIEW sm_needed AS
SELECT sm_lane.no AS lane, json_extract(need.value, '$.pool') AS pool, json_extract(need.value, '$.slots') AS slots
FROM sm_lane,
    json_each(json_insert(sm_lane.limits, '$[#]', json_object('pool', sm_lane.pool, 'slots', sm_lane.slots))) AS need
WHERE need.type = 'object';

CREATE VIEW sm_enqueue AS
SELECT NULL AS at, NULL AS namespace, NULL AS workflow, NULL AS run, NULL AS task, NULL AS map_index, NULL AS pool,
    NULL AS slots, NULL AS limits, NULL AS priority, NULL AS rank, NULL AS logical_date, NULL AS not_before, NULL AS retry,
    NULL AS lease_losses, NULL AS payload, NULL AS queue
WHERE 0;

CREATE TRIGGER sm_enqueue_insert INSTEAD OF INSERT ON sm_enqueue
WHEN NOT EXISTS (
    SELECT 1 FROM sm_task WHERE namespace = NEW.namespace AND workflow = NEW.workflow AND run = NEW.run
        AND task = NEW.task AND map_index = ifnull(NEW.map_index, -1)
)
BEGIN
    SELECT RAISE(ABORT, 'stationmaster: a name is refused: use text of 1 to 512 bytes without NUL')
    WHERE EXISTS (
        SELECT 1 FROM (
            SELECT NEW.namespace AS name UNION ALL SELECT NEW.workflow UNION ALL SELECT NEW.run
            UNION ALL SELECT NEW.task UNION ALL SELECT NEW.pool
            UNION ALL SELECT ifnull(NEW.queue, 'default')
        )
        WHERE typeof(name) <> 'text' OR length(CAST(name AS BLOB)) NOT BETWEEN 1 AND 512 OR instr(name, char(0)) > 0
    );
    SELECT RAISE(ABORT, 'stationmaster: limits or retry is refused: it is no JSON')
    WHERE NEW.limits IS NULL OR NOT json_valid(NEW.limits) OR (NEW.retry IS NOT NULL AND NOT json_valid(NEW.retry));
    SELECT RAISE(ABORT, 'stationmaster: limits is refused: use a JSON array of at most 16 names without control characters, sorted, each once, no blanks between')
    WHERE NEW.limits IS NOT (
            SELECT json_group_array(value)
            FROM (SELECT DISTINCT value FROM json_each(NEW.limits) WHERE type = 'text' ORDER BY value)
        )
        OR (SELECT count(*) FROM json_each(NEW.limits)) > 16
        OR EXISTS (
            SELECT 1 FROM json_each(NEW.limits)
            WHERE length(CAST(value AS BLOB)) NOT BETWEEN 1 AND 512 OR instr(value, char(0)) > 0
                OR value GLOB '*[' || char(1) || '-' || char(31) || ']*'
        );
    SELECT RAISE(ABORT, 'stationmaster: a number is refused: see the ranges in docs/sql.md')
    WHERE typeof(NEW.at) <> 'integer' OR NEW.at NOT BETWEEN -8334601228800000000 AND 8210266876799999999
        OR typeof(NEW.map_index) NOT IN ('null', 'integer') OR NEW.map_index NOT BETWEEN 0 AND 4294967295
        OR typeof(NEW.slots) <> 'integer' OR NEW.slots NOT BETWEEN 1 AND 2147483647
        OR typeof(NEW.priority) <> 'integer' OR NEW.priority NOT BETWEEN -2147483648 AND 2147483647
        OR typeof(NEW.rank) NOT IN ('null', 'integer')
        OR typeof(NEW.logical_date) NOT IN ('null', 'integer') OR NEW.logical_date NOT BETWEEN -8334601228800000000 AND 8210266876799999999
        OR typeof(NEW.not_before) NOT IN ('null', 'integer') OR NEW.not_before NOT BETWEEN -8334601228800000000 AND 8210266876799999999
        OR typeof(NEW.lease_losses) NOT IN ('null', 'integer') OR NEW.lease_losses NOT BETWEEN 0 AND 4294967295;
    SELECT RAISE(ABORT, 'stationmaster: payload or retry is refused: use text of at most 1048576 bytes, and a policy as JSON or NULL')
    WHERE typeof(NEW.payload) <> 'text' OR length(CAST(NEW.payload AS BLOB)) > 1048576
        OR typeof(NEW.retry) NOT IN ('null', 'text');
    SELECT RAISE(ABORT, 'stationmaster: retry is refused: use NULL, or the JSON that the crate writes for a policy')
    WHERE NEW.retry IS NOT NULL AND (
        json_type(NEW.retry) <> 'object' OR json_type(NEW.retry, '$.delay_s') IS NULL
        OR (SELECT count(*) <> count(DISTINCT key) FROM json_each(NEW.retry))
        OR EXISTS (
            SELECT 1 FROM json_each(NEW.retry) WHERE NOT CASE key
                WHEN 'delay_s' THEN type IN ('integer', 'real') AND value BETWEEN 0 AND 9007199254740992
                WHEN 'budget_s' THEN type IN ('integer', 'real') AND value BETWEEN 0 AND 9007199254740992
                WHEN 'cap_s' THEN type IN ('integer', 'real') AND value BETWEEN 1e-6 AND 9007199254740992
                WHEN 'max_delay_s' THEN type IN ('integer', 'real') AND value BETWEEN 1e-6 AND 9007199254740992
                WHEN 'multiplier' THEN type IN ('integer', 'real') AND value BETWEEN 1 AND 1e15
                WHEN 'max_attempts' THEN type = 'integer' AND value BETWEEN 1 AND 4294967295
                WHEN 'jitter' THEN type = 'text' AND value IN ('none', 'full', 'equal', 'decorrelated', 'hashed')
                WHEN 'airflow' THEN type = 'text' AND value IN ('2.5', '2.6', '2.10', '3.2')
                ELSE 0
            END
        )
        OR (json_extract(NEW.retry, '$.jitter') = 'decorrelated' AND ifnull(json_extract(NEW.retry, '$.multiplier'), 1) = 1)
        OR (json_extract(NEW.retry, '$.airflow') IS NOT NULL AND json_extract(NEW.retry, '$.jitter') IS NOT NULL)
        OR (json_extract(NEW.retry, '$.airflow') <> '3.2' AND json_extract(NEW.retry, '$.multiplier') NOT IN (1, 2))
    );
    -- Waiting tasks have not ended, are not leased and are not sensing. A key has its own cap. If the key
    -- itself is not defined, it has that of the family with the longest prefix.
    SELECT RAISE(ABORT, 'stationmaster: too many tasks wait: as many as the queue or one of the limits may have')
    WHERE EXISTS (SELECT 1 FROM sm_cap) AND EXISTS (
        SELECT 1 FROM (
            SELECT 0 AS kind, name, most FROM sm_cap WHERE kind = 0 AND name = ifnull(NEW.queue, 'default')
            UNION ALL
            SELECT 2, given.key, cap.most
            FROM (
                SELECT value AS key, ifnull((SELECT defined FROM sm_task_limit WHERE key = value), 0) AS is_defined
                FROM json_each(NEW.limits)
            ) AS given JOIN sm_cap AS cap
            ON cap.kind = iif(is_defined, 2, 3) AND cap.name = iif(is_defined, given.key, (
                SELECT prefix FROM sm_family
                WHERE length(prefix) < length(given.key) AND substr(given.key, 1, length(prefix)) = prefix
                ORDER BY length(prefix) DESC LIMIT 1
            ))
        ) AS capped
        WHERE capped.most <= (
            SELECT ifnull(sum(tasks - (SELECT count(*) FROM sm_task WHERE lane = sm_lane.no AND state = 4)), 0) FROM sm_lane
            WHERE tasks > 0 AND CASE capped.kind WHEN 0 THEN queue = capped.name
                ELSE EXISTS (SELECT 1 FROM sm_carried WHERE lane = sm_lane.no AND sm_carried.name = capped.name) END
        ) - (
            SELECT count(*) FROM sm_task JOIN sm_lane ON sm_lane.no = sm_task.lane
            WHERE sm_task.expires_at >= -9223372036854775808 AND sm_task.state IN (1, 2)
                AND CASE capped.kind WHEN 0 THEN queue = capped.name
                ELSE EXISTS (SELECT 1 FROM sm_carried WHERE lane = sm_lane.no AND sm_carried.name = capped.name) END
        )
    );

    UPDATE sm_counter SET value = value + 1 WHERE name = 'lane'
        AND NOT EXISTS (SELECT 1 FROM sm_lane WHERE queue = ifnull(NEW.queue, 'default') AND pool = NEW.pool AND slots = NEW.slots AND limits = NEW.limits);
    INSERT INTO sm_lane (no, pool, slots, limits, queue)
        SELECT value, NEW.pool, NEW.slots, NEW.limits, ifnull(NEW.queue, 'default') FROM sm_counter WHERE name = 'lane'
        AND NOT EXISTS (SELECT 1 FROM sm_lane WHERE queue = ifnull(NEW.queue, 'default') AND pool = NEW.pool AND slots = NEW.slots AND limits = NEW.limits);
    INSERT INTO sm_task_limit (key, lanes)
        SELECT value, 1 FROM json_each(NEW.limits)
        WHERE (SELECT tasks FROM sm_lane WHERE queue = ifnull(NEW.queue, 'default') AND pool = NEW.pool AND slots = NEW.slots AND limits = NEW.limits) = 0
        ON CONFLICT (key) DO UPDATE SET lanes = lanes + 1;
    UPDATE sm_counter SET value = value + 1 WHERE name = 'task';
    INSERT INTO sm_task (no, state, due, lane, slots, rank, logical_date, map_index, priority, lease_loss, enqueued_at,
            ready_at, namespace, workflow, run, task, retry, payload)
        SELECT (SELECT value FROM sm_counter WHERE name = 'task'),
            CASE WHEN NEW.not_before > NEW.at THEN 5 ELSE 0 END,
            CASE WHEN NEW.not_before > NEW.at THEN NEW.not_before END,
            no, slots, ifnull(NEW.rank, -NEW.priority), ifnull(NEW.logical_date, NEW.at), ifnull(NEW.map_index, -1),
            NEW.priority, nullif(ifnull(NEW.lease_losses, 3), 0), NEW.at, max(NEW.at, ifnull(NEW.not_before, NEW.at)), NEW.namespace,
            NEW.workflow, NEW.run, NEW.task, NEW.retry, NEW.payload
        FROM sm_lane WHERE queue = ifnull(NEW.queue, 'default') AND pool = NEW.pool AND slots = NEW.slots AND limits = NEW.limits;
    UPDATE sm_lane SET tasks = tasks + 1, ready = ready + (NEW.not_before IS NULL OR NEW.not_before <= NEW.at), counted = NULL
        WHERE queue = ifnull(NEW.queue, 'default') AND pool = NEW.pool AND slots = NEW.slots AND limits = NEW.limits;
END;

CREATE VIEW sm_start AS SELECT NULL AS at, NULL AS id, NULL AS epoch WHERE 0;

CREATE TRIGGER sm_start_insert INSTEAD OF INSERT ON sm_start
BEGIN
    SELECT RAISE(ABORT, 'stationmaster: stale lease: roll back, and stop the work') WHERE NOT EXISTS (
        SELECT 1 FROM sm_task WHERE no = NEW.id AND epoch = NEW.epoch AND state IN (1, 2)
    );
    SELECT RAISE(ABORT, 'stationmaster: the attempts of this task are recorded as runs: start it through the crate')
        FROM sm_task WHERE no = NEW.id AND attempt_runs & 1 <> 0;
    SELECT RAISE(ABORT, 'stationmaster: an instant is refused: use microseconds since 1970')
        WHERE typeof(NEW.at) <> 'integer' OR NEW.at NOT BETWEEN -8334601228800000000 AND 8210266876799999999;
    -- No recorded instant is earlier than the task's previous ones. queued_at was the latest when it was
    -- written.
    UPDATE sm_task SET state = 2, started_at = max(NEW.at, queued_at),
            first_started_at = coalesce(first_started_at, max(NEW.at, queued_at))
        WHERE no = NEW.id AND state = 1;
END;

CREATE VIEW sm_finish AS
SELECT NULL AS at, NULL AS id, NULL AS epoch, NULL AS outcome, NULL AS value, NULL AS message, NULL AS retry_at WHERE 0;

CREATE TRIGGER sm_finish_insert INSTEAD OF INSERT ON sm_finish
BEGIN
    SELECT RAISE(ABORT, 'stationmaster: finished like this before: roll back, and go on: what was committed then is stored')
        FROM sm_task WHERE no = NEW.id AND epoch = NEW.epoch AND state NOT IN (1, 2) AND CASE NEW.outcome
            WHEN 'success' THEN finished = 6 AND value IS NEW.value
            WHEN 'failed' THEN finished IN (3, 7, 9)
            WHEN 'skipped' THEN finished = 8
            WHEN 'given_back' THEN finished IN (0, 9)
        END;
    SELECT RAISE(ABORT, 'stationmaster: stale lease: roll back, and stop the work') WHERE NOT EXISTS (
        SELECT 1 FROM sm_task WHERE no = NEW.id AND epoch = NEW.epoch AND state IN (1, 2)
    );
    SELECT RAISE(ABORT, 'stationmaster: the attempts of this task are recorded as runs: finish it through the crate')
        FROM sm_task WHERE no = NEW.id AND attempt_runs & 1 <> 0;
    SELECT RAISE(ABORT, 'stationmaster: an instant is refused: use microseconds since 1970')
        WHERE typeof(NEW.at) <> 'integer' OR NEW.at NOT BETWEEN -8334601228800000000 AND 8210266876799999999
            OR typeof(NEW.retry_at) NOT IN ('null', 'integer') OR NEW.retry_at NOT BETWEEN -8334601228800000000 AND 8210266876799999999;
    SELECT RAISE(ABORT, 'stationmaster: an outcome is refused: use success, skipped, failed (which may have a retry_at) or given_back')
        WHERE NEW.outcome IS NULL OR NEW.outcome NOT IN ('success', 'skipped', 'failed', 'given_back')
            OR (NEW.retry_at IS NOT NULL AND NEW.outcome <> 'failed');
    SELECT RAISE(ABORT, 'stationmaster: value or message is refused: use text of at most 1048576 bytes, or NULL')
        WHERE typeof(NEW.value) NOT IN ('null', 'text') OR typeof(NEW.message) NOT IN ('null', 'text')
            OR length(CAST(NEW.value AS BLOB)) > 1048576 OR length(CAST(NEW.message AS BLOB)) > 1048576;

    -- A task holds slots of all its pools or of none.
    UPDATE sm_pool SET used = used - (
            SELECT slots FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id) AND pool = sm_pool.name
        )
        WHERE (SELECT held_slots FROM sm_task WHERE no = NEW.id) > 0
            AND name IN (SELECT pool FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id));
    -- A share that gives back its last slot goes behind those that have waited until now.
    UPDATE sm_share_use SET changed = 1, (held, stamp) = (SELECT held - slots,
            iif(held = slots, 1 + 2 * (SELECT value FROM sm_counter WHERE name = 'grants'), stamp)
            FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id) AND pool = sm_share_use.pool
        )
        WHERE (SELECT held_slots FROM sm_task WHERE no = NEW.id) > 0
            AND share = (SELECT share FROM sm_shared WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id))
            AND pool IN (SELECT pool FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id));
    UPDATE sm_task_limit SET used = used - (
            SELECT more FROM sm_carried WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id) AND name = sm_task_limit.key
        )
        WHERE key IN (SELECT name FROM sm_carried WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id));
    UPDATE sm_lane SET ready = ready + 1
        WHERE NEW.outcome = 'given_back' AND no = (SELECT lane FROM sm_task WHERE no = NEW.id AND cancel_at IS NULL);
    -- An unsuccessful attempt is kept unless the task keeps none, a successful one only if the task keeps all.
    -- Those of the latest 16 grants stay.
    INSERT INTO sm_attempt (no, epoch, attempt, queued_at, started_at, ended_at, state, by_holder, holder, queue, message)
        SELECT t.no, t.epoch, t.attempt, t.queued_at, iif(t.state = 2, t.started_at, NULL),
            max(NEW.at, t.queued_at, iif(t.state = 2, t.started_at, t.queued_at)),
            CASE WHEN NEW.outcome = 'success' THEN 6 WHEN NEW.outcome = 'skipped' THEN 8
                WHEN t.cancel_at IS NOT NULL THEN 9 WHEN NEW.outcome = 'given_back' THEN 0
                ELSE iif(NEW.retry_at IS NULL, 7, 3) END,
            1, t.holder, lane.queue,
            substr(CASE WHEN NEW.outcome = 'skipped' THEN NEW.message WHEN NEW.outcome = 'success' THEN NULL
                WHEN t.cancel_at IS NOT NULL THEN t.message WHEN NEW.outcome = 'failed' THEN NEW.message END, 1, 1000)
        FROM sm_task AS t JOIN sm_lane AS lane ON lane.no = t.lane
        WHERE t.no = NEW.id AND iif(NEW.outcome IN ('failed', 'given_back'), t.attempt_runs & 16 = 0, t.attempt_runs & 8)
            AND NOT EXISTS (SELECT 1 FROM sm_attempt WHERE no = t.no AND epoch = t.epoch);
    DELETE FROM sm_attempt WHERE no = NEW.id AND epoch <= NEW.epoch - 16
        AND EXISTS (SELECT 1 FROM sm_attempt WHERE no = NEW.id AND epoch = NEW.epoch);
    -- A cancelled task is neither retried nor given back. It ends with the reason that it has.
    UPDATE sm_task SET
            (state, finished) = (SELECT became, became FROM (
                SELECT CASE
                    WHEN NEW.outcome = 'success' THEN 6 WHEN NEW.outcome = 'skipped' THEN 8
                    WHEN cancel_at IS NOT NULL THEN 9 WHEN NEW.outcome = 'given_back' THEN 0
                    ELSE iif(NEW.retry_at IS NULL, 7, 3)
                END AS became
            )),
            due = iif(cancel_at IS NULL, NEW.retry_at, NULL),
            ready_at = iif(NEW.outcome = 'given_back' AND cancel_at IS NULL, ready_at,
                max(iif(cancel_at IS NULL, ifnull(NEW.retry_at, NEW.at), NEW.at), NEW.at, queued_at,
                    ifnull(started_at, queued_at))),
            ended_at = iif(NEW.outcome = 'given_back' AND cancel_at IS NULL, ended_at,
                max(NEW.at, queued_at, ifnull(started_at, queued_at))),
            forgiven = iif(NEW.outcome = 'given_back' AND cancel_at IS NULL, min(forgiven + 1, 4294967295), forgiven),
            value = CASE
                WHEN NEW.outcome = 'success' THEN NEW.value
                WHEN NEW.outcome = 'given_back' AND cancel_at IS NULL THEN value
            END,
            message = CASE
                WHEN NEW.outcome = 'success' THEN NULL WHEN NEW.outcome = 'skipped' THEN NEW.message
                WHEN NEW.outcome = 'given_back' OR cancel_at IS NOT NULL THEN message ELSE NEW.message
            END,
            held_slots = 0, holder = NULL, expires_at = NULL, cancel_at = NULL
        WHERE no = NEW.id;
    -- The events for the feed.
    UPDATE sm_counter SET value = value + 1 WHERE name = 'feed' AND EXISTS (
        SELECT 1 FROM sm_task WHERE no = NEW.id AND state >= 6 AND attempt_runs & 2
    );
    INSERT INTO sm_feed (seq, no, attempt, at, state, map_index, namespace, workflow, run, task, value, message)
        SELECT (SELECT value FROM sm_counter WHERE name = 'feed'), no, attempt, ended_at, state, map_index, namespace,
            workflow, run, task, value, message
        FROM sm_task WHERE no = NEW.id AND state >= 6 AND attempt_runs & 2;
    -- A lane whose last task ended no longer names its limit keys.
    UPDATE sm_lane SET tasks = tasks - 1, ended = ended + 1
        WHERE no = (SELECT lane FROM sm_task WHERE no = NEW.id AND state >= 6);
    UPDATE sm_task_limit SET lanes = lanes - 1
        WHERE key IN (
            SELECT name FROM sm_carried JOIN sm_lane ON sm_lane.no = lane
            WHERE tasks = 0 AND lane = (SELECT lane FROM sm_task WHERE no = NEW.id AND state >= 6)
        );
    UPDATE sm_share_use SET lanes = lanes - 1
        WHERE (pool, share) IN (
            SELECT sm_shared.pool, sm_shared.share FROM sm_shared JOIN sm_lane ON sm_lane.no = lane
            WHERE tasks = 0 AND lane = (SELECT lane FROM sm_task WHERE no = NEW.id AND state >= 6)
        );
    DELETE FROM sm_task_limit
        WHERE defined = 0 AND used = 0 AND lanes = 0 AND key IN (
            SELECT name FROM sm_carried WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id)
        );
    -- It may be the first task of its lane.
    UPDATE sm_lane SET counted = NULL
        WHERE NEW.outcome = 'given_back' AND no = (SELECT lane FROM sm_task WHERE no = NEW.id);
END;

CREATE VIEW sm_cancel AS
SELECT NULL AS at, NULL AS id, NULL AS outcome, NULL AS message, NULL AS deadline WHERE 0;

-- Asks the holder of a lease to end its task. A deadline is never extended.
CREATE TRIGGER sm_cancel_ask INSTEAD OF INSERT ON sm_cancel
WHEN NEW.deadline IS NOT NULL AND EXISTS (SELECT 1 FROM sm_task WHERE no = NEW.id AND state IN (1, 2))
BEGIN
    SELECT RAISE(ABORT, 'stationmaster: an instant is refused: use microseconds since 1970')
        WHERE typeof(NEW.at) <> 'integer' OR NEW.at NOT BETWEEN -8334601228800000000 AND 8210266876799999999
            OR typeof(NEW.deadline) <> 'integer' OR NEW.deadline NOT BETWEEN -8334601228800000000 AND 8210266876799999999;
    SELECT RAISE(ABORT, 'stationmaster: an outcome is refused: use cancelled where there is a deadline')
        WHERE NEW.outcome IS NOT 'cancelled';
    SELECT RAISE(ABORT, 'stationmaster: message is refused: use text of at most 1048576 bytes')
        WHERE typeof(NEW.message) <> 'text' OR length(CAST(NEW.message AS BLOB)) > 1048576;
    UPDATE sm_task SET cancel_at = NEW.deadline, expires_at = min(expires_at, NEW.deadline), message = NEW.message
        WHERE no = NEW.id AND ifnull(cancel_at > NEW.deadline, 1);
END;

CREATE TRIGGER sm_cancel_insert INSTEAD OF INSERT ON sm_cancel
WHEN NEW.deadline IS NULL OR NOT EXISTS (SELECT 1 FROM sm_task WHERE no = NEW.id AND state IN (1, 2))
BEGIN
    SELECT RAISE(ABORT, 'stationmaster: an instant is refused: use microseconds since 1970')
        WHERE typeof(NEW.at) <> 'integer' OR NEW.at NOT BETWEEN -8334601228800000000 AND 8210266876799999999
            OR typeof(NEW.deadline) NOT IN ('null', 'integer') OR NEW.deadline NOT BETWEEN -8334601228800000000 AND 8210266876799999999;
    SELECT RAISE(ABORT, 'stationmaster: an outcome is refused: use cancelled (which may have a deadline), success, failed or skipped')
        WHERE NEW.outcome IS NULL OR NEW.outcome NOT IN ('success', 'failed', 'skipped', 'cancelled')
            OR (NEW.deadline IS NOT NULL AND NEW.outcome <> 'cancelled');
    SELECT RAISE(ABORT, 'stationmaster: message is refused: use text of at most 1048576 bytes')
        WHERE typeof(NEW.message) <> 'text' OR length(CAST(NEW.message AS BLOB)) > 1048576;
    SELECT RAISE(ABORT, 'stationmaster: unknown task: none has this id')
        WHERE NOT EXISTS (SELECT 1 FROM sm_task WHERE no = NEW.id);
    SELECT RAISE(ABORT, 'stationmaster: cancelled like this before: roll back, and go on: what was committed then is stored')
        FROM sm_task WHERE no = NEW.id AND finished IS NULL AND message IS NEW.message
            AND state = CASE NEW.outcome WHEN 'success' THEN 6 WHEN 'failed' THEN 7 WHEN 'skipped' THEN 8 ELSE 9 END;
    SELECT RAISE(ABORT, 'stationmaster: cannot be cancelled: the task has ended')
        FROM sm_task WHERE no = NEW.id AND state >= 6;
    SELECT RAISE(ABORT, 'stationmaster: cannot be cancelled: the task is queued or running')
        FROM sm_task WHERE no = NEW.id AND state IN (1, 2);
    SELECT RAISE(ABORT, 'stationmaster: the attempts of this task are recorded as runs: cancel it through the crate')
        FROM sm_task WHERE no = NEW.id AND state = 4 AND attempt_runs & 1 <> 0;

    UPDATE sm_pool SET used = used - (
            SELECT slots FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id) AND pool = sm_pool.name
        )
        WHERE (SELECT held_slots FROM sm_task WHERE no = NEW.id) > 0
            AND name IN (SELECT pool FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id));
    -- A share that gives back its last slot goes behind those that have waited until now.
    UPDATE sm_share_use SET changed = 1, (held, stamp) = (SELECT held - slots,
            iif(held = slots, 1 + 2 * (SELECT value FROM sm_counter WHERE name = 'grants'), stamp)
            FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id) AND pool = sm_share_use.pool
        )
        WHERE (SELECT held_slots FROM sm_task WHERE no = NEW.id) > 0
            AND share = (SELECT share FROM sm_shared WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id))
            AND pool IN (SELECT pool FROM sm_needed WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id));
    UPDATE sm_lane SET tasks = tasks - 1, ended = ended + 1,
            ready = ready - (SELECT state = 0 FROM sm_task WHERE no = NEW.id)
        WHERE no = (SELECT lane FROM sm_task WHERE no = NEW.id);
    -- A lane whose last task ended no longer names its limit keys.
    UPDATE sm_task_limit SET lanes = lanes - 1
        WHERE key IN (
            SELECT name FROM sm_carried JOIN sm_lane ON sm_lane.no = lane
            WHERE tasks = 0 AND lane = (SELECT lane FROM sm_task WHERE no = NEW.id)
        );
    UPDATE sm_share_use SET lanes = lanes - 1
        WHERE (pool, share) IN (
            SELECT sm_shared.pool, sm_shared.share FROM sm_shared JOIN sm_lane ON sm_lane.no = lane
            WHERE tasks = 0 AND lane = (SELECT lane FROM sm_task WHERE no = NEW.id)
        );
    DELETE FROM sm_task_limit
        WHERE defined = 0 AND used = 0 AND lanes = 0 AND key IN (
            SELECT name FROM sm_carried WHERE lane = (SELECT lane FROM sm_task WHERE no = NEW.id)
        );
    -- No recorded instant is earlier than the previous ones of the task or its sensor.
    UPDATE sm_task SET
            state = CASE NEW.outcome WHEN 'success' THEN 6 WHEN 'failed' THEN 7 WHEN 'skipped' THEN 8 ELSE 9 END, due = NULL,
            (ended_at, ready_at) = (SELECT last, last FROM (
                SELECT max(NEW.at, enqueued_at, iif(due IS NULL, ready_at, enqueued_at), ifnull(queued_at, enqueued_at),
                    ifnull(started_at, enqueued_at), ifnull(ended_at, enqueued_at), ifnull((
                        SELECT registered_at FROM sm_sensor WHERE no = NEW.id AND epoch = sm_task.epoch AND state = 0
                    ), enqueued_at)) AS last
            )),
            message = NEW.message, value = NULL, finished = NULL, held_slots = 0
        WHERE no = NEW.id;
    -- The events for the feed.
    UPDATE sm_counter SET value = value + 1 WHERE name = 'feed' AND EXISTS (
        SELECT 1 FROM sm_task WHERE no = NEW.id AND state >= 6 AND attempt_runs & 2
    );
    -- Reason 3: the sensor was cancelled.
    INSERT INTO sm_feed (seq, no, attempt, at, state, reason, map_index, namespace, workflow, run, task, value, message)
        SELECT (SELECT value FROM sm_counter WHERE name = 'feed'), no, attempt, ended_at, state,
            (SELECT 3 FROM sm_sensor AS sensor
                WHERE sensor.no = sm_task.no AND sensor.epoch = sm_task.epoch AND sensor.state = 0),
            map_index, namespace, workflow, run, task, value, message
        FROM sm_task WHERE no = NEW.id AND state >= 6 AND attempt_runs & 2;
    -- A sensor's attempt is kept like that of a lease.
    INSERT INTO sm_attempt (no, epoch, attempt, queued_at, started_at, ended_at, state, by_holder, queue, message)
        SELECT t.no, t.epoch, t.attempt, t.queued_at, t.started_at, t.ended_at, t.state, 0, lane.queue,
            substr(t.message, 1, 1000)
        FROM sm_task AS t JOIN sm_lane AS lane ON lane.no = t.lane
        JOIN sm_sensor AS sensor ON sensor.no = t.no AND sensor.epoch = t.epoch AND sensor.state = 0
        WHERE t.no = NEW.id AND iif(t.state IN (7, 9), t.attempt_runs & 16 = 0, t.attempt_runs & 8)
            AND NOT EXISTS (SELECT 1 FROM sm_attempt WHERE no = t.no AND epoch = t.epoch);
    DELETE FROM sm_attempt WHERE no = NEW.id AND epoch <= (SELECT epoch FROM sm_task WHERE no = NEW.id) - 16;
    UPDATE sm_counter SET value = value + 1 WHERE name = 'sensor' AND EXISTS (
        SELECT 1 FROM sm_sensor WHERE no = NEW.id AND epoch = (SELECT epoch FROM sm_task WHERE no = NEW.id) AND state = 0
    );
    UPDATE sm_sensor SET state = 1, changed = (SELECT value FROM sm_counter WHERE name = 'sensor')
        WHERE no = NEW.id AND state = 0 AND epoch = (SELECT epoch FROM sm_task WHERE no = NEW.id);
    -- It may have been the first task of its lane.
    UPDATE sm_lane SET counted = NULL WHERE no = (SELECT lane FROM sm_task WHERE no = NEW.id);
END;
