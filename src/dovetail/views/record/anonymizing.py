"""Replaces names in recorded objects.

It is an allow-list of texts. Words of Kubernetes and Karpenter stay, and so do texts that are harmless by their form
(numbers, quantities, durations, times, schedules, zones and instance types of public clouds). Everything else (names,
labels, keys, finalizers, reasons) is replaced by a meaningless name, the same everywhere, so that owners, selectors and
affinities still match.
"""

import re
from itertools import chain, count
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.recorded import ANNOTATIONS, PODS_NOT_RECORDED, RECORDED
from dovetail.model.beside import read_hold, read_pod_hold, read_roll, written_mark
from dovetail.model.node_records import awaited_replacements
from dovetail.values.quantity import QuantityError, parse_quantity
from dovetail.values.schedule.cron import CronError, parse_cron

# -- what stays --------------------------------------------------------------------------------------------------------

_WORDS: Final = frozenset(
    chain(
        # What every cluster has.
        ("default", "kube-system", "kube-public", "kube-node-lease", "default-scheduler"),
        names.CRITICAL_PRIORITY_CLASSES,
        # Values of fields.
        ("true", "false", "True", "False", "Unknown", "yes", "fake", "none", names.NEVER, "metadata.name"),
        ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "Equal"),
        names.TaintEffect,
        names.CapacityType,
        names.ConsolidationPolicy,
        names.Reason,
        (reason.lower() for reason in names.Reason),
        ("Pending", "Running", "Succeeded", "Failed", "Bound", "Lost", "Available", "Released"),
        ("Always", "OnFailure", "PreemptLowerPriority", "TCP", "UDP", "SCTP", "0.0.0.0", "::"),
        ("DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "IfHealthyBudget", "AlwaysAllow"),
        ("RollingUpdate", "Recreate", "OnDelete", "OrderedReady", "Parallel", "Indexed", "NonIndexed"),
        ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod", "Filesystem", "Block"),
        ("Immediate", "WaitForFirstConsumer", "Proposed", "InProgress", "Deferred", "Infeasible"),
        ("amd64", "arm64", "arm", "386", "s390x", "ppc64le", "linux", "windows"),
        # Conditions and their reasons.
        names.ConditionType,
        names.ConditionReason,
        ("S1", "S2", "S3", "S4", "S5", "S6"),
        ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"),
        ("KubeletReady", "KubeletNotReady", "NodeStatusUnknown"),
        ("PodScheduled", "PodReadyToStartContainers", "ContainersReady", "DisruptionTarget", "PodResizePending"),
        ("PodResizeInProgress", "Unschedulable", "SchedulingGated", "PodCompleted", "ContainersNotReady"),
        ("ContainersNotInitialized", "Evicted", "NodeLost", "PreemptionByScheduler", "EvictionByEvictionAPI"),
        ("DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"),
        ("Complete", "Suspended", "SuccessCriteriaMet", "FailureTarget", "Progressing", "ReplicaFailure"),
        # Provisioners, and the drivers that do their work today.
        ("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
        ("kubernetes.io/azure-file", "file.csi.azure.com", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        ("kubernetes.io/cinder", "cinder.csi.openstack.org", "kubernetes.io/no-provisioner"),
        ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
        ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    )
)
_POINT: Final = "(?:north|south|east|west|central|northeast|northwest|southeast|southwest)"
_FORM: Final = re.compile(
    "|".join(
        (
            r"-?[0-9]{0,9}(?:\.[0-9]{1,9})?(?:%|[numkKMGTPE]i?)?",  # a longer one may be an account number
            r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ns|us|µs|ms|[smhd])){1,8}",
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})",
            # Zones and regions: kwok, AWS, Google, Azure.
            r"test-zone-[a-z]|test-region",
            rf"(?:us|eu|ap|sa|ca|me|af|il|mx|cn)(?:-gov|-isob?)?-{_POINT}-[1-9][a-z]?|[a-z]{{3,4}}[1-9]-az[1-9]",
            rf"(?:us|europe|asia|australia|northamerica|southamerica|me|africa)-{_POINT}[1-9][0-9]?(?:-[a-z])?",
            rf"{_POINT}{{1,2}}(?:us|europe|asia|india|uk|australia|japan|korea)[23]?(?:-[1-3])?",
            # Instance types, and on kwok their families and sizes.
            r"[a-z]-[0-9]{1,4}x-(?:amd64|arm64)-(?:linux|windows)|[cms]|[0-9]{1,4}x",
            r"[a-z]{1,4}[0-9]{1,2}[a-z]{0,4}(?:-flex)?\."
            r"(?:nano|micro|small|medium|x?large|[0-9]{1,3}xlarge|metal(?:-[0-9]{1,2}xl)?)",
            r"[a-z][0-9][a-z]?-(?:standard|highmem|highcpu|megamem|ultramem|micro|small|medium)(?:-[0-9]{1,3})?",
            r"Standard_[A-Z]{1,3}[0-9]{1,3}(?:-[0-9]{1,3})?[a-z]{0,4}(?:_v[0-9])?",
        )
    )
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # random
_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_VERSION: Final = re.compile(r"v[0-9]{1,3}(?:(?:alpha|beta)[0-9]{1,3})?")
_CLOUD: Final = re.compile(r"(?:kwok|aws|azure|gce|openstack|vsphere|digitalocean|hcloud|oci|ibm|kind|metal3):/{2,3}")

