"""How long each thing takes or may take (R44): one value with the defaults of 03 §8, handed in at construction."""

import msgspec


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Tests on a real control plane shorten these; users cannot set them."""

    # A claim that has not launched, or not registered, for so long is given up (03 §7.4).
    launch_timeout_seconds: float = 300.0
    registration_timeout_seconds: float = 900.0
    # A drain takes at least so long: the scheduler may have bound a pod before it saw the taint (03 §4).
    least_drain_seconds: float = 5.0
    # A pod so long past its deletionTimestamp is no longer waited for.
    stuck_pod_seconds: float = 60.0
    # How often the provider is asked whether an instance is gone.
    instance_poll_seconds: float = 5.0
    garbage_collection_seconds: float = 120.0
    consistency_seconds: float = 600.0
    pool_counter_seconds: float = 5.0
    # Node repair: how long until it is looked at again when too many nodes are unhealthy.
    repair_blocked_seconds: float = 300.0
    # The net under an eviction that a PodDisruptionBudget refuses: normally its status tells when to try again (R43).
    blocked_eviction_seconds: float = 30.0
