"""Names of all labels, annotations, taints, finalizers, conditions, reasons and events that Dovetail reads or writes.

Names are Karpenter's where the meaning is the same (R37); comments mark those that are ours.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

# -- API groups and kinds ---------------------------------------------------------------------------------------------
GROUP: Final = "karpenter.sh"
VERSION: Final = "v1"
API_VERSION: Final = "karpenter.sh/v1"
NODEPOOL_KIND: Final = "NodePool"
NODEPOOL_PLURAL: Final = "nodepools"
NODECLAIM_KIND: Final = "NodeClaim"
NODECLAIM_PLURAL: Final = "nodeclaims"

OWN_GROUP: Final = "dovetail.dev"
KWOK_GROUP: Final = "karpenter.kwok.sh"
KWOK_VERSION: Final = "v1alpha1"
KWOK_API_VERSION: Final = "karpenter.kwok.sh/v1alpha1"
KWOK_NODECLASS_KIND: Final = "KWOKNodeClass"
KWOK_NODECLASS_PLURAL: Final = "kwoknodeclasses"

# -- Dovetail ---------------------------------------------------------------------------------------------------------
COMPONENT: Final = "dovetail"  # field manager (R31) and reporting controller of events (R37)
LEADER_ELECTION_LEASE: Final = "karpenter-leader-election"  # upstream's, so that both can never act at once (R38)
BESIDE_LEASE: Final = "dovetail-beside-karpenter"  # of guard and drive, which never take Karpenter's

# -- labels -----------------------------------------------------------------------------------------------------------
NODEPOOL_LABEL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE_LABEL: Final = "karpenter.sh/capacity-type"
REGISTERED_LABEL: Final = "karpenter.sh/registered"
INITIALIZED_LABEL: Final = "karpenter.sh/initialized"
DO_NOT_SYNC_TAINTS_LABEL: Final = "karpenter.sh/do-not-sync-taints"
KWOK_NODECLASS_LABEL: Final = "karpenter.kwok.sh/kwoknodeclass"

INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
# Labels by which clouds name the group of a node that no NodePool owns.
EKS_COMPUTE_TYPE_LABEL: Final = "eks.amazonaws.com/compute-type"  # fargate
NODE_GROUP_LABELS: Final = (
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
ARCH_LABEL: Final = "kubernetes.io/arch"
OS_LABEL: Final = "kubernetes.io/os"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
STATEFULSET_POD_LABEL: Final = "statefulset.kubernetes.io/pod-name"  # on each pod of a StatefulSet
WINDOWS_BUILD_LABEL: Final = "node.kubernetes.io/windows-build"
EXCLUDE_BALANCERS_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"

KWOK_INSTANCE_SIZE_LABEL: Final = "karpenter.kwok.sh/instance-size"
KWOK_INSTANCE_FAMILY_LABEL: Final = "karpenter.kwok.sh/instance-family"
KWOK_INSTANCE_CPU_LABEL: Final = "karpenter.kwok.sh/instance-cpu"
KWOK_INSTANCE_MEMORY_LABEL: Final = "karpenter.kwok.sh/instance-memory"
KWOK_NODE: Final = "kwok.x-k8s.io/node"  # label and annotation, both `fake`
KWOK_PARTITION_LABEL: Final = "kwok-partition"
INSTANCE_PRICE_LABEL: Final = "eks-node-viewer/instance-price"

# A requirement may name these without the pool defining them (01 §4.2); a provider may add others.
KWOK_LABELS: Final = frozenset(
    {
        KWOK_INSTANCE_SIZE_LABEL,
        KWOK_INSTANCE_FAMILY_LABEL,
        KWOK_INSTANCE_CPU_LABEL,
        KWOK_INSTANCE_MEMORY_LABEL,
    }
)
WELL_KNOWN_LABELS: Final = KWOK_LABELS | frozenset(
    {
        NODEPOOL_LABEL,
        ZONE_LABEL,
        REGION_LABEL,
        INSTANCE_TYPE_LABEL,
        ARCH_LABEL,
        OS_LABEL,
        CAPACITY_TYPE_LABEL,
        WINDOWS_BUILD_LABEL,
    }
)

# Old names that still occur in pods and volumes, and what they mean today (01 §4.2).
NORMALISED_LABELS: Final = MappingProxyType(
    {
        "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
        "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
        "beta.kubernetes.io/arch": ARCH_LABEL,
        "beta.kubernetes.io/os": OS_LABEL,
        "beta.kubernetes.io/instance-type": INSTANCE_TYPE_LABEL,
    }
)

# -- annotations on pods ----------------------------------------------------------------------------------------------
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"  # on Nodes too (R6)
DISRUPTION_SCHEDULE: Final = "karpenter.sh/disruption-schedule"  # when it can be disrupted (R7)
DISRUPTION_SCHEDULE_DURATION: Final = "karpenter.sh/disruption-schedule-duration"
DISRUPTION_BLOCK_SCHEDULE: Final = "karpenter.sh/disruption-block-schedule"  # when it cannot (R7)
DISRUPTION_BLOCK_DURATION: Final = "karpenter.sh/disruption-block-duration"
# Everything by which a pod protects itself: records and recordings keep these, lint knows them.
PROTECTION_ANNOTATIONS: Final = (
    DO_NOT_DISRUPT,
    DISRUPTION_SCHEDULE,
    DISRUPTION_SCHEDULE_DURATION,
    DISRUPTION_BLOCK_SCHEDULE,
    DISRUPTION_BLOCK_DURATION,
)
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
STATIC_POD_MIRROR: Final = "kubernetes.io/config.mirror"

# -- annotations on NodePools, NodeClaims and Nodes -------------------------------------------------------------------
NODEPOOL_HASH: Final = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION: Final = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP: Final = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED: Final = "karpenter.sh/nodeclaim-min-values-relaxed"
DISRUPTION_COMMAND: Final = "karpenter.sh/disruption-command"  # ours: a new leader carries the command on (R24)
# Ours, on replacements (NodeClaims and, by registration, Nodes), with the id of their command: marks a claim of the
# chosen name as our own (R24).
REPLACEMENT_OF: Final = "karpenter.sh/disruption-replacement-of"
DO_NOT_REPAIR: Final = "karpenter.sh/do-not-repair"  # on Nodes: "true" keeps an unhealthy one (R47)
KWOK_INTERRUPTED: Final = "karpenter.kwok.sh/interrupted"  # ours: how kwok raises an interruption (R41)

# -- beside Karpenter: what guard and drive put on objects, and what users write for them; all ours -------------------
HELD: Final = "dovetail.dev/held"  # on a Node: its do-not-disrupt is ours
POD_HOLD: Final = "dovetail.dev/hold"  # on a Pod: its do-not-disrupt is ours
HASH_BEFORE: Final = "dovetail.dev/nodepool-hash-before"  # on a NodeClaim: the hash that our stamp has replaced
ROLLED: Final = "dovetail.dev/rolled"  # on a NodeClaim: it is to be replaced gracefully, why, and since when
GRACEFUL_EXPIRE_AFTER: Final = "dovetail.dev/graceful-expire-after"  # on a NodePool: R20 where the CRD has no field
OWN_BUDGETS: Final = "dovetail.dev/budgets"  # on a NodePool: replaces spec.disruption.budgets for drive
BESIDE: Final = "dovetail.dev/beside"  # on a NodePool: "off" keeps guard and drive away from its nodes
STAMP_PREFIX: Final = "dovetail-expired-"  # of a NodePool hash that we write in order to have a node replaced

# -- every key of the two domains that stands on objects for a reason ------------------------------------------------
OWN_KEYS: Final = frozenset({HELD, POD_HOLD, HASH_BEFORE, ROLLED, GRACEFUL_EXPIRE_AFTER, OWN_BUDGETS, BESIDE})
KARPENTER_KEYS: Final = frozenset(
    {
        # today (01 §6), and those that Dovetail adds
        NODEPOOL_LABEL,
        CAPACITY_TYPE_LABEL,
        REGISTERED_LABEL,
        INITIALIZED_LABEL,
        DO_NOT_SYNC_TAINTS_LABEL,
        *PROTECTION_ANNOTATIONS,
        NODEPOOL_HASH,
        NODEPOOL_HASH_VERSION,
        TERMINATION_TIMESTAMP,
        MIN_VALUES_RELAXED,
        "karpenter.sh/requested-dra-drivers",
        DISRUPTION_COMMAND,
        REPLACEMENT_OF,
        DO_NOT_REPAIR,
        # of older versions, which stay on objects, and the tag by which users let Karpenter find subnets and the like
        "karpenter.sh/provisioner-name",
        "karpenter.sh/provisioner-hash",
        "karpenter.sh/managed-by",
        "karpenter.sh/stored-version-migrated",
        "karpenter.sh/emptiness-timestamp",
        "karpenter.sh/discovery",
    }
)

# -- annotations of others --------------------------------------------------------------------------------------------
PVC_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"

# -- taints (matched by key and effect, never by value) ---------------------------------------------------------------
DISRUPTED_TAINT: Final = "karpenter.sh/disrupted"  # NoSchedule: S3 and later (R23)
BESIDE_DISRUPTED_TAINT: Final = (
    "dovetail.dev/disrupted"  # ours, NoSchedule: S3 in drive, where the one above is Karpenter's
)
CANDIDATE_TAINT: Final = "karpenter.sh/candidate"  # ours, PreferNoSchedule: S2 (R22)
UNREGISTERED_TAINT: Final = "karpenter.sh/unregistered"  # NoExecute, until registration
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
CLOUD_UNINITIALIZED_TAINT: Final = "node.cloudprovider.kubernetes.io/uninitialized"
READINESS_TAINT_PREFIX: Final = "readiness.k8s.io/"

# -- priority classes of pods that go last (03 §4), by name ------------------------------------------------
CRITICAL_PRIORITY_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})

# -- finalizers -------------------------------------------------------------------------------------------------------
TERMINATION_FINALIZER: Final = "karpenter.sh/termination"  # on NodeClaims and Nodes

# -- fixed values -----------------------------------------------------------------------------------------------------
NODES_RESOURCE: Final = "nodes"  # the pseudo resource of NodePool limits
HASH_VERSION: Final = "v3"
KWOK_PROVIDER_ID_PREFIX: Final = "kwok://"
NEVER: Final = "Never"  # the duration that disables


class DovetailMode(StrEnum):
    """The ways in which Dovetail takes part."""

    RUN = "run"  # it is the controller of the cluster
    GUARD = "guard"  # Karpenter decides; Dovetail keeps it off protected nodes
    DRIVE = "drive"  # Dovetail decides; Karpenter launches, drains and ends


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class CapacityType(StrEnum):
    """How an instance is bought."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"


