"""Which NodePools of the input can have the nodes of a pod, by its selectors and tolerations."""

from typing import NamedTuple

import msgspec

from dovetail.api import names, objects
from dovetail.api.documents import Document, plain_value
from dovetail.api.names import TaintEffect
from dovetail.api.pod_specs import SchedulingPodSpec
from dovetail.scheduling.node_affinity import read_node_affinity
from dovetail.scheduling.requirements import (
    NO_REQUIREMENTS,
    RequirementError,
    Requirements,
    of_labels,
    read_requirements,
)
from dovetail.scheduling.taints import untolerated


class PodPlacing(NamedTuple):
    """The nodes that a pod can run on. A selector that cannot be read restricts nothing."""

    alternatives: tuple[Requirements, ...] = (NO_REQUIREMENTS,)
    tolerations: frozenset[objects.Toleration] = frozenset()


class PoolNodes(NamedTuple):
    """The nodes of a NodePool."""

    requirements: Requirements
    taints: tuple[objects.Taint, ...] = ()

    def can_take(self, pod: PodPlacing) -> bool:
        """Whether a pod can run there. Labels that a cloud provider sets may have any value."""
        if untolerated(pod.tolerations, self.taints) is not None:
            return False
        wanted = [requirement for alternative in pod.alternatives for requirement in alternative]
        provided = names.WELL_KNOWN_LABELS | {
            requirement.key for requirement in wanted if _is_of_provider(requirement.key)
        }
        return any(self.requirements.compatible(alternative, provided) for alternative in pod.alternatives)


def _is_of_provider(key: str) -> bool:
    """Whether a cloud provider may set the label, such as karpenter.k8s.aws/instance-family."""
    domain = key.rpartition("/")[0]
    return domain.startswith("karpenter.") and domain != names.GROUP


def placing_of(document: Document, spec_path: str) -> PodPlacing:
    """Where the pods of an object can run; `spec_path` is the path of their spec."""
    value = plain_value(document)
    for step in spec_path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    try:
        spec = msgspec.convert(value or {}, SchedulingPodSpec)
        return PodPlacing(read_node_affinity(spec, preferences=False).alternatives(), frozenset(spec.tolerations))
    except (msgspec.ValidationError, RequirementError):
        return PodPlacing()


def pool_nodes(pool: objects.NodePool) -> PoolNodes:
    template = pool.spec.template
    labels = {**(template.metadata.labels or {}), names.NODEPOOL_LABEL: pool.metadata.name}
    try:
        requirements = read_requirements(template.spec.requirements) & of_labels(labels)
    except RequirementError:
        requirements = of_labels(labels)
    taints = [taint for taint in template.spec.taints or () if taint.effect != TaintEffect.PREFER_NO_SCHEDULE]
    return PoolNodes(requirements, tuple(taints))
