"""All timings of the controllers (R44), with the defaults of 03 §8."""

import msgspec

from dovetail.rules.nodes import VALIDATION_SECONDS


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Tests on a real control plane shorten them; users cannot set them."""

    # A claim that is not launched or registered after this is deleted (03 §7.4).
    launch_timeout_seconds: float = 300.0
    registration_timeout_seconds: float = 900.0
    # A registered claim without a Node is deleted after this. Its machine may register a new Node before.
    lost_node_seconds: float = 600.0
    # The minimum duration of a drain: kube-scheduler may bind a pod before it sees the taint (03 §4).
    least_drain_seconds: float = 5.0
    # The drain does not wait for a pod that is so long past its deletionTimestamp.
    stuck_pod_seconds: float = 60.0
    # How often the provider is asked whether an instance is gone.
    instance_poll_seconds: float = 5.0
    # An instance that is being terminated counts as gone after so long without heartbeat, on kwok (R58).
    silent_instance_seconds: float = 60.0
    garbage_collection_seconds: float = 120.0
    consistency_seconds: float = 600.0
    pool_counter_seconds: float = 5.0
    # Node repair: a fault must be visible for so long, so that a fault of many nodes meets the guard (R47). While too
    # many nodes are unhealthy, they are checked again after the second one.
    fault_seen_seconds: float = 10.0
    repair_blocked_seconds: float = 300.0
    # The fallback retry of an eviction that a PodDisruptionBudget refused (R43).
    blocked_eviction_seconds: float = 30.0
    # Provisioning (06 §1, §4): the limit for one plan, and the retry of pods without a place.
    planning_seconds: float = 60.0
    retrigger_seconds: float = 10.0
    # Pools with replicas (06 §9): the periodic check, and the retry after a limit was reached.
    static_capacity_seconds: float = 60.0
    static_capacity_blocked_seconds: float = 30.0
    # A launching claim postpones the placement of pods for no longer than this (06 §7.3).
    unlaunched_pause_seconds: float = 30.0
    # The instance types of a pool are asked again after this, if nothing changes before.
    instance_types_seconds: float = 300.0
    # A claim's lastPodEventTime is written at most so often (02 §10).
    pod_event_seconds: float = 10.0
    # Drift (02 §10): the period of the check of each claim; the age from which its instance type is checked; and the
    # period of that check.
    drift_seconds: float = 300.0
    type_check_age_seconds: float = 3600.0
    type_check_seconds: float = 1800.0
    # Disruption: a pass runs `idle` after the first change. `longest` limits how long it waits for conditions that are
    # still being written, and is the pause after a pass that ran out of time, which it does after `pass`.
    disruption_idle_seconds: float = 1.0
    disruption_longest_seconds: float = 10.0
    disruption_besides_seconds: float = 5.0  # between passes, while commands wait for validation
    disruption_pass_seconds: float = 10.0
    disruption_unsynced_seconds: float = 1.0
    # A consolidation command is validated after this, before it starts (02 §8).
    validation_seconds: float = VALIDATION_SECONDS
    # A command whose replacements are not initialized after this is rolled back (R23).
    replacement_seconds: float = 600.0