class ConsolidationPolicy(StrEnum):
    """Which nodes of a pool consolidation may look at."""

    WHEN_EMPTY = "WhenEmpty"
    WHEN_EMPTY_OR_UNDERUTILIZED = "WhenEmptyOrUnderutilized"
    BALANCED = "Balanced"


class Reason(StrEnum):
    """Why a node may be disrupted."""

    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    EXPIRED = "Expired"
    UNHEALTHY = "Unhealthy"
    INTERRUPTED = "Interrupted"


class ConditionType(StrEnum):
    """Types of the conditions on NodeClaims and NodePools."""

    READY = "Ready"  # the root, on both kinds and on node classes
    # NodeClaim: the three that make it Ready
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    # NodeClaim: disruption
    CONSOLIDATABLE = "Consolidatable"
    DRIFTED = "Drifted"
    EXPIRED = "Expired"  # ours: gracefulExpireAfter has passed (R20)
    DISRUPTION_REASON = "DisruptionReason"
    # Ours (R21): always True, its reason is the state S1 to S6, for people and the printer column; decisions derive the
    # state anew. A condition, and not a status field, because upstream's CRDs would prune a field they do not know.
    DISRUPTION_STATE = "DisruptionState"
    # NodeClaim: termination
    DRAINED = "Drained"
    VOLUMES_DETACHED = "VolumesDetached"
    INSTANCE_TERMINATING = "InstanceTerminating"
    # Ours: the claim was registered, and its Node is gone. The time of its transition says since when.
    NODE_LOST = "NodeLost"
    # NodeClaim: information only
    CONSISTENT_STATE_FOUND = "ConsistentStateFound"
    # NodePool
    VALIDATION_SUCCEEDED = "ValidationSucceeded"
    NODECLASS_READY = "NodeClassReady"
    NODE_REGISTRATION_HEALTHY = "NodeRegistrationHealthy"


