"""Objects for the tests of scheduling, read from what the API server would send."""

from typing import Any

import msgspec

from dovetail.api.objects import Node, NodeClaim, NodeSelectorRequirement, Taint, Toleration
from dovetail.api.pod_specs import SchedulingPod
from dovetail.scheduling import requirements
from dovetail.scheduling.requirements import Requirements

Manifest = dict[str, Any]


def entry(key: str, operator: str, *values: str, min_values: int | None = None) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values), min_values=min_values)


def required(key: str, operator: str, *values: str, min_values: int | None = None) -> requirements.Requirement:
    """One requirement, read."""
    return requirements.read_requirement(entry(key, operator, *values, min_values=min_values))


def allof(*each: requirements.Requirement) -> Requirements:
    return Requirements(each)


def pod(
    name: str = "web-1", *, status: Manifest | None = None, created: str | None = None, **spec: Any
) -> SchedulingPod:
    """A pod with this spec, in the names of the API."""
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": created}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status or {}}, SchedulingPod)


def container(name: str = "app", *, always: bool = False, limits: Manifest | None = None, **requests: Any) -> Manifest:
    """A container; `ephemeral_storage` is `ephemeral-storage`."""
    asked = {key.replace("_", "-"): value for key, value in requests.items()}
    policy = {"restartPolicy": "Always"} if always else {}
    return {"name": name, "resources": {"requests": asked, "limits": limits or {}}, **policy}


def taint(text: str) -> Taint:
    """Of `key=value:effect` or `key:effect`."""
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return Taint(key=key, value=value, effect=effect)


def toleration(key: str = "", operator: str = "", value: str = "", effect: str = "") -> Toleration:
    return Toleration(key=key, operator=operator, value=value, effect=effect)


def node(
    *taints: str,
    labels: dict[str, str] | None = None,
    registered: bool = True,
    initialized: bool = True,
    **status: Any,
) -> Node:
    says = {"karpenter.sh/registered": registered, "karpenter.sh/initialized": initialized}
    return msgspec.convert(
        {
            "metadata": {
                "name": "node-1",
                "labels": {**(labels or {}), **{key: "true" for key, value in says.items() if value}},
            },
            "spec": {"taints": [msgspec.to_builtins(taint(text)) for text in taints]},
            "status": status,
        },
        Node,
    )


def claim(*taints: str, startup: tuple[str, ...] = (), **status: Any) -> NodeClaim:
    return msgspec.convert(
        {
            "metadata": {"name": "claim-1"},
            "spec": {
                "taints": [msgspec.to_builtins(taint(text)) for text in taints],
                "startupTaints": [msgspec.to_builtins(taint(text)) for text in startup],
            },
            "status": status,
        },
        NodeClaim,
    )
