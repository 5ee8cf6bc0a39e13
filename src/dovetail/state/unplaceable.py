"""Why a pod cannot be placed on any node, and what its owner can do about it (06 §2)."""

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.api.names import CapacityType
from dovetail.api.objects import NodeSelectorRequirement
from dovetail.api.pod_specs import SchedulingPodSpec
from dovetail.model.field_errors import OPERATORS, FieldError, value_flaw
from dovetail.model.refs import Redactable, Ref, Sentence
from dovetail.scheduling.labels import is_restricted, normalised
from dovetail.scheduling.node_affinity import ParsedNodeAffinity
from dovetail.scheduling.volumes import VolumeError, VolumeFlaw
from dovetail.values.duration import shown
from dovetail.values.label_syntax import is_label_value, is_qualified

_TERMS: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_OWN_LABEL: Final = "ask for a label of your own that a NodePool sets, or for the nodepool, zone or instance type"
_REMEDIES: Final = {
    VolumeFlaw.CLAIM_MISSING: "create the claim, or correct its name",
    VolumeFlaw.CLAIM_DELETING: "wait until it is gone and create it anew",
    VolumeFlaw.CLAIM_LOST: "delete the claim and create it anew",
    VolumeFlaw.VOLUME_MISSING: "restore the volume, or delete the claim and create it anew",
    VolumeFlaw.VOLUME_DELETING: "wait until the volume is gone, and create the claim anew",
    VolumeFlaw.NOT_YET_BOUND: "wait for the volume controller",
    VolumeFlaw.NO_CLASS: "give the claim a storageClassName, or make a volume for it",
    VolumeFlaw.CLASS_MISSING: "create the storage class, or correct the claim's storageClassName",
    VolumeFlaw.BOUND_BEFOREHAND: "wait until it is bound, or use volumeBindingMode WaitForFirstConsumer",
    VolumeFlaw.UNREADABLE: "correct the volume's nodeAffinity",
    VolumeFlaw.TOO_MANY: "use fewer volumes, or volumes that can be used in fewer places",
}
NO_MANAGED_NODE: Final = FieldError(
    "spec.affinity", f"it wants a node without the label {names.NODEPOOL_LABEL}", "nothing has to be done"
)


class Unplaceable(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that fits no node, and why. `silent`: it does not want a node of ours, so there is no event."""

    pod: Ref
    uid: str
    reason: str
    silent: bool = False

    def __str__(self) -> str:
        """For the owner of the pod."""
        return f"{self.pod.path}: {self.reason}"

    @property
    def sentence(self) -> Sentence:
        """For readers of the node. The reason quotes the pod's spec, so it is as confidential as the name."""
        return Sentence(Redactable(self.pod, f"pod {self.pod.path} cannot be placed: {self.reason}"))


def wants_no_managed_node(affinity: ParsedNodeAffinity) -> bool:
    """Whether all alternatives exclude nodes with a NodePool."""
    asked = [requirements.get(names.NODEPOOL_LABEL) for requirements in affinity.alternatives()]
    return all(values.optional and not values.complement for values in asked)


def spec_flaw(spec: SchedulingPodSpec, well_known: frozenset[str], too_much: str = "") -> FieldError | None:
    """The first requirement that cannot be read or satisfied by a new node. `too_much`: a limit the spec exceeds."""
    return FieldError("spec", too_much, "write fewer") if too_much else next(_flaws(spec, well_known), None)


def volume_flaw(error: VolumeError) -> FieldError:
    return FieldError("spec.volumes", str(error), _REMEDIES[error.flaw])


def sentence(flaw: FieldError) -> str:
    """For people who know the pod."""
    return f"{flaw.field}: {flaw.message}; {flaw.remedy}"


def _flaws(spec: SchedulingPodSpec, well_known: frozenset[str]) -> Iterator[FieldError]:
    for key, value in spec.node_selector.items():
        asked = NodeSelectorRequirement(key, "In", [value])
        yield from _requirement_flaws(f"spec.nodeSelector[{key}]", asked, well_known)
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    for index, term in enumerate(() if required is None else required.node_selector_terms):
        field = f"{_TERMS}[{index}]"
        if term.match_fields:
            message = "matchFields choose a node by its name, which a new one does not have yet"
            yield FieldError(f"{field}.matchFields", message, "use matchExpressions")
        for number, asked in enumerate(term.match_expressions):
            yield from _requirement_flaws(f"{field}.matchExpressions[{number}]", asked, well_known)


def _requirement_flaws(field: str, asked: NodeSelectorRequirement, well_known: frozenset[str]) -> Iterator[FieldError]:
    about = f"label {shown(asked.key)}"
    if not is_qualified(asked.key):
        yield FieldError(field, f"{about} is no name of a label", "correct the name")
    if is_restricted(normalised(asked.key), well_known):
        yield FieldError(field, f"{about} may not be asked for", _OWN_LABEL)
    if asked.operator not in OPERATORS:
        yield FieldError(
            field, f"{about}: {shown(asked.operator)} is no operator", f"write one of {', '.join(OPERATORS)}"
        )
    if flaw := value_flaw(asked.operator, asked.values, None):
        yield FieldError(field, f"{about}: {flaw.message}", flaw.remedy)
    elif _asks_for_unknown_capacity_type(asked):
        types = ", ".join(CapacityType)
        yield FieldError(field, f"{about}: none of the values is a capacity type", f"write one of {types}")
    for value in asked.values:
        if not is_label_value(value):
            yield FieldError(field, f"{about}: {shown(value)} is no value of a label", "correct the value")


def _asks_for_unknown_capacity_type(asked: NodeSelectorRequirement) -> bool:
    return (
        asked.key == names.CAPACITY_TYPE_LABEL
        and asked.operator == "In"
        and set(asked.values).isdisjoint(list(CapacityType))
    )
