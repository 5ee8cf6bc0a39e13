"""How long each thing takes or may take (R44): one value with the defaults of 03 §8, handed in at construction."""

import msgspec

from dovetail.rules.nodes import VALIDATION_SECONDS


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Tests on a real control plane shorten these; users cannot set them."""

    # A claim that has not launched, or not registered, for so long is given up (03 §7.4).
    launch_timeout_seconds: float = 300.0
    registration_timeout_seconds: float = 900.0
    # A registered claim whose Node has been gone for so long is given up: its machine may register a new Node before.
    lost_node_seconds: float = 600.0
    # A drain takes at least so long: the scheduler may have bound a pod before it saw the taint (03 §4).
    least_drain_seconds: float = 5.0
    # A pod so long past its deletionTimestamp is no longer waited for.
    stuck_pod_seconds: float = 60.0
    # How often the provider is asked whether an instance is gone.
    instance_poll_seconds: float = 5.0
    # An instance that is being ended and has been silent for so long counts as gone, where only its Node tells (R58).
    silent_instance_seconds: float = 60.0
    garbage_collection_seconds: float = 120.0
    consistency_seconds: float = 600.0
    pool_counter_seconds: float = 5.0
    # Node repair: a fault is acted on once it has been seen for so long, by then also on others that it reaches (R47);
    # and how long until it is looked at again when too many nodes are unhealthy.
    fault_seen_seconds: float = 10.0
    repair_blocked_seconds: float = 300.0
    # The net under an eviction that a PodDisruptionBudget refuses: normally its status tells when to try again (R43).
    blocked_eviction_seconds: float = 30.0
    # Provisioning (06 §1, §4): how long one plan may take, and after how long what is still without a place asks again.
    planning_seconds: float = 60.0
    retrigger_seconds: float = 10.0
    # Pools with replicas (06 §9): the net under the watch, and how soon one whose limit is reached is looked at again.
    static_capacity_seconds: float = 60.0
    static_capacity_blocked_seconds: float = 30.0
    # A claim without an instance holds up all placing of pods for no longer than this (06 §7.3).
    unlaunched_pause_seconds: float = 30.0
    # What instance types there are is asked anew after this, if nothing gives reason to ask before.
    instance_types_seconds: float = 300.0
    # A claim's lastPodEventTime is written at most so often (02 §10).
    pod_event_seconds: float = 10.0
    # Drift (02 §10): how often each claim is looked at; and whether its instance type is still offered is asked of
    # claims so old, again after so long.
    drift_seconds: float = 300.0
    type_check_age_seconds: float = 3600.0
    type_check_seconds: float = 1800.0
    # Disruption: a pass is made so long after the first change. It waits for reasons that are still being written, and
    # is made again if it was cut short, after the longest at most; then how long one may take.
    disruption_idle_seconds: float = 1.0
    disruption_longest_seconds: float = 10.0
    disruption_besides_seconds: float = 5.0  # between passes, while commands wait to be validated
    disruption_pass_seconds: float = 10.0
    disruption_unsynced_seconds: float = 1.0
    # A consolidation that was found is looked at again after this, before it is started (02 §8).
    validation_seconds: float = VALIDATION_SECONDS
    # Nodes whose replacements are not initialized after this stay (R23).
    replacement_seconds: float = 600.0