_KEYS: Final = frozenset(
    {
        *names.WELL_KNOWN_LABELS,
        *names.NORMALISED_LABELS,
        *(names.HOSTNAME_LABEL, names.EXCLUDE_BALANCERS_LABEL, names.INSTANCE_PRICE_LABEL),
        *(names.REGISTERED_LABEL, names.INITIALIZED_LABEL, names.DO_NOT_SYNC_TAINTS_LABEL, names.DO_NOT_DISRUPT),
        *(names.KWOK_NODECLASS_LABEL, names.KWOK_NODE, names.KWOK_PARTITION_LABEL, "dovetail.dev/not-ready"),
        *("topology.kubernetes.io/zone-id", "topology.k8s.aws/zone-id", "topology.ebs.csi.aws.com/zone"),
        *("app", "k8s-app", "pod-template-hash", "controller-revision-hash", "job-name", "controller-uid"),
        *("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"),
        *("kubernetes.io/metadata.name", "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"),
        *("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
        *("batch.kubernetes.io/job-completion-index", "node-role.kubernetes.io/control-plane", "metadata.name"),
        *(names.HELD, names.POD_HOLD, names.HASH_BEFORE, names.ROLLED, names.GRACEFUL_EXPIRE_AFTER, names.BESIDE),
        # Taints.
        *(
            names.BESIDE_DISRUPTED_TAINT,
            names.DISRUPTED_TAINT,
            names.CANDIDATE_TAINT,
            names.UNREGISTERED_TAINT,
            names.NOT_READY_TAINT,
        ),
        *(names.UNREACHABLE_TAINT, names.UNSCHEDULABLE_TAINT, names.CLOUD_UNINITIALIZED_TAINT),
        *("node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/pid-pressure"),
        *("node.kubernetes.io/network-unavailable", "node.kubernetes.io/out-of-service"),
        # Finalizers.
        *(names.TERMINATION_FINALIZER, "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"),
        *("foregroundDeletion", "orphan", "batch.kubernetes.io/job-tracking"),
        # Resources.
        *("cpu", "memory", "ephemeral-storage", "storage", "pods", "count", names.NODES_RESOURCE),
        *("hugepages-2Mi", "hugepages-1Gi", "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"),
        *("aws.amazon.com/neuron", "vpc.amazonaws.com/pod-eni", "vpc.amazonaws.com/efa"),
    }
)
_DOMAINS: Final = (names.KWOK_GROUP, names.GROUP, "kubernetes.io", "k8s.io", "x-k8s.io", "dovetail.dev")
_WHOLE_DOMAINS: Final = frozenset({key.rpartition("/")[0] for key in _KEYS}) | {
    *(group for group, _ in RECORDED),
    *("node-role.kubernetes.io", "node-restriction.kubernetes.io", names.READINESS_TAINT_PREFIX.rstrip("/")),
    *("karpenter.k8s.aws", "karpenter.azure.com", "karpenter.k8s.gcp"),
}
_KINDS: Final = frozenset(
    {*(kind for _, kind in RECORDED), "CronJob", "ReplicationController", "EC2NodeClass", "AKSNodeClass"}
)
_ANNOTATIONS: Final = ANNOTATIONS | {
    *names.PROTECTION_ANNOTATIONS,
    names.TERMINATION_TIMESTAMP,
    names.MIN_VALUES_RELAXED,
    names.REPLACEMENT_OF,
    names.KWOK_INTERRUPTED,
    PODS_NOT_RECORDED,
    "karpenter.sh/do-not-repair",
    *("dovetail.dev/start-delay", "dovetail.dev/ready", "dovetail.dev/shutdown", "dovetail.dev/run-for"),
    *("dovetail.dev/exit-code", "dovetail.dev/ready-delay", "dovetail.dev/kubelet"),
}

# -- which fields are what ---------------------------------------------------------------------------------------------

_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_AMOUNTS: Final = frozenset(
    {"requests", "limits", "capacity", "allocatable", "allocatedResources", "overhead", "resources"}
)
_KEY_FIELDS: Final = frozenset({"key", "topologyKey", "matchLabelKeys", "mismatchLabelKeys", "finalizers"})
_SPECIAL: Final = _KEY_FIELDS | {
    *("message", "generateName", "providerID", "apiVersion", "group", "kind", "uid", "resourceVersion")
}
_ORDINAL: Final = re.compile(r"(.+)(-[0-9]+)")


class Anonymizer:
    """Remembers the replacements for all objects of a dump."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._amounts: dict[str, str] = {}
        self._numbers = count(1)

    def anonymized(self, thing: dict[str, Any]) -> dict[str, Any]:
        """The recorded object with names replaced."""
        self._learn_ordinal(thing["metadata"])
        return self._fields(thing)

    def _learn_ordinal(self, meta: dict[str, Any]) -> None:
        """Keep the ordinals of pods of a StatefulSet, which it knows them by."""
        match = _ORDINAL.fullmatch(meta.get("name", ""))
        owners = meta.get("ownerReferences", ())
        if match and any(owner.get("kind") == "StatefulSet" and owner.get("name") == match[1] for owner in owners):
            self._texts.setdefault(match[0], self._text(match[1]) + match[2])

    # -- structure -----------------------------------------------------------------------------------------------------

    def _value(self, field: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._of_field(field, value) if field in _SPECIAL else self._text(value)
        if isinstance(value, list):
            return [self._value(field, item) for item in value]
        if not isinstance(value, dict):
            return value  # a number or a boolean
        if field in _LABELS or (field == "selector" and all(isinstance(part, str) for part in value.values())):
            return {self._key(key): self._text(text) for key, text in value.items()}
        if field == "annotations":
            annotations = {key: self._text(text) for key, text in value.items() if key in _ANNOTATIONS}
            awaited = awaited_replacements(value.get(names.DISRUPTION_COMMAND))
            if awaited is not None:
                replacements = tuple(map(self._text, awaited.replacements))
                awaited = msgspec.structs.replace(awaited, replacements=replacements)
                annotations[names.DISRUPTION_COMMAND] = msgspec.json.encode(awaited).decode()
            return annotations
        if field in _AMOUNTS and not isinstance(next(iter(value.values()), None), dict):
            return {self._key(key): self._amount(amount) for key, amount in value.items()}
        return self._fields(value)

    def _fields(self, value: dict[str, Any]) -> dict[str, Any]:
        return {field: self._value(field, part) for field, part in value.items()}

    def _of_field(self, field: str, text: str) -> str:
        if field in _KEY_FIELDS:
            return self._key(text)
        match field:
            case "message":
                return ""
            case "generateName":
                return f"{self._text(text.removesuffix('-'))}-"
            case "providerID":
                cloud = _CLOUD.match(text)
                return f"{cloud[0] if cloud else ''}{self._text(text)}"
            case "apiVersion":
                group, slash, version = text.rpartition("/")
                shown = version if _VERSION.fullmatch(version) else self._text(version)
                return f"{self._domain(group)}{slash}{shown}"
            case "group":
                return self._domain(text)
            case "kind":  # a label of nodes contains the kind of their class in lower case
                return text if text in _KINDS else self._text(text.lower())
            case "uid" if _UUID.fullmatch(text):
                return text
            case "resourceVersion" if _NUMBER.fullmatch(text):
                return text
        return self._text(text)

    # -- texts ---------------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> str:
        replacement = self._texts.get(text)
        if replacement is None:
            replacement = self._texts[text] = self._shown(text)
        return replacement

    def _shown(self, text: str) -> str:
        if text in _WORDS or _FORM.fullmatch(text) or _is_schedule(text):
            return text
        if ";" in text:  # schedules, or their durations
            return ";".join(self._text(part.strip()) for part in text.split(";"))
        if text.startswith("{"):
            if (hold := read_hold(text)) is not None:
                return written_mark(msgspec.structs.replace(hold, why=""))
            if read_roll(text) is not None or read_pod_hold(text) is not None:
                return text
        return f"x{next(self._numbers)}"

    def _key(self, key: str) -> str:
        """The key of a label, taint, finalizer or resource: `domain/name`."""
        replacement = self._keys.get(key)
        if replacement is None:
            domain, slash, name = key.rpartition("/")
            replacement = self._keys[key] = key if key in _KEYS else f"{self._domain(domain)}{slash}{self._text(name)}"
        return replacement

    def _domain(self, domain: str) -> str:
        if domain in _WHOLE_DOMAINS or domain in _DOMAINS:
            return domain
        for suffix in _DOMAINS:
            if domain.endswith(f".{suffix}"):
                return f"{self._text(domain.removesuffix(f'.{suffix}'))}.{suffix}"
        return self._text(domain)

    def _amount(self, amount: Any) -> Any:
        if not isinstance(amount, str):
            return amount
        if amount not in self._amounts:
            try:
                parse_quantity(amount)
            except QuantityError:
                self._amounts[amount] = self._text(amount)
            else:
                self._amounts[amount] = amount
        return self._amounts[amount]


def _is_schedule(text: str) -> bool:
    if " " not in text and not text.startswith("@"):
        return False
    try:
        parse_cron(text)
    except CronError:
        return False
    return True
