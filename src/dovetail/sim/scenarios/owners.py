"""Adds stand-ins for the owners of pods that a dump lacks.

A dump often holds pods without their ReplicaSets and DaemonSets. Nothing would recreate such a pod after an eviction,
and the simulated garbage collector would delete the others. A stand-in has the owner's name and UID, and the template
of one of its pods.
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail.model.finding import Finding
from dovetail.sim.actors import wire
from dovetail.sim.actors.deployment import HASH_LABEL, REVISION, template_hash
from dovetail.sim.actors.wire import DAEMONSETS, JOBS, REPLICASETS, RUN_FOR, STATEFULSETS, Kind
from dovetail.sim.actors.workload import REVISION_LABEL
from dovetail.sim.scenarios.reading import ScenarioObject, assumption
from dovetail.sim.server.kinds import Body
from dovetail.values.timestamp import format_time

_STAND_INS: Final[Mapping[str, Kind]] = {kind.kind: kind for kind in (REPLICASETS, STATEFULSETS, DAEMONSETS, JOBS)}
_PER_POD_LABELS: Final = frozenset(
    {
        *("controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name"),
        *("apps.kubernetes.io/pod-index", "controller-uid", "job-name"),
        *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
    }
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_FOR_EVER: Final = "87600h"


def with_owners(objects: Sequence[ScenarioObject], problems: list[Finding]) -> list[ScenarioObject]:
    """Add stand-ins for missing owners, and drop references to owners that cannot be simulated."""
    present = {uid for placed in objects if (uid := placed.uid)}
    orphans: dict[str, list[ScenarioObject]] = {}
    for placed in objects:
        uid = placed.controller_uid if placed.resource.kind == "Pod" else ""
        if uid and uid not in present:
            orphans.setdefault(uid, []).append(placed)
    made = []
    for pods in orphans.values():
        reference = wire.controller_of(pods[0].body) or {}
        kind = _STAND_INS.get(str(reference["kind"]))
        if kind is not None:
            made.append(_stand_in(kind, reference, pods))
    uids = present | {wire.uid_of(placed.body) for placed in made}
    if made:
        counts = sorted(Counter(placed.resource.kind for placed in made).items())
        listed = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts)
        problems.append(
            assumption(
                "OwnersAssumed",
                "",
                f"{listed} are not in the input: they are taken to keep as many pods like those that are there",
                "dump them too: kubectl get deployments,replicasets,statefulsets,daemonsets,jobs -A -o yaml",
            )
        )
    lost = sum(len(pods) for uid, pods in orphans.items() if uid not in uids)
    if lost:
        message = (
            f"{lost} pods belong to owners that are not in the input and not simulated: once gone, "
            "they do not come back"
        )
        problems.append(assumption("UnknownOwner", "", message, "nothing to do"))
    return [*made, *(_without_strays(placed, uids) for placed in objects)]


def _without_strays(placed: ScenarioObject, uids: set[str]) -> ScenarioObject:
    if uids.issuperset(placed.owner_uids):
        return placed
    references = placed.body["metadata"]["ownerReferences"]
    return placed.having_metadata(ownerReferences=[owner for owner in references if owner.get("uid") in uids])


def _stand_in(kind: Kind, reference: Mapping[str, Any], pods: Sequence[ScenarioObject]) -> ScenarioObject:
    first = pods[0].body
    labels = {key: value for key, value in wire.labels_of(first).items() if key not in _PER_POD_LABELS}
    spec: Body = {"template": _template(kind, first, labels)}
    if kind is not JOBS:
        spec["selector"] = {"matchLabels": labels}
    number = sum(pod.active for pod in pods)
    if kind in (REPLICASETS, STATEFULSETS):
        spec["replicas"] = number
    if kind is STATEFULSETS:
        ends = [pod.key.rpartition("/")[2].rpartition("-")[2] for pod in pods]
        ordinals = [int(end) for end in ends if end.isdecimal()]
        first_ordinal = min(ordinals, default=0)
        spec |= {"serviceName": "", "ordinals": {"start": first_ordinal}}
        spec["replicas"] = max(ordinals, default=number - 1) - first_ordinal + 1
        spec["podManagementPolicy"] = "Parallel"  # under any policy only lost pods are created again
    if kind is JOBS:
        spec |= {"parallelism": max(1, number), "completions": None, "backoffLimit": 1_000_000}
    meta: Body = {"name": reference["name"], "namespace": pods[0].namespace, "uid": reference["uid"]}
    created = [at for pod in pods if (at := pod.created_at) is not None]
    if len(created) == len(pods):
        meta["creationTimestamp"] = format_time(min(created))
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    return ScenarioObject(kind, body, pods[0].document)


def _template(kind: Kind, pod: Body, labels: Mapping[str, str]) -> Body:
    spec = copy.deepcopy(pod.get("spec") or {})
    for field in ("nodeName", "hostname", "subdomain", "priority", "preemptionPolicy", "ephemeralContainers"):
        spec.pop(field, None)
    if kind is DAEMONSETS:
        _drop_own_node(spec)
    meta: Body = {"labels": dict(labels)}
    if wire.annotations_of(pod):
        meta["annotations"] = dict(wire.annotations_of(pod))
    return {"metadata": meta, "spec": spec}


def _drop_own_node(spec: Body) -> None:
    """Remove the node name that the DaemonSet controller adds to the affinity of a pod."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    if required is None:
        return
    terms = [
        {key: value for key, value in term.items() if key != "matchFields"}
        for term in required.get("nodeSelectorTerms") or ()
    ]
    others = {key: value for key, value in affinity.items() if not key.startswith("required")}
    if any(terms):
        others[_REQUIRED] = {"nodeSelectorTerms": [term for term in terms if term]}
    spec["affinity"] = {**spec["affinity"], "nodeAffinity": others}


