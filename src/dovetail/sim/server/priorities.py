"""Which priority has a new pod, and may it preempt? The admission plugin Priority."""

from typing import TYPE_CHECKING

from dovetail.ports import PODS
from dovetail.sim.server import errors
from dovetail.sim.server.kinds import PRIORITY_CLASSES, SYSTEM_PRIORITIES

if TYPE_CHECKING:
    from dovetail.sim.server.registry import Registry
    from dovetail.sim.server.store import Body

LOWER = "PreemptLowerPriority"


def prioritised(registry: "Registry", pod: "Body") -> "Body":
    """The pod with what its class stands for. Raises Forbidden if there is none, or the pod says something else."""
    spec, name = pod.get("spec") or {}, pod["metadata"].get("name", "")
    class_ = _class(registry, spec.get("priorityClassName"))
    if class_ is None:
        raise errors.forbidden(PODS, name, f"no PriorityClass with name {spec['priorityClassName']} was found")
    value, policy = class_.get("value", 0), class_.get("preemptionPolicy") or LOWER
    for what, field, computed in (
        ("integer value of priority", "priority", value),
        ("string value of PreemptionPolicy", "preemptionPolicy", policy),
    ):
        if spec.get(field) not in (None, computed):
            raise errors.forbidden(
                PODS,
                name,
                f"the {what} ({spec[field]}) must not be provided in pod spec; priority admission controller computed "
                f"{computed} from the given PriorityClass name",
            )
    named = {"priorityClassName": class_["metadata"]["name"]} if "metadata" in class_ else {}
    return {**pod, "spec": {**spec, **named, "priority": value, "preemptionPolicy": policy}}


def _class(registry: "Registry", name: str | None) -> "Body | None":
    """The class of this name; without one the default, of several the lowest; without that the value 0."""
    classes = registry.store.collection(PRIORITY_CLASSES).objects
    if not name:
        defaults = [stored.body for stored in classes.values() if stored.body.get("globalDefault")]
        return min(defaults, key=lambda class_: class_.get("value", 0), default={"value": 0})
    if name in SYSTEM_PRIORITIES:
        return {"value": SYSTEM_PRIORITIES[name]}
    found = classes.get(("", name))
    return None if found is None else found.body