class ConditionReason(StrEnum):
    """Reasons in conditions, beside the condition's own type and the disruption reasons."""

    AWAITING_RECONCILIATION = "AwaitingReconciliation"
    RECONCILING_DEPENDENTS = "ReconcilingDependents"
    UNHEALTHY_DEPENDENTS = "UnhealthyDependents"
    # Launched
    LAUNCH_FAILED = "LaunchFailed"
    # Registered, Initialized
    NODE_NOT_FOUND = "NodeNotFound"
    MULTIPLE_NODES_FOUND = "MultipleNodesFound"
    NODE_NOT_READY = "NodeNotReady"
    STARTUP_TAINTS_EXIST = "StartupTaintsExist"
    KNOWN_EPHEMERAL_TAINTS_EXIST = "KnownEphemeralTaintsExist"
    RESOURCE_NOT_REGISTERED = "ResourceNotRegistered"
    # Drifted
    NODEPOOL_DRIFTED = "NodePoolDrifted"
    REQUIREMENTS_DRIFTED = "RequirementsDrifted"
    ROLL_REQUESTED = "RollRequested"  # ours: `dovetail roll`
    INSTANCE_TYPE_NOT_FOUND = "InstanceTypeNotFound"
    # Drained, VolumesDetached
    DRAINING = "Draining"
    AWAITING_VOLUME_DETACHMENT = "AwaitingVolumeDetachment"
    TERMINATION_GRACE_PERIOD_ELAPSED = "TerminationGracePeriodElapsed"
    # ConsistentStateFound
    CONSISTENCY_CHECK_FAILED = "ConsistencyCheckFailed"
    # NodePool
    NODEPOOL_VALIDATION_FAILED = "NodePoolValidationFailed"
    NODECLASS_NOT_FOUND = "NodeClassNotFound"
    NODECLASS_TERMINATING = "NodeClassTerminating"
    NODECLASS_READINESS_UNKNOWN = "NodeClassReadinessUnknown"
    REGISTRATION_FAILED = "RegistrationFailed"


