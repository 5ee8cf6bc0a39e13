"""Which test answers which edge case of 02 §14? A test that is renamed or removed is missed here."""

from importlib import import_module
from typing import Final

import pytest

_CANDIDATES: Final = "sim.disruption.test_edge_cases_candidates"
_COMMANDS: Final = "sim.disruption.test_edge_cases_commands"
_REST: Final = "sim.disruption.test_edge_cases_rest"
_BUDGETS: Final = "sim.disruption.test_budgets"
_CARRIED_OUT: Final = "sim.disruption_commands.test_commands"
_RESTART: Final = "sim.disruption_commands.test_restart"
_ROLLBACK: Final = "sim.disruption_commands.test_rollback"
_DRIFT: Final = "sim.conditions.test_drift"
_CONSOLIDATABLE: Final = "sim.conditions.test_consolidatable"
_METHODS: Final = "unit.planning.disruption.test_methods"
_REPLACING: Final = "unit.planning.disruption.test_replacing"
_VALIDATION: Final = "unit.planning.disruption.test_validation"
_BALANCE: Final = "unit.planning.disruption.test_worth"
_CONSOLIDATION: Final = "unit.planning.disruption.test_consolidation"

ANSWERS: Final = {
    1: [f"{_CANDIDATES}::test_of_two_protected_pods_the_longer_one_counts"],
    2: [
        f"{_CANDIDATES}::test_a_protected_daemon_or_mirror_pod_keeps_its_node",
        f"{_CANDIDATES}::test_a_protected_pod_that_has_ended_or_is_ending_does_not_keep_its_node",
    ],
    3: [f"{_CANDIDATES}::test_a_disruption_budget_counts_for_daemons_but_not_for_what_is_never_evicted"],
    4: [f"{_CANDIDATES}::test_a_disruption_budget_of_another_namespace_keeps_nobody"],
    5: [f"{_CANDIDATES}::test_two_disruption_budgets_for_one_pod_keep_its_node_whatever_they_allow"],
    6: [f"{_CANDIDATES}::test_always_allow_lets_a_pod_go_that_is_not_ready"],
    7: [
        f"{_CANDIDATES}::test_consolidation_never_takes_a_protected_pod_even_if_the_drain_is_limited",
        f"{_CANDIDATES}::test_drift_takes_a_protected_pod_if_the_drain_of_the_claim_itself_is_limited",
        f"{_CANDIDATES}::test_drift_in_static_pools_takes_protected_pods_if_the_drain_is_limited",
    ],
    8: [f"{_CANDIDATES}::test_a_drifted_node_goes_and_no_capacity_is_made_for_its_protected_pod"],
    9: [
        f"{_CANDIDATES}::test_do_not_disrupt_on_a_node_holds_back_what_is_graceful",
        f"{_CANDIDATES}::test_any_other_value_on_a_node_holds_back_nothing",
        f"{_CANDIDATES}::test_do_not_disrupt_on_a_node_does_not_hold_back_expiry_repair_or_people",
    ],
    10: [f"{_CANDIDATES}::test_the_annotation_of_a_template_is_on_its_nodes_and_holds_them"],
    11: [f"{_CANDIDATES}::test_a_node_without_claim_and_a_claim_without_node_are_left_alone"],
    12: [
        f"{_CANDIDATES}::test_nodes_of_a_pool_that_nobody_knows_stay_and_it_is_said_why",
        f"{_CANDIDATES}::test_nodes_of_a_pool_without_instance_types_stay",
    ],
    13: [f"{_CANDIDATES}::test_a_node_of_a_type_that_nobody_knows_is_not_consolidated_but_drifts_and_empties"],
    14: [f"{_CANDIDATES}::test_nodes_that_are_not_initialized_or_not_managed_count_for_nothing"],
    15: [f"{_BUDGETS}::test_nodes_that_are_not_ready_use_the_budget_up"],
    16: [f"{_METHODS}::test_what_is_used_up_twice_over_leaves_nothing_and_not_less"],
    17: [f"{_BUDGETS}::test_so_many_go_at_once_and_percentages_round_up"],
    18: [
        f"{_BUDGETS}::test_one_that_names_no_reason_and_cannot_be_read_stops_every_reason",
        f"{_REST}::test_a_budget_that_cannot_be_read_holds_back_its_own_pool_alone",
    ],
    19: [
        f"{_REST}::test_daily_for_48_hours_is_always",
        f"{_REST}::test_a_window_is_over_at_its_end_in_utc_wherever_the_host_is",
    ],
    20: [f"{_REST}::test_a_window_is_over_at_its_end_in_utc_wherever_the_host_is"],
    21: [
        f"{_BUDGETS}::test_several_pools_have_each_their_own_budget",
        f"{_METHODS}::test_one_command_for_all_empty_nodes_within_the_budget_of_each_pool",
    ],
    22: [
        f"{_COMMANDS}::test_a_consolidation_that_only_the_budget_held_back_begins_when_the_budget_opens",
        f"{_METHODS}::test_what_only_a_budget_has_kept_is_tried_again",
    ],
    23: [f"{_COMMANDS}::test_what_is_on_its_way_counts_and_nothing_new_begins"],
    24: [f"{_METHODS}::test_nodes_without_pods_first_then_those_that_drifted_first"],
    25: [
        f"{_METHODS}::test_a_node_whose_pods_have_no_place_does_not_keep_the_next_one_waiting",
        f"{_BUDGETS}::test_drift_in_several_pools_goes_on_at_once",
    ],
    26: [
        f"{_METHODS}::test_drift_may_need_several_new_nodes_and_asks_for_no_price",
        f"{_REPLACING}::test_consolidation_never_makes_two_nodes",
    ],
    27: [f"{_COMMANDS}::test_drifted_that_is_not_true_is_no_reason"],
    28: [f"{_COMMANDS}::test_an_empty_node_that_has_drifted_goes_as_empty_unless_that_is_no_reason"],
    29: [
        f"{_COMMANDS}::test_nodes_of_a_static_pool_only_drift",
        f"{_METHODS}::test_a_static_node_is_only_replaced_never_by_the_general_method",
    ],
    30: [
        f"{_ROLLBACK}::test_without_capacity_it_is_given_up_at_once",
        f"{_ROLLBACK}::test_so_it_is_if_somebody_deletes_the_replacement",
    ],
    31: [f"{_COMMANDS}::test_a_replacement_that_the_watch_does_not_show_is_waited_for"],
    # R23: one that never registered goes.
    32: [
        f"{_ROLLBACK}::test_one_that_registers_and_is_never_initialized_stays",
        f"{_ROLLBACK}::test_a_replacement_that_never_registers_is_deleted_at_the_deadline",
    ],
    33: [
        f"{_CARRIED_OUT}::test_a_command_of_which_not_all_could_be_written_down_is_taken_back",
        f"{_CARRIED_OUT}::test_a_record_that_was_written_though_nobody_knew_is_taken_back",
    ],
    # R24: whoever leads next carries the command on, and only what is of no command is taken back.
    34: [
        f"{_RESTART}::test_replacements_that_are_there_are_waited_for",
        f"{_RESTART}::test_nodes_of_a_command_that_is_half_done_go_too",
        f"{_ROLLBACK}::test_a_taint_of_no_command_goes_and_others_stay",
    ],
    35: [
        f"{_ROLLBACK}::test_a_node_that_expires_meanwhile_is_never_untainted",
        f"{_ROLLBACK}::test_a_node_that_is_deleted_by_hand_keeps_its_taint",
    ],
    36: [
        f"{_COMMANDS}::test_a_node_that_gets_a_second_reason_stays_in_its_command",
        f"{_CARRIED_OUT}::test_a_node_is_in_one_command_only",
    ],
    37: [
        f"{_REPLACING}::test_pods_of_nodes_that_go_anyway_take_their_places_first",
        f"{_REPLACING}::test_what_is_owed_may_wait_for_a_node_that_is_coming_up",
    ],
    38: [f"{_REPLACING}::test_pods_of_a_candidate_must_not_rely_on_a_node_that_is_coming_up"],
    39: [f"{_REST}::test_a_pod_that_waits_for_good_stops_nothing_and_one_that_would_wait_does"],
    40: [f"{_REST}::test_a_node_that_is_not_managed_is_a_place_to_go_to"],
    41: [f"{_REST}::test_a_disk_of_the_old_node_keeps_nobody_there"],
    42: [f"{_REST}::test_rules_between_pods_are_hard_and_wishes_can_be_ignored"],
    # R35: it is a target.
    43: [f"{_REST}::test_a_node_that_has_just_got_a_pod_is_a_place_to_go_to"],
    44: [
        f"{_CONSOLIDATABLE}::test_it_begins_with_the_initialization_and_ends_to_the_moment",
        f"{_CONSOLIDATABLE}::test_0s_is_at_once_after_the_initialization",
    ],
    45: [
        f"{_COMMANDS}::test_a_change_within_15_seconds_calls_a_consolidation_off",
        f"{_COMMANDS}::test_another_list_of_types_calls_a_consolidation_off",
    ],
    46: [
        f"{_COMMANDS}::test_of_empty_nodes_those_go_that_still_are",
        f"{_COMMANDS}::test_of_a_set_none_goes_and_a_single_one_does_at_the_next_look",
        f"{_VALIDATION}::test_as_many_empty_nodes_go_as_the_budget_allows_now",
    ],
    47: [
        f"{_COMMANDS}::test_of_a_set_none_goes_and_a_single_one_does_at_the_next_look",
        f"{_METHODS}::test_when_a_set_is_rejected_the_same_pass_goes_on_with_single_nodes",
    ],
    48: [
        f"{_REPLACING}::test_two_nodes_do_not_become_one_of_their_own_type",
        f"{_REPLACING}::test_three_may_become_one_that_is_cheaper_than_the_cheapest_of_its_type",
    ],
    49: [f"{_REPLACING}::test_a_new_node_that_may_be_spot_or_on_demand_is_made_spot"],
    50: [f"{_REPLACING}::test_the_same_price_is_not_cheaper"],
    51: [
        f"{_REPLACING}::test_spot_is_not_made_spot_unless_that_is_wanted",
        f"{_REPLACING}::test_spot_needs_fifteen_cheaper_types_and_keeps_the_cheapest_fifteen",
        f"{_REPLACING}::test_several_spot_nodes_need_no_fifteen_types_and_a_mixed_set_goes_the_ordinary_way",
    ],
    52: [f"{_REPLACING}::test_too_few_cheaper_types_for_the_minimum_is_no_move"],
    # R36: every node is looked at in every pass, pools in turn, so no pool has to be remembered.
    53: [
        f"{_REST}::test_a_pass_that_runs_out_of_time_is_counted_and_made_again",
        f"{_CONSOLIDATION}::test_when_time_runs_out_what_was_seen_is_kept_and_no_pool_was_left_out",
    ],
    54: [
        f"{_METHODS}::test_a_node_whose_pods_cost_nothing_to_move_goes_if_they_have_a_place",
    ],
    55: [f"{_REPLACING}::test_an_unknown_price_poisons_no_sum"],
    56: [
        f"{_BALANCE}::test_a_well_packed_node_stays_and_a_nearly_empty_one_goes",
        f"{_BALANCE}::test_totals_that_are_missing_reject",
        f"{_BALANCE}::test_exactly_half_passes_whatever_the_numbers",
    ],
    57: [f"{_DRIFT}::test_a_new_version_of_the_hash_drifts_nobody_and_takes_nothing_back"],
    58: [
        f"{_DRIFT}::test_requirements_narrowed_and_relaxed",
        f"{_DRIFT}::test_another_template_drifts_every_claim_and_reverting_it_none",
    ],
    59: [
        f"{_REST}::test_an_expired_claim_is_deleted_once_and_its_node_may_be_younger",
        f"{_REST}::test_an_expired_claim_that_never_registered_counts_no_pods",
    ],
    # R24a: the terminationGracePeriod counts.
    60: [
        f"{_REST}::test_one_ill_node_of_three_is_repaired_whatever_budget_and_node_say",
        f"{_REST}::test_two_ill_nodes_of_three_are_not_repaired",
    ],
}


def test_every_case_has_an_answer() -> None:
    assert list(ANSWERS) == list(range(1, 61))


@pytest.mark.parametrize("number", ANSWERS)
def test_the_answers_are_there(number: int) -> None:
    for answer in ANSWERS[number]:
        module, _, test = answer.partition("::")
        assert callable(getattr(import_module(f"tests.{module}"), test, None)), answer
