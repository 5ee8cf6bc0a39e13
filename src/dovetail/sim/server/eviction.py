"""The eviction API: takes one disruption from the status of the pod's PodDisruptionBudget, if it allows any. The
disruption controller computes that status anew afterwards."""

from typing import TYPE_CHECKING, Any

from dovetail.ports import PDBS, PODS, Evict, InternalError, TooManyRequests
from dovetail.sim.server import errors
from dovetail.sim.server.deletion import check_preconditions
from dovetail.sim.server.selectors import object_selector
from dovetail.values.selector import SelectorError

if TYPE_CHECKING:
    from dovetail.sim.server.kinds import Body
    from dovetail.sim.server.registry import Registry
    from dovetail.sim.server.store import StoredObject

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_MAX_DISRUPTED = 2000


def evict(registry: "Registry", write: Evict) -> None:
    """Raises NotFound, Conflict (UID), TooManyRequests, InternalError, and Forbidden: an eviction counts as a creation,
    which a terminating namespace refuses."""
    registry.check_namespace(PODS, write.name, write.namespace)
    pod = registry.get(PODS, write.name, write.namespace)
    phase = pod.body["status"].get("phase")
    if phase not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod.body["metadata"]:
        _check_budget(registry, pod.body, write.namespace)
    _add_condition_and_delete(registry, pod, write)


def _check_budget(registry: "Registry", pod: "Body", namespace: str) -> None:
    budgets = _budgets(registry, pod, namespace)
    if len(budgets) > 1:
        raise InternalError(SEVERAL, code=500)
    if not budgets:
        return
    pdb, status = budgets[0].body, budgets[0].body.get("status") or {}
    if not _ready(pod):
        if pdb["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        if status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0:
            return
    _take_one(registry, pdb, status, pod["metadata"]["name"])


def _take_one(registry: "Registry", pdb: "Body", status: "Body", pod_name: str) -> None:
    name, allowed = pdb["metadata"]["name"], status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < pdb["metadata"].get("generation", 0):
        # The controller has not processed this spec yet.
        why = f"The disruption budget {name} is still being processed by the server."
        raise TooManyRequests(f"{REFUSED} {why}", retry_after=10)
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden(PDBS, name, why)
    if allowed == 0:
        raise TooManyRequests(f"{REFUSED} {_why_none(name, status)}")
    left: Body = {
        **status,
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": {**(status.get("disruptedPods") or {}), pod_name: registry.timestamp()},
    }
    if allowed == 1:
        old: Body = next((c for c in status.get("conditions") or () if c["type"] == "DisruptionAllowed"), {})
        condition = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": pdb["metadata"].get("generation", 0),
            "reason": "InsufficientPods",
            "message": "",
            "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == "False" else registry.timestamp(),
        }
        left = with_condition(left, condition)
    key = (pdb["metadata"]["namespace"], name)
    registry.store.put(PDBS, key, {**pdb, "status": left}, "evict")


def _why_none(name: str, status: "Body") -> str:
    """The cause that the server adds to its message."""
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    condition: Body = next((c for c in status.get("conditions") or () if c["type"] == "DisruptionAllowed"), {})
    message = condition.get("message") if condition.get("status") == "False" else ""
    if message and condition.get("reason") == "SyncFailed":
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    if message:
        return f"The disruption budget {name} does not allow evicting pods currently ({condition['reason']}): {message}"
    return f"The disruption budget {name} does not allow evicting pods currently"


def with_condition(status: "Body", condition: "Body") -> "Body":
    """The status with this condition instead of the one of its type."""
    others = [entry for entry in status.get("conditions") or () if entry["type"] != condition["type"]]
    return {**status, "conditions": [*others, condition]}


def _add_condition_and_delete(registry: "Registry", pod: "StoredObject", write: Evict) -> None:
    check_preconditions(write.deletion, pod.body["metadata"])
    status = pod.body["status"]
    old: Body = next((c for c in status.get("conditions") or () if c["type"] == "DisruptionTarget"), {})
    condition: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": registry.timestamp(),
    }
    if old.get("status") != "True" or old.get("reason") != condition["reason"]:
        body = {**pod.body, "status": with_condition(status, condition)}
        registry.store.put(PODS, (write.namespace, write.name), body, "evict")
    registry.delete(write.deletion)


def _budgets(registry: "Registry", pod: "Body", namespace: str) -> list["StoredObject"]:
    labels = pod["metadata"].get("labels") or {}
    budgets = []
    for key, stored in registry.store.collection(PDBS).sorted():
        raw = stored.body["spec"].get("selector")
        if key[0] != namespace or raw is None:
            continue
        try:
            if object_selector(raw).matches(labels):
                budgets.append(stored)
        except SelectorError:
            continue  # an invalid selector matches nothing
    return budgets


def _ready(pod: "Body") -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