# -- revisions ---------------------------------------------------------------------------------------------------------


def with_revisions(objects: Sequence[ScenarioObject]) -> list[ScenarioObject]:
    """Label pods and ReplicaSets with the hashes of the simulated controllers, which otherwise start rollouts."""
    by_uid = {wire.uid_of(placed.body): placed for placed in objects if placed.body["metadata"].get("uid")}
    current = _current_sets(objects, by_uid)
    return [_with_revision(placed, by_uid.get(wire.controller_uid(placed.body)), current) for placed in objects]


def _with_revision(placed: ScenarioObject, owner: ScenarioObject | None, current: set[int]) -> ScenarioObject:
    if owner is not None and placed.resource.kind == "ReplicaSet" and id(placed) in current:
        return _labelled(placed, HASH_LABEL, template_hash(owner.body))
    if owner is None or placed.resource.kind != "Pod" or owner.resource.kind not in ("StatefulSet", "DaemonSet"):
        return placed
    newest = wire.status_of(owner.body).get("updateRevision")
    label = wire.labels_of(placed.body).get(REVISION_LABEL)
    if newest and label and newest != label:
        return placed  # the pod has an older revision in the dump, too
    revision = wire.short_hash(owner.body["spec"].get("template"))
    if owner.resource.kind == "StatefulSet":
        revision = f"{owner.body['metadata']['name']}-{revision}"
    return _labelled(placed, REVISION_LABEL, revision)


def _current_sets(objects: Sequence[ScenarioObject], by_uid: Mapping[str, ScenarioObject]) -> set[int]:
    """The current ReplicaSet of each Deployment: the one with its template, else the one of the latest revision."""
    sets: dict[str, list[ScenarioObject]] = {}
    for placed in objects:
        uid = wire.controller_uid(placed.body)
        if placed.resource.kind == "ReplicaSet" and uid in by_uid:
            sets.setdefault(uid, []).append(placed)
    current = set()
    for uid, members in sets.items():
        template = _bare(by_uid[uid].body["spec"].get("template"))
        matching = [member for member in members if _bare(member.body["spec"].get("template")) == template]
        current.add(id(max(matching or members, key=_revision_number)))
    return current


def _bare(template: Any) -> Any:
    if not isinstance(template, dict):
        return template
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if value is not None}
    meta["labels"] = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": meta}


def _revision_number(placed: ScenarioObject) -> int:
    text = wire.annotations_of(placed.body).get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


def _labelled(placed: ScenarioObject, key: str, value: str) -> ScenarioObject:
    return placed.having_metadata(labels={**wire.labels_of(placed.body), key: value})


# -- how long Jobs run -------------------------------------------------------------------------------------------------


def with_run_times(objects: Sequence[ScenarioObject], problems: list[Finding]) -> list[ScenarioObject]:
    """Let running pods of Jobs run to the end of the simulation: a dump does not say how long they take."""
    running = [placed for placed in objects if _runs_on(placed)]
    if not running:
        return list(objects)
    message = f"how long the {len(running)} running pods of Jobs take is not known: they run to the end"
    problems.append(assumption("JobsGoOn", "", message, f"annotate the pods: {RUN_FOR}: 4h"))
    uids = {wire.uid_of(pod.body) for pod in running}
    jobs = {wire.controller_uid(pod.body) for pod in running}
    return [_with_run_time(placed, uids, jobs) for placed in objects]


def _runs_on(placed: ScenarioObject) -> bool:
    if placed.resource.kind != "Pod" or wire.status_of(placed.body).get("phase") != "Running":
        return False
    owner = wire.controller_of(placed.body)
    return owner is not None and owner["kind"] == "Job" and RUN_FOR not in wire.annotations_of(placed.body)


def _with_run_time(placed: ScenarioObject, pods: set[str], jobs: set[str]) -> ScenarioObject:
    uid = placed.body["metadata"].get("uid")
    if placed.resource.kind == "Pod" and uid in pods:
        return placed.having_metadata(annotations={**wire.annotations_of(placed.body), RUN_FOR: _FOR_EVER})
    if placed.resource.kind != "Job" or uid not in jobs:
        return placed
    spec = placed.body["spec"]
    meta = spec["template"].get("metadata") or {}
    annotated = {**meta, "annotations": {RUN_FOR: _FOR_EVER, **(meta.get("annotations") or {})}}
    return placed.having(spec={**spec, "template": {**spec["template"], "metadata": annotated}})
