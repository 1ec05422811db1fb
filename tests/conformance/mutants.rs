//! The suite must refuse every broken store, and say where it is broken.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bent::{Bent, Fault};
use crate::memory;
use stationmaster::conformance::{self, Capabilities, Case};
use stationmaster::store::Store;

const MUTANTS: [(Fault, &str); 123] = [
    (Fault::CommitsAfterAnError, "transactions::an_error_undoes_every_write"),
    (Fault::RunsTheBodyTwice, "transactions::the_body_runs_once"),
    (Fault::CandidatesIgnoreTheCursor, "lanes::a_cursor_need_not_be_a_task"),
    (Fault::CandidatesIgnoreTheOrder, "lanes::candidates_come_in_order"),
    (Fault::GrantWithoutTheReadiness, "grants::only_ready_tasks_are_granted"),
    (Fault::GrantsInOrderOfNumbers, "grants::answered_in_the_order_of_the_batch"),
    (Fault::GrantsWithoutTheStart, "grants::a_started_grant_is_a_grant_and_a_start"),
    (Fault::StartsWhatIsRecorded, "grants::a_started_grant_is_a_grant_and_a_start"),
    (Fault::MovesKeepTheirSlots, "pools::slots_come_back"),
    (Fault::MovesKeepNoSlots, "keeping::what_goes_on_keeps_its_slots_in_a_lane_of_its_own"),
    (Fault::SurveysWithoutWhatKeepsSlots, "keeping::what_goes_on_keeps_its_slots_in_a_lane_of_its_own"),
    (Fault::CancelsUnderAnyEpoch, "cancels::a_cancel_needs_the_lease_of_the_epoch"),
    (Fault::CancelsLater, "cancels::a_cancel_cuts_the_lease_to_its_deadline"),
    (Fault::CancelsWithoutTheMessage, "cancels::a_cancel_cuts_the_lease_to_its_deadline"),
    (Fault::TellsNoDeadline, "cancels::no_renewal_outlasts_the_deadline"),
    (Fault::RenewsBeyondTheDeadline, "cancels::no_renewal_outlasts_the_deadline"),
    (Fault::RenewsUnderAnyEpoch, "leases::a_renewal_needs_the_epoch"),
    (Fault::RenewsOnlyWhatIsNotExpired, "leases::an_expired_lease_can_be_renewed"),
    (Fault::RefusesToRenewForLess, "leases::an_expiry_never_falls"),
    (Fault::StartsTellOfNoRecords, "grants::a_start_tells_whose_attempts_are_recorded"),
    (Fault::StartsUnderAnyEpoch, "grants::a_start_needs_the_epoch"),
    (Fault::MovesFromAnyState, "moves::a_move_needs_the_state"),
    (Fault::MovesUnderAnyEpoch, "moves::a_move_needs_the_epoch"),
    (Fault::MovesTellNoFinish, "moves::only_the_holders_own_end_is_reported_as_its_finish"),
    (Fault::ChangesUnderAnyEpoch, "changes::a_change_needs_the_epoch"),
    (Fault::ChangesFromAnyState, "changes::a_change_needs_a_task_that_waits"),
    (Fault::ChangesWithinTheLane, "changes::a_changed_task_waits_in_the_lane_of_its_needs"),
    (Fault::ChangesKeepTheDueInstant, "changes::a_due_instant_comes_and_goes"),
    (Fault::DeletesUnderAnyEpoch, "changes::a_deletion_needs_the_epoch"),
    (Fault::DeletesFromAnyState, "changes::a_deletion_needs_a_task_that_waits_or_ended"),
    (Fault::DeletesWithTheEvents, "changes::events_outlive_a_task_that_is_deleted"),
    (Fault::AttemptsBackwards, "attempts::the_latest_are_kept"),
    (Fault::AttemptsWithoutTheEarliest, "attempts::the_latest_are_kept"),
    (Fault::AttemptsWithoutSuccesses, "attempts::a_task_says_which_are_kept"),
    (Fault::PromotesOneTooEarly, "tasks::due_tasks_are_promoted_at_their_instant"),
    (Fault::PromotesOneTooLate, "tasks::due_tasks_are_promoted_at_their_instant"),
    (Fault::PromotesOneTooMany, "ticks::the_earliest_due_are_promoted_first_and_then_by_their_order"),
    (Fault::PromotesForAKnownRequest, "ticks::a_survey_of_a_known_request_tells_what_it_granted"),
    (Fault::SurveysBeforeItPromotes, "ticks::a_survey_looks_after_it_promoted"),
    (Fault::OverdueOneTooMany, "ticks::what_is_overdue_is_what_a_survey_makes_ready"),
    (Fault::OverdueIsPromoted, "ticks::looking_for_what_is_overdue_only_reads"),
    (Fault::OverdueTellsAllOfItsLanes, "ticks::what_is_overdue_is_what_a_survey_makes_ready"),
    (Fault::OverdueForgetsWhatIsDueNext, "ticks::what_is_overdue_is_what_a_survey_makes_ready"),
    (Fault::SurveysAllPools, "ticks::a_survey_tells_of_the_pools_that_ready_lanes_name"),
    (Fault::SurveysAllQueues, "queues::a_survey_names_the_lanes_of_the_asked_queues"),
    (Fault::ForgetsWhoServes, "queues::what_a_holder_announced_is_kept_until_it_announces_again"),
    (Fault::CountsServingForEver, "queues::what_stopped_counting_is_forgotten_in_pieces"),
    (Fault::SurveysWithoutFamilies, "rules::a_survey_tells_families_and_pauses"),
    (Fault::SurveysWithoutPauses, "rules::a_survey_tells_families_and_pauses"),
    (Fault::NotesNoRates, "rules::a_grant_notes_what_keys_owe"),
    (Fault::StampsNoShares, "shares::a_grant_notes_the_stamps_and_the_number_of_grants"),
    (Fault::SurveysWithoutShares, "shares::what_a_share_holds_is_counted_in_each_pool"),
    (Fault::RatesWithoutTheClock, "rules::a_grant_notes_what_keys_owe"),
    (Fault::PausesAgain, "rules::a_second_pause_changes_nothing"),
    (Fault::CountsLeasesAsWaiting, "queues::queues_are_counted"),
    (Fault::InsertsDespiteCaps, "caps::nothing_is_inserted_where_a_cap_may_hold"),
    (Fault::CountsOneTooManyUnderCaps, "caps::what_waits_is_counted"),
    (Fault::HoldsNoCapsOfKeys, "caps::the_cap_of_a_key_is_its_own_or_that_of_its_family"),
    (Fault::CapsAreNeverStrict, "caps::caps_are_put_changed_and_lifted"),
    (Fault::LiftsNoCap, "caps::caps_are_put_changed_and_lifted"),
    (Fault::SurveysDefinedLimitsOnly, "ticks::a_survey_tells_of_the_limits_that_ready_lanes_carry"),
    (Fault::SurveysWithoutTheRequest, "ticks::a_survey_of_a_known_request_tells_what_it_granted"),
    (Fault::CandidatesNeverTellSinceWhen, "lanes::candidates_tell_since_when_they_are_ready_if_asked"),
    (Fault::NotesNoRequest, "ticks::a_batch_answers_what_was_as_planned"),
    (Fault::NotesRequestsInOrderOfNumbers, "retention::a_request_is_remembered_with_its_grants"),
    (Fault::ForgetsRequestsAtTheInstant, "retention::requests_are_forgotten_before_an_instant"),
    (Fault::ForgetsOneRequestTooMany, "retention::the_oldest_requests_are_forgotten_first"),
    (Fault::ReplacesNoRequest, "ticks::a_note_replaces_the_one_it_names"),
    (Fault::KeepsOneRequestTooMany, "retention::requests_are_forgotten_beyond_a_number"),
    (Fault::CountsNoRequests, "retention::requests_are_forgotten_beyond_a_number"),
    (Fault::ForgetsBeforeItNotes, "ticks::a_batch_forgets_after_it_noted"),
    (Fault::SaysThatThereWasRoom, "pools::slots_are_taken_up_to_the_last_one"),
    (Fault::SaysThatThereWasNoRoom, "limits::taken_up_to_the_last_one"),
    (Fault::ExpiresOneTooLate, "leases::a_lease_is_expired_from_its_expiry_on"),
    (Fault::LeasesIgnoreThePlace, "leases::a_holder_finds_its_leases_page_by_page"),
    (Fault::LeasesOneTooMany, "leases::a_holder_finds_its_leases_page_by_page"),
    (Fault::ForgetsHoweverTheyEnded, "retention::each_end_is_forgotten_for_itself"),
    (Fault::ForgetsOneTooMany, "retention::the_earliest_ended_are_forgotten_first"),
    (
        Fault::ForgetsSensorsWithTheRest,
        "retention::tasks_that_were_sensors_are_forgotten_by_an_instant_of_their_own",
    ),
    (Fault::ActiveRunsStopExclusive, "windows::the_window_is_half_open_and_the_stop_inclusive"),
    (Fault::ActiveRunsInAnyOrder, "windows::results_come_by_start_then_namespace_then_id"),
    (Fault::NamespacesAreIgnored, "windows::namespaces_are_a_filter"),
    (Fault::FeedBackwards, "feed::moves_of_one_call_are_reported_in_its_order"),
    (Fault::TellsNoReason, "feed::why_a_sensor_ended_is_reported"),
    (Fault::FeedIgnoresThePlace, "feed::the_feed_is_paged_and_its_numbers_have_no_gap"),
    (Fault::ForgetsTheFeedByAgeAlone, "feed::what_was_accepted_or_is_old_is_forgotten"),
    (Fault::MovesTellNothing, "feed::what_else_a_sensor_does_is_reported_if_the_task_asks"),
    (Fault::EndsSensorsUnderAnyEpoch, "sensors::a_replaced_registration_is_fenced"),
    (Fault::ChangesIgnoreTheShard, "sensors::changes_are_filtered_by_shard"),
    (Fault::ChangesLeaveOutWhatEnded, "sensors::followers_can_leave_out_what_ended"),
    (Fault::ShardsUnderAnyEpoch, "workers::a_stale_epoch_changes_nothing"),
    (Fault::ShardsWhateverTheirEnd, "workers::a_lease_that_was_renewed_is_not_taken"),
    (Fault::RemembersOneTakeOfAShard, "workers::it_is_remembered_who_took_a_shard"),
    (Fault::WorkersPokeAllKinds, "workers::a_worker_says_which_kinds_it_pokes"),
    (Fault::LoansAreOfTheShard, "workers::a_kind_of_a_shard_has_a_lease_of_its_own"),
    (Fault::KeepsLoansThatEnded, "workers::a_loan_without_a_holder_is_gone"),
    (Fault::DeletedWorkersKeepTheirLoans, "workers::a_deleted_worker_loses_its_loans"),
    (Fault::ForgetsTakesOfAnyKind, "workers::takes_of_a_kind_are_apart"),
    (Fault::KeepsTakesOfKinds, "workers::old_takes_of_kinds_are_forgotten"),
    (Fault::LeasesWithoutLoad, "workers::a_lease_says_what_its_pokes_cost"),
    (Fault::WorkersHoldAnyNumber, "workers::a_worker_says_how_many_shards_it_holds_at_most"),
    (Fault::OutagesNeverEnd, "workers::outages_that_go_on_are_found"),
    (Fault::KeepsOldOutages, "workers::old_outages_are_forgotten"),
    (Fault::AddsPokeCounts, "poke_counts::a_row_is_replaced"),
    (Fault::PokeCountsOfOneWorker, "poke_counts::workers_are_summed_by_hour_and_kind"),
    (Fault::PokeCountsOfAnyHour, "poke_counts::only_hours_in_the_window_are_returned"),
    (Fault::KeepsOldPokeCounts, "poke_counts::old_hours_are_forgotten"),
    (Fault::DeletedWorkersKeepTheirShards, "workers::a_deleted_worker_releases_its_shards"),
    (Fault::PoolsInAnyOrder, "pools::all_pools_come_by_name"),
    (Fault::DeletesBusyPools, "pools::a_pool_in_use_is_not_deleted"),
    (Fault::TasksInOrderOfNumbers, "tasks::found_by_key_in_the_order_of_the_arguments"),
    (Fault::AuditIsBlind, "moves::slots_held_where_none_can_be_are_found"),
    (Fault::CloseKeepsAStopBeforeTheStart, "runs::a_stop_before_the_start_is_stored_as_the_start"),
    (Fault::BeatsGoBack, "signs::a_heartbeat_never_goes_back"),
    (Fault::ForgetsOpenRuns, "signs::only_closed_runs_are_forgotten"),
    (Fault::ForgetsRunsUnbounded, "signs::forgetting_is_done_in_steps"),
    (Fault::CountIgnoresTheFilter, "pages::filters_leave_out_what_is_not_asked_for"),
    (Fault::SilentOneTooEarly, "signs::a_run_is_silent_after_its_last_heartbeat"),
    (Fault::PagesByStartAlone, "pages::every_page_size_gives_the_whole"),
    (Fault::WalksLoseTheLastOfAPage, "listing::every_list_is_what_a_filter_finds"),
    (Fault::WalksTurnAround, "listing::lists_come_in_the_documented_order"),
    (Fault::WalksReadWithoutEnd, "listing::a_page_that_passed_many_tasks_ends_and_goes_on"),
    (Fault::CountsRetriesAsScheduled, "listing::counts_are_those_of_a_filter"),
];

/// Whether a case refuses a store with this fault, or the audit after it does.
fn is_refused(case: &Case, fault: Fault) -> bool {
    let run = AssertUnwindSafe(|| {
        let store: Box<dyn Store> = Box::new(Bent::new(memory(), fault));
        (case.run)(&*store);
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    });
    catch_unwind(run).is_err()
}

#[test]
fn every_mutant_is_refused_by_name() {
    let cases = conformance::cases(Capabilities::new());
    let survivors: Vec<String> = MUTANTS
        .iter()
        .filter(|(fault, name)| {
            let case = cases.iter().find(|case| case.name == *name).expect("a case of this name");
            !is_refused(case, *fault)
        })
        .map(|(fault, name)| {
            let by: Vec<&str> =
                cases.iter().filter(|case| is_refused(case, *fault)).map(|case| case.name).collect();
            format!("{fault:?} passed {name}, failed {by:?}")
        })
        .collect();
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

#[test]
#[should_panic = "windows::the_window_is_half_open_and_the_stop_inclusive: "]
fn run_panics_with_the_names_of_the_cases() {
    conformance::run(&|| Box::new(Bent::new(memory(), Fault::ActiveRunsStopExclusive)));
}
