"""Who makes the pods of a dump anew once they are evicted? Where the dump does not hold their owners, stand-ins do.

A dump often holds pods without their ReplicaSets and DaemonSets. Without these an evicted pod would never come back,
and the simulated garbage collector would take the others away. A stand-in has the owner's name and UID, and its
template is what a pod of its shows.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dovetail.model.finding import Finding
from dovetail.sim.actors.deployment import HASH_LABEL, REVISION, template_hash
from dovetail.sim.actors.stateful_set import REVISION_LABEL
from dovetail.sim.actors.wire import (
    DAEMONSETS,
    JOBS,
    REPLICASETS,
    RUN_FOR,
    STATEFULSETS,
    Kind,
    active,
    annotations_of,
    controller_of,
    labels_of,
    short_hash,
    status_of,
    uid_of,
)
from dovetail.sim.scenarios.reading import Body, ScenarioObject, assumption

_STAND_INS: Final[Mapping[str, Kind]] = {kind.kind: kind for kind in (REPLICASETS, STATEFULSETS, DAEMONSETS, JOBS)}
_PER_POD_LABELS: Final = frozenset(
    {
        *("controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name"),
        *("apps.kubernetes.io/pod-index", "controller-uid", "job-name"),
        *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
    }
)
_FOR_EVER: Final = "87600h"


def with_owners(objects: Sequence[ScenarioObject]) -> tuple[list[ScenarioObject], list[Finding]]:
    """The objects with stand-ins for owners that are missing; references that lead nowhere are dropped."""
    there = {each.body["metadata"]["uid"] for each in objects if each.body["metadata"].get("uid")}
    orphans: dict[str, list[ScenarioObject]] = {}
    for each in objects:
        reference = controller_of(each.body)
        if each.resource.kind == "Pod" and reference is not None and reference["uid"] not in there:
            orphans.setdefault(str(reference["uid"]), []).append(each)
    made, problems = [], []
    for pods in orphans.values():
        reference = controller_of(pods[0].body)
        assert reference is not None
        kind = _STAND_INS.get(str(reference["kind"]))
        if kind is not None:
            made.append(_stand_in(kind, reference, pods))
    known = there | {uid_of(each.body) for each in made}
    kept = [_without_strays(each, known) for each in objects]
    if made:
        problems.append(_told_stand_ins(made))
    lost = sum(len(pods) for uid, pods in orphans.items() if uid not in known)
    if lost:
        problems.append(
            assumption(
                "UnknownOwner",
                "",
                f"{lost} pods belong to owners that are not in the input and not simulated: once gone, "
                "they do not come back",
                "nothing to do",
            )
        )
    return [*made, *kept], problems


def _told_stand_ins(made: Iterable[ScenarioObject]) -> Finding:
    counts: dict[str, int] = {}
    for each in made:
        counts[each.resource.kind] = counts.get(each.resource.kind, 0) + 1
    told = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items()))
    return assumption(
        "OwnersAssumed",
        "",
        f"{told} are not in the input: they are taken to keep as many pods like those that are there",
        "dump them too: kubectl get deployments,replicasets,statefulsets,daemonsets,jobs -A -o yaml",
    )


def _without_strays(placed: ScenarioObject, known: set[str]) -> ScenarioObject:
    meta = placed.body["metadata"]
    references = meta.get("ownerReferences")
    if not references or all(reference.get("uid") in known for reference in references):
        return placed
    left = [reference for reference in references if reference.get("uid") in known]
    return ScenarioObject(
        placed.resource, {**placed.body, "metadata": {**meta, "ownerReferences": left}}, placed.document
    )


def _stand_in(kind: Kind, reference: Mapping[str, Any], pods: Sequence[ScenarioObject]) -> ScenarioObject:
    first = pods[0].body
    labels = {key: value for key, value in labels_of(first).items() if key not in _PER_POD_LABELS}
    spec: Body = {"template": _template(kind, first, labels)}
    if kind is not JOBS:
        spec["selector"] = {"matchLabels": labels}
    number = sum(active(each.body) for each in pods)
    if kind in (REPLICASETS, STATEFULSETS):
        spec["replicas"] = number
    if kind is STATEFULSETS:
        ordinals = [
            int(tail) for each in pods if (tail := each.body["metadata"]["name"].rpartition("-")[2]).isdecimal()
        ]
        first_ordinal = min(ordinals, default=0)
        spec |= {"serviceName": "", "ordinals": {"start": first_ordinal}}
        spec["replicas"] = max(ordinals, default=number - 1) - first_ordinal + 1
        spec["podManagementPolicy"] = "Parallel"  # whichever it was, only lost pods are made again
    if kind is JOBS:
        spec |= {"parallelism": max(1, number), "completions": None, "backoffLimit": 1_000_000}
    made = min(str(each.body["metadata"].get("creationTimestamp") or "") for each in pods)
    meta: Body = {"name": reference["name"], "namespace": pods[0].namespace, "uid": reference["uid"]}
    if made:
        meta["creationTimestamp"] = made
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    return ScenarioObject(kind, body, pods[0].document)


def _template(kind: Kind, pod: Body, labels: Mapping[str, str]) -> Body:
    spec = copy.deepcopy(pod.get("spec") or {})
    for field in ("nodeName", "hostname", "subdomain", "priority", "preemptionPolicy", "ephemeralContainers"):
        spec.pop(field, None)
    if kind is DAEMONSETS:
        _drop_own_node(spec)
    meta: Body = {"labels": dict(labels)}
    if annotations_of(pod):
        meta["annotations"] = dict(annotations_of(pod))
    return {"metadata": meta, "spec": spec}


def _drop_own_node(spec: Body) -> None:
    """A DaemonSet's pod is tied to its node, which its template is not."""
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = [
        {key: value for key, value in term.items() if key != "matchFields"}
        for term in (required or {}).get("nodeSelectorTerms") or ()
    ]
    if required is None:
        return
    node_affinity = {key: value for key, value in affinity["nodeAffinity"].items() if not key.startswith("required")}
    if any(terms):
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [t for t in terms if t]}
    spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}


