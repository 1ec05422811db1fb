//! The faults, in the order of the page that says what they would break, docs/postgresql-protocol.md.

use super::Fault;

macro_rules! faults {
    ($($what:literal, $file:literal: $part:literal => $bent:literal, $test:literal says $says:literal;)+) => {
        pub(super) const FAULTS: &[Fault] = &[$(Fault {
            what: $what,
            file: $file,
            part: $part,
            bent: $bent,
            test: $test,
            says: $says,
        }),+];
    };
}

faults! {
    "a tick does not exclude definitions", "tick_lock.rs":
        "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE" => "LOCK TABLE sm.tick_lock IN ACCESS SHARE MODE",
        "stepped::definitions::a_pause_waits_for_the_tick_in_flight" says "Done(Ok(";
    "a definition does not exclude ticks", "tick_lock.rs":
        "LOCK TABLE sm.tick_lock IN SHARE ROW EXCLUSIVE MODE" => "LOCK TABLE sm.tick_lock IN ACCESS SHARE MODE",
        "stepped::definitions::the_lock_is_taken_again_after_a_savepoint" says "fewer than 1 wait";
    "a move gives back twice what it ended", "tx/move.sql":
        "sum(held - kept)::bigint AS slots" => "2 * sum(held - kept)::bigint AS slots",
        "stepped::ends::all_orders_of_two_ends" says "left == right";
    "an end gives back twice", "migrations/0001_initial/functions/end_one.sql":
        "VALUES (gone.lane, 0, -1, gone.slots, 1, 0)" => "VALUES (gone.lane, 0, -1, 2 * gone.slots, 1, 0)",
        "stepped::ends::all_orders_of_two_ends" says "left == right";
    "an end has no fence of the epoch", "migrations/0001_initial/functions/end_one.sql":
        "AND epoch = lease_epoch" => "AND epoch >= lease_epoch",
        "stepped::beats::a_stale_holder_beside_the_new_one" says "Ended(Success)";
    "a delta is lost", "tx/move.sql":
        "OR sums.slots <> 0 OR sums.leases <> 0" => "OR sums.came > 1",
        "stepped::ends::all_orders_of_two_ends" says "Register";
    "a move has no fence of the epoch", "tx/move.sql":
        "lease.no = sorted.no AND lease.epoch = sorted.epoch AND" => "lease.no = sorted.no AND",
        "stepped::beats::a_stale_holder_beside_the_new_one" says "None";
    "a start has no fence of the epoch", "tx/start.sql":
        "lease.no = given.no AND lease.epoch = given.epoch AND lease.started = 0" => "lease.no = given.no AND lease.started = 0",
        "stepped::beats::a_stale_holder_beside_the_new_one" says "Queued";
    "an enqueue tells of no task", "tx/enqueue_one.sql":
        "SELECT lane, (due IS NULL)::int, 1, 0, 0," => "SELECT lane, (due IS NULL)::int, 0, 0, 0,",
        "stepped::ends::upkeep_passes_over_what_is_being_ended" says "LaneTasks";
    "of new tasks, those that wait get the numbers of others", "tx/enqueue_all_new.sql":
        "SELECT (SELECT numbers FROM drawn)[given.nth] AS no" => "SELECT (SELECT numbers FROM drawn)[given.place] AS no",
        "one_or_many::one_call_for_each_task_leaves_what_one_call_for_all_does" says "and its row is of another lane";
    "a tick that takes what was given back wakes others", "migrations/0001_initial/functions/tick_ahead.sql":
        "survey.frees_nothing := lane_at IS NULL" => "survey.frees_nothing := FALSE",
        "listening::capacity_that_the_same_tick_takes_is_not_reported" says "the pool is as full as before";
    "a fold applies a delta twice", "tx/fold.sql":
        "was.used - back.slots AS used" => "was.used - 2 * back.slots AS used",
        "stepped::fold::an_effect_is_folded_before_its_cause" says "Pool {";
    "the bound of due instants does not fall", "tx/fold.sql":
        "least(last.due, (SELECT min(due) FROM sums)), last.early" => "last.due, last.early",
        "stepped::bounds::a_locked_due_task_that_is_rolled_back" says "[\"earlier\"]";
    "a missing lane is damage to each fold", "tx/fold.sql":
        "AND (touched.slots > 0 OR touched.leases > 0 OR read.whole)" => "AND true",
        "stepped::fold::an_effect_is_folded_before_its_cause" says "Some(\"{}\")";
    "a fold passes over what was open during the last one", "tx/fold.sql":
        "FROM sm.delta WHERE delta.xid = late.xid ORDER BY xid" => "FROM sm.delta WHERE delta.xid = -late.xid ORDER BY xid",
        "stepped::fold::what_commits_late_is_folded" says "[\"late\"]";
    "the version before is not deleted", "tx/fold.sql":
        "old_lane_uses AS (DELETE FROM sm.lane_use WHERE ctid = ANY (ARRAY(SELECT at FROM lanes)))"
            => "old_lane_uses AS (DELETE FROM sm.lane_use WHERE ctid = ANY (ARRAY(SELECT at FROM lanes WHERE digest IS NULL)))",
        "stepped::fold::an_effect_is_folded_before_its_cause" says "one version of each";
    "the bound does not fall", "tx/fold.sql":
        "ELSE least(min(bound), min(head_of_many), min(place) FILTER (WHERE nth > 32)) END AS bound" => "ELSE min(bound) END AS bound",
        "stepped::bounds::what_comes_before_a_bound_is_found" says "5 given back";
    "a fold remembers no early task", "tx/fold.sql":
        "SELECT digest, max(now_ready) AS now_ready, max(now_tasks) AS now_tasks, max(early) || array_agg(no) FILTER (WHERE nth <= 32) AS early"
            => "SELECT digest, max(now_ready) AS now_ready, max(now_tasks) AS now_tasks, max(early) AS early",
        "stepped::bounds::what_comes_before_a_bound_is_found" says "left == right";
    "a short fold gives back twice", "migrations/0001_initial/functions/fold_few.sql":
        "was_used - given_back)" => "was_used - 2 * given_back)",
        "stepped::fold::an_effect_is_folded_before_its_cause" says "as a few, and as many";
    "a short fold passes over what was open during the last one", "migrations/0001_initial/functions/fold_few.sql":
        "delta.xid = late.xid" => "delta.xid = -late.xid",
        "stepped::fold::what_commits_late_is_folded" says "[\"late\"]";
    "a short fold has seen what its second look found", "migrations/0001_initial/functions/fold_few.sql":
        "SELECT deltas || array_agg(found.delta), places || array_agg(found.at) INTO deltas, places"
            => "SELECT deltas || array_agg(found.delta), places || array_agg(found.at), txid_current_snapshot() INTO deltas, places, noticed",
        "stepped::fold::what_commits_between_the_looks_of_a_short_fold_is_folded" says "left";
    "after a short fold the bound of due instants does not fall", "migrations/0001_initial/functions/fold_few.sql":
        "earliest := least(earliest, one.due);" => "",
        "stepped::bounds::a_locked_due_task_that_is_rolled_back" says "[\"earlier\"]";
    "after a short fold the bound does not fall", "migrations/0001_initial/functions/fold_few.sql":
        "bound := least(bound, place);" => "bound := bound;",
        "stepped::bounds::what_comes_before_a_bound_is_found" says "5 given back";
    "a short fold remembers no early task", "migrations/0001_initial/functions/fold_few.sql":
        "use.early := use.early || one.no;" => "NULL;",
        "stepped::bounds::what_comes_before_a_bound_is_found" says "left == right";
    "a short survey passes over the first task", "tx/tick/survey_few.sql":
        ">= (lane.rank, lane.logical_date, lane.map_index, lane.first)" => "> (lane.rank, lane.logical_date, lane.map_index, lane.first)",
        "bounds::ticks_grant_what_a_look_at_all_rows_says" says "left == right";
    "a short survey does not know what is in use", "tx/tick/survey_few.sql":
        "ORDER BY version DESC LIMIT 1), 0) AS used" => "ORDER BY version DESC LIMIT 1), 0) * 0 AS used",
        "surveys::a_short_survey_tells_what_a_long_one_does" says "some were granted";
    "a short survey does not know its request", "tx/tick/survey_few.sql":
        "WHERE id = $3::text) AS granted" => "WHERE id = $3::text AND at < 0) AS granted",
        "surveys::a_short_survey_tells_what_a_long_one_does" says "some were granted";
    "a short survey does not know what is paused", "tx/tick/survey_few.sql":
        "OR EXISTS (SELECT FROM sm.pause) AS has_more" => "AS has_more",
        "surveys::a_short_survey_tells_what_a_long_one_does" says "a pool is paused";
    "a short survey tells of some lanes alone", "tx/tick/survey_few.sql":
        "LIMIT 17) lane ON true" => "LIMIT 16) lane ON true",
        "surveys::a_survey_of_many_lanes_tells_of_all" says "many lanes";
    "a short survey overlooks early instants", "migrations/0001_initial/functions/fold_few.sql":
        "is_sure := last.early = '{}';" => "is_sure := true;",
        "bounds::a_tick_is_not_due_for_what_a_host_has_locked" says "left == right";
    "a short grant forgets no ticks", "migrations/0001_initial/functions/take_few.sql":
        "WHERE at < before ORDER BY at, id LIMIT at_most" => "WHERE at < before ORDER BY at, id LIMIT 0",
        "surveys::a_short_grant_forgets_old_ticks" says "left == right";
    "a short survey overlooks what kept its slots", "tx/tick/survey_few.sql":
        "ORDER BY lane, rank, logical_date, map_index, no LIMIT 1) IS NOT NULL" => "ORDER BY lane, rank, logical_date, map_index, no LIMIT 0) IS NOT NULL",
        "exact::kept_slots_come_back" says "left == right";
    "a grant forgets early tasks", "tx/tick/grant.sql":
        "ELSE coalesce(part.early, '{}') END AS early" => "ELSE '{}' END AS early",
        "stepped::bounds::a_locked_head_that_is_rolled_back" says "before the bound of its lane";
    "slots that come back open no class", "migrations/0001_initial/functions/order.sql":
        "lane_order.needs <= coalesce(pool.open, 9223372036854775807)" => "lane_order.needs <= 0",
        "stepped::filed::what_gives_back_wakes_when_it_is_folded" says "left == right";
    "what is above a lane is not filed by its first one", "migrations/0001_initial/functions/order.sql":
        "AND NOT child.sleeps AND child.first >= nodes.low_end" => "AND NOT child.sleeps AND child.first > nodes.low_end",
        "stepped::filed::what_commits_late_is_found_before_all_lanes" says "the first task of";
    "a definition leaves marks", "migrations/0001_initial/functions/order.sql":
        "PERFORM sm._wake_nodes(ARRAY(SELECT id FROM sm.lane_order WHERE sleeps));" => "NULL;",
        "stepped::filed::a_group_wakes_when_its_key_has_room" says "a definition removes all";
    "a plan that is not granted leaves its marks", "tx/tick/filed.rs":
        "SELECT sm._wake_nodes($1::uuid[])" => "SELECT $1::uuid[]",
        "stepped::filed::locked_first_tasks_are_passed_over" says "committed: false";
    "the bound does not rise", "tx/tick/grant.sql":
        "coalesce(part.bound, ARRAY[was.rank, was.logical_date, was.map_index, was.no]) AS bound"
            => "ARRAY[was.rank, was.logical_date, was.map_index, was.no] AS bound",
        "stepped::bounds::a_page_reads_no_dead_rows" says "buffers behind the bound";
    "a grant waits for rows", "tx/tick/grant.sql":
        "AND ready.map_index = coalesce(given.map_index, task.map_index) AND ready.no = given.no FOR UPDATE SKIP LOCKED) ready"
            => "AND ready.map_index = coalesce(given.map_index, task.map_index) AND ready.no = given.no FOR UPDATE) ready",
        "stepped::bounds::a_locked_head_that_is_rolled_back" says "Conflict";
    "a short grant waits for rows", "tx/tick/grant_few.sql":
        "AND ready.map_index = given.map_index AND ready.no = given.no FOR UPDATE SKIP LOCKED) ready"
            => "AND ready.map_index = given.map_index AND ready.no = given.no FOR UPDATE) ready",
        "stepped::bounds::a_locked_head_that_is_rolled_back" says "Conflict";
    "a short grant forgets early tasks", "migrations/0001_initial/functions/take_few.sql":
        "use.early := lane_early;" => "use.early := '{}';",
        "stepped::bounds::a_short_grant_counts_as_another_one_does" says "left: [";
    "a short grant raises no bound", "migrations/0001_initial/functions/take_few.sql":
        "coalesce(lane_bound[4], use.no)" => "use.no",
        "stepped::bounds::a_short_grant_counts_as_another_one_does" says "left: [";
    "a short grant counts no slots", "migrations/0001_initial/functions/take_few.sql":
        "cardinality(nos) * needs.slots" => "0 * needs.slots",
        "stepped::bounds::a_short_grant_counts_as_another_one_does" says "left: [";
    "a short grant takes the half of a plan", "migrations/0001_initial/functions/take_few.sql":
        "cardinality(new_epochs) IS DISTINCT FROM cardinality(nos) OR" => "",
        "stepped::bounds::a_locked_head_that_is_rolled_back" says "left";
    "a tick ahead does not know what is paused", "migrations/0001_initial/functions/tick_ahead.sql":
        "OR EXISTS (SELECT FROM sm.pause) OR (SELECT no" => "OR (SELECT no",
        "ticks_ahead::a_tick_that_has_to_decide_is_made_in_parts" says "left == right";
    "a tick ahead does not look for a second lane", "migrations/0001_initial/functions/tick_ahead.sql":
        "IF survey.lane_digest IS NOT NULL THEN" => "IF false THEN",
        "ticks_ahead::a_tick_that_has_to_decide_is_made_in_parts" says "left == right";
    "a tick ahead overlooks what is due", "migrations/0001_initial/functions/tick_ahead.sql":
        "OR folded.next_due <= now THEN" => "THEN",
        "ticks_ahead::a_tick_that_has_to_decide_is_made_in_parts" says "left == right";
    "a tick ahead overlooks early tasks", "migrations/0001_initial/functions/tick_ahead.sql":
        "OR survey.lane_early <> '{}' THEN" => "THEN",
        "ticks_ahead::a_tick_that_has_to_decide_is_made_in_parts" says "left == right";
    "a tick ahead raises no bound", "migrations/0001_initial/functions/tick_ahead.sql":
        "place := ARRAY[survey.ranks[count], survey.dates[count], survey.indices[count], survey.numbers[count] + 1];" => "",
        "ticks_ahead::a_tick_ahead_grants_and_leaves_what_one_in_parts_does" says "left == right";
    "a tick ahead forgets what its fold left", "migrations/0001_initial/functions/tick_ahead.sql":
        "IF count > 0 OR lane_at IS NULL THEN" => "IF count > 0 THEN",
        "ticks_ahead::a_tick_ahead_grants_and_leaves_what_one_in_parts_does" says "left == right";
    "a tick ahead counts no slots", "migrations/0001_initial/functions/tick_ahead.sql":
        "survey.pool_used + count * survey.lane_slots" => "survey.pool_used",
        "ticks_ahead::a_tick_ahead_grants_and_leaves_what_one_in_parts_does" says "left == right";
    "a tick ahead does not know its request", "migrations/0001_initial/functions/tick_ahead.sql":
        "EXISTS (SELECT FROM sm.request WHERE id = tick_id)" => "false",
        "ticks_ahead::a_tick_ahead_is_repeated_by_its_name" says "request_pkey";
    "a tick ahead gives back twice what it ends", "migrations/0001_initial/functions/end_one.sql":
        "left_delta.slots := gone.slots;" => "left_delta.slots := 2 * gone.slots;",
        "ticks_ahead::a_tick_ahead_grants_and_leaves_what_one_in_parts_does" says "left";
    "a tick ahead forgets what it ends", "migrations/0001_initial/functions/tick_ahead.sql":
        "own := use.left_delta;" => "",
        "ticks_ahead::a_tick_ahead_grants_and_leaves_what_one_in_parts_does" says "left";
    "a tick ahead takes a part of what it counted", "migrations/0001_initial/functions/tick_ahead.sql":
        "IF granted < count THEN" => "IF false THEN",
        "ticks_ahead::a_tick_ahead_passes_over_what_is_locked" says "left";
    "a tick ahead counts a task that has left its lane", "migrations/0001_initial/functions/tick_ahead.sql":
        "IF granted < count THEN" => "IF granted = 0 THEN",
        "stepped::ahead::what_changes_between_the_parts_of_a_tick_ahead_is_not_granted" says "left";
    "a tick ahead grants what is not counted", "migrations/0001_initial/functions/tick_ahead.sql":
        "LIMIT least(survey.most, survey.lane_ready)" => "LIMIT survey.most",
        "stepped::ahead::a_tick_ahead_grants_no_more_than_is_counted" says "left";
    "a tick ahead waits for rows", "migrations/0001_initial/functions/tick_ahead.sql":
        "ANY (places) FOR UPDATE SKIP LOCKED)," => "ANY (places) FOR UPDATE),",
        "ticks_ahead::a_tick_ahead_passes_over_what_is_locked" says "Busy";
    "a second plan waits for rows", "tx/tick/candidates.sql":
        "LIMIT page.most FOR UPDATE SKIP LOCKED) ready" => "LIMIT page.most FOR UPDATE) ready",
        "stepped::bounds::a_locked_head_that_is_rolled_back" says "Conflict";
    "a second plan does not lock what it reads", "tx/tick/candidates.sql":
        "LIMIT page.most FOR UPDATE SKIP LOCKED) ready" => "LIMIT page.most OFFSET 0) ready",
        "stepped::bounds::a_locked_head_that_is_rolled_back" says "Conflict";
    "a grant takes the half of a plan", "tx/tick/grant.sql":
        "ELSE is_whole OR $14::bigint = 0 END AS is_whole" => "ELSE TRUE END AS is_whole",
        "bounds::ticks_grant_what_a_look_at_all_rows_says" says "Conflict";
    "promotion counts twice", "tx/promote.sql":
        "coalesce(was.ready, 0) + more.count AS ready" => "coalesce(was.ready, 0) + 2 * more.count AS ready",
        "stepped::bounds::a_locked_due_task_that_is_rolled_back" says "Lane {";
    "promotion waits for rows", "tx/promote.sql":
        "LIMIT (SELECT most FROM room) FOR UPDATE SKIP LOCKED" => "LIMIT (SELECT most FROM room) FOR UPDATE",
        "stepped::ends::promotion_beside_an_open_cancel" says "lock timeout";
    "promotion forgets what it passed over", "tx/promote.sql":
        "ARRAY(SELECT no FROM left_early UNION ALL SELECT no FROM passed WHERE nth <= 32)" => "ARRAY(SELECT no FROM left_early)",
        "stepped::bounds::a_locked_due_task_that_is_rolled_back" says "before the bound of ticks";
    "upkeep does not look a second time", "tx/still_expired.sql":
        "WHERE beat.expires_at > lease.expires_at" => "WHERE beat.expires_at > lease.expires_at AND beat.expires_at < 0",
        "stepped::beats::all_orders_of_renew_and_reap" says "told that it lasts";
    "the next expiry is beyond a deadline", "tx/next_expiry.sql":
        "least(first.cancel_at, greatest(first.expires_at, beat.expires_at))" => "greatest(first.expires_at, beat.expires_at)",
        "stepped::cancels::renewals_and_an_open_cancel_do_not_wait_for_each_other" says "left == right";
    "a renewal tells no deadline", "tx/renew.sql":
        "bool_or(is_renewed), max(cancel_at)" => "bool_or(is_renewed), NULL::bigint",
        "stepped::cancels::renewals_and_an_open_cancel_do_not_wait_for_each_other" says "left == right";
    "a renewal asks for no lock", "tx/renew.sql":
        "FOR KEY SHARE SKIP LOCKED" => "OFFSET 0",
        "stepped::beats::all_orders_of_renew_and_reap" says "told that it lasts";
    "a renewal keeps its last beat alone", "tx/renew.sql":
        "(beat.expires_at, beat.id) < (latest.expires_at, latest.id)" => "beat.id < (SELECT max(id) FROM sm.beat last WHERE last.no = latest.no)",
        "stepped::beats::two_renewals_of_one_lease" says "an earlier instant changes nothing";
    "upkeep waits for rows", "tx/lock_expired.sql":
        "FOR UPDATE SKIP LOCKED" => "FOR UPDATE",
        "stepped::ends::upkeep_passes_over_what_is_being_ended" says "Busy";
    "retention waits for rows", "tx/forget_ended.sql":
        "FOR UPDATE OF idle SKIP LOCKED" => "FOR UPDATE OF idle",
        "stepped::retention::a_locked_task_is_passed_over" says "Busy";
    "retention does not look into the inboxes", "tx/forget_ended.sql":
        "AND NOT EXISTS (SELECT FROM sm.sensor_inbox WHERE sensor_inbox.no = idle.no OFFSET 0)"
            => "",
        "inbox::what_has_no_number_is_not_forgotten" says "its end has no number";
    "a poker waits for rows", "tx/lock_tasks.sql":
        "lease.no = given.no FOR UPDATE SKIP LOCKED) lease ON true LEFT JOIN LATERAL (SELECT no FROM sm.idle WHERE idle.no = given.no FOR UPDATE SKIP LOCKED)"
            => "lease.no = given.no FOR UPDATE SKIP LOCKED) lease ON true LEFT JOIN LATERAL (SELECT no FROM sm.idle WHERE idle.no = given.no FOR UPDATE)",
        "stepped::sensors::an_end_that_is_rolled_back" says "lock timeout";
    "the end of a sensor is not noted", "tx/sensor/end_sensors.sql":
        "SELECT placed.no, 1 FROM placed ORDER BY placed.place" => "SELECT placed.no, 1 FROM placed WHERE false ORDER BY placed.place",
        "stepped::numbers::an_open_end_and_a_killed_numberer" says "(2, 2, false)";
    "events of one call are not in its order", "tx/move.sql":
        "ORDER BY hit.place RETURNING 1" => "ORDER BY hit.place DESC RETURNING 1",
        "stepped::feed::ends_of_one_call_are_reported_in_its_order" says "left == right";
    "numbers are given without the lock", "tx/sensor/number_changes.sql":
        "WHERE current_setting('stationmaster.numbers', true) = 'true'" => "WHERE true",
        "inbox::who_holds_the_lock_of_numbers_delays_nothing_but_numbers" says "left == right";
    "numbers are not given in the order of the notes", "tx/sensor/number_changes.sql":
        "OVER (ORDER BY ends.id), ends.no" => "OVER (ORDER BY ends.id DESC), ends.no",
        "inbox::as_many_get_numbers_as_were_asked_for" says "left == right";
    "a follower's cursor skips one change", "tx/sensor/changed_sensors.sql":
        "WHERE change.seq > $1::bigint ORDER BY" => "WHERE change.seq > $1::bigint + 1 ORDER BY",
        "stepped::numbers::an_open_end_and_a_killed_numberer" says "left == right";
    "a shard is taken under any epoch", "tx/put_shards.sql":
        "AND shard.epoch = given.was AND shard.expires_at =" => "AND shard.expires_at =",
        "passing::a_shard_is_taken_by_the_epoch_that_it_has_under_the_lock" says "left == right";
    "a shard is taken that was renewed meanwhile", "tx/put_shards.sql":
        "AND shard.expires_at = coalesce(given.ended, shard.expires_at) FOR NO KEY UPDATE" => "FOR NO KEY UPDATE",
        "stepped::sensors::a_late_renewal_and_a_takeover" says "left == right";
    "a run is closed twice", "tx/run/close_runs.sql":
        "AND num_nulls(run.stop) = 1 FOR NO KEY UPDATE" => "FOR NO KEY UPDATE",
        "passing::a_close_decides_on_the_run_as_it_is_when_it_gets_the_lock" says "left == right";
    "heartbeats of runs wait", "tx/run/beat_runs.sql":
        "FOR NO KEY UPDATE SKIP LOCKED" => "FOR NO KEY UPDATE",
        "passing::heartbeats_pass_a_locked_run_over_and_find_it_open" says "Busy";
    "callers of one name do not exclude each other", "tx/serialize.sql":
        "ON CONFLICT (name) DO UPDATE SET at = greatest(turn.at, excluded.at)" => "ON CONFLICT (name) DO NOTHING",
        "stepped::serialize::the_last_two_siblings_enqueue_their_successor_once" says "Done(Ok(\"not the last\"))";
}
