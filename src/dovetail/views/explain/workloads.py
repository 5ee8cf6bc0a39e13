"""Finds the pods of Deployments and other workloads by their owner references."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from dovetail.api.documents import Document, InputError, decode
from dovetail.api.objects import ApiObject, Workload
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.model.refs import Ref
from dovetail.views.explain.data import View

WORKLOAD_KINDS: Final = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job")
_SCALED: Final = frozenset(("Deployment", "StatefulSet", "ReplicaSet"))
_HASH: Final = "pod-template-hash"

_ObjectKey = tuple[str, str, str]  # kind, namespace, name


def workload_of(pod: PodRecord) -> Ref:
    """The workload of the pod as far as its name and labels tell it, else the pod."""
    labels, name = pod.labels, pod.name
    if (hash_ := labels.get(_HASH)) and (stem := name.rpartition("-")[0]).endswith(f"-{hash_}"):
        return Ref("Deployment", pod.namespace, stem.removesuffix(f"-{hash_}"))
    if pod.owner & Owner.DAEMONSET:
        return Ref("DaemonSet", pod.namespace, name.rpartition("-")[0])
    if pod.owner & Owner.STATEFULSET:
        return Ref("StatefulSet", pod.namespace, name.rpartition("-")[0])
    if job := labels.get("batch.kubernetes.io/job-name") or labels.get("job-name"):
        return Ref("Job", pod.namespace, job)
    return pod.object


class WorkloadView(View, frozen=True):
    """A workload and the names of its pods.

    `known`: the workload itself is in the input; else only its pods are. `replicas`: null if it has no such number, or
    it is not known.
    """

    kind: str
    namespace: str
    name: str
    known: bool
    replicas: int | None
    pods: tuple[str, ...]


def workloads_in(documents: Iterable[Document]) -> Iterator[WorkloadView]:
    """The workloads in the input, and those that pods in the input name as their owners."""
    workloads: dict[_ObjectKey, Workload] = {}
    pods: list[ApiObject] = []
    for document in documents:
        with suppress(InputError):  # reading the cluster reports it
            if document.kind == "Pod":
                pods.append(decode(document, ApiObject))
            elif document.kind in WORKLOAD_KINDS:
                workload = decode(document, Workload)
                workloads[document.kind, _namespace(workload), workload.metadata.name] = workload
    owned: dict[_ObjectKey, list[str]] = defaultdict(list)
    for pod in pods:
        for key in _owners(pod, workloads):
            owned[key].append(pod.metadata.name)
    for key in sorted(workloads.keys() | owned.keys()):
        replicas = None
        if key in workloads and key[0] in _SCALED:
            given = workloads[key].spec.replicas
            replicas = 1 if given is None else given  # the default of the API
        yield WorkloadView(*key, key in workloads, replicas, tuple(sorted(owned[key])))


def _owners(pod: ApiObject, workloads: dict[_ObjectKey, Workload]) -> Iterator[_ObjectKey]:
    """The controller of the pod, and the Deployment of a ReplicaSet."""
    namespace = _namespace(pod)
    for kind, name in _controllers(pod):
        yield kind, namespace, name
        replica_set = workloads.get((kind, namespace, name)) if kind == "ReplicaSet" else None
        if replica_set is not None:
            yield from ((above, namespace, named) for above, named in _controllers(replica_set))
        elif kind == "ReplicaSet" and (hash_ := pod.metadata.labels.get(_HASH)) and name.endswith(f"-{hash_}"):
            # A Deployment names its ReplicaSets so, and most dumps have no ReplicaSets.
            yield "Deployment", namespace, name.removesuffix(f"-{hash_}")


def _controllers(object_: ApiObject) -> Iterator[tuple[str, str]]:
    for reference in object_.metadata.owner_references:
        if reference.controller and reference.kind in WORKLOAD_KINDS:
            yield reference.kind, reference.name


def _namespace(object_: ApiObject) -> str:
    return object_.metadata.namespace or "default"