# -- revisions ---------------------------------------------------------------------------------------------------------


def with_revisions(objects: Sequence[ScenarioObject]) -> list[ScenarioObject]:
    """Pods and ReplicaSets with the hashes that the simulated controllers give: else they would roll all over."""
    by_uid = {uid_of(each.body): each for each in objects if each.body["metadata"].get("uid")}
    current = _current_sets([each for each in objects if each.resource.kind == "ReplicaSet"], by_uid)
    found = []
    for each in objects:
        reference = controller_of(each.body)
        owner = None if reference is None else by_uid.get(str(reference["uid"]))
        if owner is None:
            found.append(each)
        elif each.resource.kind == "ReplicaSet" and id(each) in current:
            found.append(_labelled(each, HASH_LABEL, template_hash(owner.body)))
        elif each.resource.kind == "Pod" and owner.resource.kind in ("StatefulSet", "DaemonSet"):
            found.append(_with_revision(each, owner))
        else:
            found.append(each)
    return found


def _with_revision(pod: ScenarioObject, owner: ScenarioObject) -> ScenarioObject:
    told, has = status_of(owner.body).get("updateRevision"), labels_of(pod.body).get(REVISION_LABEL)
    if told and has and told != has:
        return pod  # of an older revision in the dump as well
    revision = short_hash(owner.body["spec"].get("template"))
    if owner.resource.kind == "StatefulSet":
        revision = f"{owner.body['metadata']['name']}-{revision}"
    return _labelled(pod, REVISION_LABEL, revision)


def _current_sets(sets: Sequence[ScenarioObject], by_uid: Mapping[str, ScenarioObject]) -> set[int]:
    """Of each Deployment the ReplicaSet of its template; if none looks like it, the one of the latest revision."""
    of: dict[str, list[ScenarioObject]] = {}
    for each in sets:
        reference = controller_of(each.body)
        if reference is not None and str(reference["uid"]) in by_uid:
            of.setdefault(str(reference["uid"]), []).append(each)
    found = set()
    for uid, members in of.items():
        wanted = by_uid[uid].body["spec"].get("template")
        alike = [each for each in members if _bare(each.body["spec"].get("template")) == _bare(wanted)]
        found.add(id(max(alike or members, key=lambda each: _revision_number(each.body))))
    return found


def _bare(template: Any) -> Any:
    if not isinstance(template, dict):
        return template
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if value is not None}
    meta["labels"] = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": meta}


def _revision_number(body: Body) -> int:
    text = annotations_of(body).get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


def _labelled(placed: ScenarioObject, key: str, value: str) -> ScenarioObject:
    meta = placed.body["metadata"]
    labels = {**(meta.get("labels") or {}), key: value}
    return ScenarioObject(placed.resource, {**placed.body, "metadata": {**meta, "labels": labels}}, placed.document)


# -- how long Jobs run -------------------------------------------------------------------------------------------------


def with_run_times(objects: Sequence[ScenarioObject]) -> tuple[list[ScenarioObject], list[Finding]]:
    """Pods of Jobs that run in the dump go on: how long they take nobody has said."""
    jobs = {
        uid_of(each.body)
        for each in objects
        if each.resource.kind == "Pod"
        and status_of(each.body).get("phase") == "Running"
        and (reference := controller_of(each.body)) is not None
        and reference["kind"] == "Job"
        and RUN_FOR not in annotations_of(each.body)
    }
    if not jobs:
        return list(objects), []
    owners = {str((controller_of(each.body) or {}).get("uid")) for each in objects if _is(each, jobs)}
    found = []
    for each in objects:
        if _is(each, jobs):
            found.append(_annotated(each))
        elif each.resource.kind == "Job" and each.body["metadata"].get("uid") in owners:
            spec = each.body["spec"]
            template = dict(spec["template"])
            meta = dict(template.get("metadata") or {})
            meta["annotations"] = {RUN_FOR: _FOR_EVER, **(meta.get("annotations") or {})}
            body = {**each.body, "spec": {**spec, "template": {**template, "metadata": meta}}}
            found.append(ScenarioObject(each.resource, body, each.document))
        else:
            found.append(each)
    told = assumption(
        "JobsGoOn",
        "",
        f"how long the {len(jobs)} running pods of Jobs take is not known: they run to the end",
        f"annotate the pods: {RUN_FOR}: 4h",
    )
    return found, [told]


def _is(placed: ScenarioObject, uids: set[str]) -> bool:
    return placed.resource.kind == "Pod" and placed.body["metadata"].get("uid") in uids


def _annotated(placed: ScenarioObject) -> ScenarioObject:
    meta = placed.body["metadata"]
    annotations = {**(meta.get("annotations") or {}), RUN_FOR: _FOR_EVER}
    return ScenarioObject(
        placed.resource, {**placed.body, "metadata": {**meta, "annotations": annotations}}, placed.document
    )