class EventReason(StrEnum):
    """Reasons of the events we publish; a condition's transition is published under its own type (04 §2.3)."""

    # Disruption
    DISRUPTION_BLOCKED = "DisruptionBlocked"
    DISRUPTION_LAUNCHING = "DisruptionLaunching"
    DISRUPTION_WAITING_READINESS = "DisruptionWaitingReadiness"
    DISRUPTION_TERMINATING = "DisruptionTerminating"
    DISRUPTION_ROLLED_BACK = "DisruptionRolledBack"  # ours: back from S3 to S2 (R23)
    INVALID_DISRUPTION_COMMAND = "InvalidDisruptionCommand"  # ours: a record that we did not write (R54)
    REPLACEMENT_FAILED = "ReplacementFailed"  # ours: the NodePool's template does not come up (R52)
    UNCONSOLIDATABLE = "Unconsolidatable"
    CONSOLIDATION_CANDIDATE = "ConsolidationCandidate"
    CONSOLIDATION_REJECTED = "ConsolidationRejected"
    CONSOLIDATION_FINISHED = "ConsolidationFinished"  # ours: what a command promised, and what came of it
    CONSOLIDATION_BACKOFF = "ConsolidationBackoff"  # ours: a NodePool whose commands save too little waits
    # Protection of pods
    INVALID_DO_NOT_DISRUPT = "InvalidDoNotDisrupt"  # R2's table; upstream appends "Annotation"
    DO_NOT_DISRUPT_UNTIL = "DoNotDisruptUntil"  # R3
    DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED = "DoNotDisruptGracePeriodElapsed"  # R3
    INVALID_DISRUPTION_SCHEDULE = "InvalidDisruptionSchedule"  # ours (R11)
    # Budgets
    BUDGET_READING_DIFFERS = "BudgetReadingDiffers"  # ours (R25)
    BUDGET_WITHOUT_EFFECT = "BudgetWithoutEffect"  # ours: names Expired, but nothing expires gracefully (R28)
    INVALID_BUDGET = "InvalidBudget"  # ours: counts as 0 (R29)
    # Beside Karpenter, all ours
    HELD = "Held"
    RELEASED = "Released"
    CANNOT_HOLD = "CannotHold"  # a user's do-not-disrupt that Karpenter ignores is in the way
    TAKEN_WHILE_BLOCKED = "TakenWhileBlocked"
    STAMPED = "Stamped"
    STAMP_UNDONE = "StampUndone"
    INVALID_MARK = "InvalidMark"  # a value of a dovetail.dev annotation that nobody can read
    HOLD_LEFT = "HoldLeft"  # a hold on a pod that nobody has removed at its end
    # Termination
    EVICTED = "Evicted"
    DISRUPTED = "Disrupted"  # R17
    FAILED_DRAINING = "FailedDraining"
    AWAITING_VOLUME_DETACHMENT = "AwaitingVolumeDetachment"
    TERMINATION_GRACE_PERIOD_EXPIRING = "TerminationGracePeriodExpiring"  # R18
    FAILED_TERMINATION = "FailedTermination"
    # Lifecycle, health, consistency
    INSUFFICIENT_CAPACITY = "InsufficientCapacityError"
    NODECLASS_NOT_READY = "NodeClassNotReady"
    UNREGISTERED_TAINT_MISSING = "UnregisteredTaintMissing"
    NODE_LOST = "NodeLost"  # ours: a registered claim has no Node any more
    FAILED_CONSISTENCY_CHECK = "FailedConsistencyCheck"
    NODE_REPAIR_BLOCKED = "NodeRepairBlocked"
    # Provisioning
    NOMINATED = "Nominated"
    FAILED_SCHEDULING = "FailedScheduling"
    NO_COMPATIBLE_INSTANCE_TYPES = "NoCompatibleInstanceTypes"
