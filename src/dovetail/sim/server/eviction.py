"""May this pod be evicted? The API server's side of PodDisruptionBudgets: it reads their status, takes from it what it
allows, and leaves it to the disruption controller to say anew how much that is."""

from typing import TYPE_CHECKING, Any

from dovetail.ports import PDBS, PODS, Evict, InternalError, TooManyRequests
from dovetail.sim.server import errors
from dovetail.values.selector import SelectorError, make_selector

if TYPE_CHECKING:
    from dovetail.sim.server.registry import Registry
    from dovetail.sim.server.store import Body, StoredObject

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_MAX_DISRUPTED = 2000


def evict(registry: "Registry", write: Evict) -> None:
    """Raises NotFound, Conflict (UID), TooManyRequests, InternalError, and Forbidden, as in a namespace that goes away:
    to the server an eviction is something new in it."""
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
        # The controller has not seen this spec yet.
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
        left["conditions"] = _no_more(registry, pdb, status.get("conditions") or [])
    key = (pdb["metadata"]["namespace"], name)
    registry.store.put(PDBS, key, {**pdb, "status": left}, "evict")


def _why_none(name: str, status: "Body") -> str:
    """The cause that the server gives beside its message, and the port after it."""
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    told: Body = next((c for c in status.get("conditions") or () if c["type"] == "DisruptionAllowed"), {})
    message = told.get("message") if told.get("status") == "False" else ""
    if message and told.get("reason") == "SyncFailed":
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    if message:
        return f"The disruption budget {name} does not allow evicting pods currently ({told['reason']}): {message}"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _no_more(registry: "Registry", pdb: "Body", conditions: list["Body"]) -> list["Body"]:
    """The conditions with DisruptionAllowed false."""
    generation = pdb["metadata"].get("generation", 0)
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": generation,
        "reason": "InsufficientPods",
        "message": "",
    }
    old = next((c for c in conditions if c["type"] == "DisruptionAllowed"), None)
    same = old is not None and old.get("status") == "False"
    since = old["lastTransitionTime"] if same and old is not None else registry.timestamp()
    return [
        *(c for c in conditions if c["type"] != "DisruptionAllowed"),
        {**condition, "lastTransitionTime": since},
    ]


def _add_condition_and_delete(registry: "Registry", pod: "StoredObject", write: Evict) -> None:
    meta, status, name, uid = pod.body["metadata"], pod.body["status"], write.name, write.uid
    if uid and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). The object might "
            "have been deleted and then recreated"
        )
        raise errors.conflict(PODS, name, why)
    old = next((c for c in status.get("conditions") or () if c["type"] == "DisruptionTarget"), None)
    told: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": registry.timestamp(),
    }
    if old is None or old.get("status") != "True" or old.get("reason") != told["reason"]:
        others = [c for c in status.get("conditions") or () if c["type"] != "DisruptionTarget"]
        body = {**pod.body, "status": {**status, "conditions": [*others, told]}}
        registry.store.put(PODS, (write.namespace, name), body, "evict")
    registry.delete(write.deletion)


def _budgets(registry: "Registry", pod: "Body", namespace: str) -> list["StoredObject"]:
    labels = pod["metadata"].get("labels") or {}
    found = []
    for key, stored in registry.store.collection(PDBS).sorted():
        raw = stored.body["spec"].get("selector")
        if key[0] != namespace or raw is None:
            continue
        expressions = [(e["key"], e["operator"], e.get("values") or ()) for e in raw.get("matchExpressions") or ()]
        try:
            if make_selector(raw.get("matchLabels"), expressions).matches(labels):
                found.append(stored)
        except SelectorError:
            continue  # the server takes a selector that it cannot read for one that matches nothing
    return found


def _ready(pod: "Body") -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
