"""Who decides in a cluster, as its objects show it (R56)?

The Lease says it. Without one, what Karpenter or Dovetail have left on objects does. Plain manifests are Karpenter's.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode, plain_value
from dovetail.api.names import DovetailMode
from dovetail.model.beside import BesideMode, read_hold
from dovetail.model.decider import Decider, DecidingController, version_of

LEASES: Final = frozenset((names.LEADER_ELECTION_LEASE, names.BESIDE_LEASE))
_OF_CLUSTER: Final = frozenset(("Node", names.NODECLAIM_KIND))
# A holder renews within 15 s, and the clock of the reader may differ from that of the cluster.
_STALE: Final = timedelta(minutes=2)
_LONGEST_SECONDS: Final = 2**31
_NAME_LABELS: Final = ("app.kubernetes.io/name", "k8s-app")
_OWN: Final = "dovetail"
_THEIRS: Final = "karpenter"
_PROGRAMS: Final = (_THEIRS.encode(), _OWN.encode())
_BEFORE: Final = b'"/'
_AFTER: Final = b'":/'
NOTHING_SHOWS: Final = "nothing in these files comes from Dovetail"
_MODES: Final = {BesideMode.GUARD: DovetailMode.GUARD, BesideMode.DRIVE: DovetailMode.DRIVE}


class _Container(objects.Wire, frozen=True):
    name: str = ""
    image: str = ""
    args: tuple[str, ...] = ()


class _PodSpec(objects.Wire, frozen=True):
    containers: tuple[_Container, ...] = ()


class _ControllerPod(objects.ApiObject, frozen=True):
    """What shows that a pod is a controller."""

    spec: _PodSpec = _PodSpec()
    status: objects.PodStatus = objects.PodStatus()

    @property
    def program(self) -> str:
        """`dovetail`, `karpenter`, or empty."""
        called = {self.metadata.labels.get(label, "") for label in _NAME_LABELS}
        for container in self.spec.containers:
            called.update(container.image.partition("@")[0].partition(":")[0].split("/"))
        return next((name for name in (_OWN, _THEIRS) if name in called), "")

    @property
    def version(self) -> str | None:
        return version_of({container.name: container.image for container in self.spec.containers})

    @property
    def mode(self) -> DovetailMode:
        words = {word for container in self.spec.containers for word in container.args}
        return next((mode for mode in (DovetailMode.GUARD, DovetailMode.DRIVE) if mode in words), DovetailMode.RUN)

    @property
    def shown(self) -> str:
        return f"pod {self.metadata.namespace}/{self.metadata.name}"


class _Clues:
    """What the objects show, collected in one pass."""

    def __init__(self) -> None:
        self.leases: dict[str, objects.Lease] = {}
        """Those that have a holder; of several with one name, the one that was renewed last."""
        self.controllers: list[_ControllerPod] = []
        self.own_crd = False
        self.scenario = False
        self.mark = ""
        """The first object with something that only Dovetail as the controller writes."""
        self.held: BesideMode | None = None
        self.of_cluster = False
        """Whether there are objects as a controller leaves them."""

    def read(self, document: Document) -> None:
        if document.kind == "Pod":
            self._pod(document)
        elif document.kind in _OF_CLUSTER:
            self._member(document)
        elif document.kind == "Lease":
            lease = decode(document, objects.Lease)
            name = lease.metadata.name
            if name in LEASES and lease.spec.holder_identity:
                self.leases[name] = latest((lease, self.leases.get(name, lease)))
        elif document.kind == "CustomResourceDefinition":
            self.own_crd |= _is_own_crd(document)
        elif document.kind == names.NODEPOOL_KIND:
            pool = decode(document, objects.NodePool)
            shows_own_crd = pool.metadata.uid and pool.spec.disruption.graceful_expire_after != "Never"
            self.own_crd |= bool(shows_own_crd)
        elif document.kind == "Scenario" and document.group == names.OWN_GROUP:
            self.scenario = True

    def _pod(self, document: Document) -> None:
        raw = None if document.raw is None else bytes(document.raw)
        if raw is not None and not any(_is_named(raw, name) for name in _PROGRAMS):  # most pods, and there may be many
            return
        pod = decode(document, _ControllerPod)
        if pod.program:
            self.controllers.append(pod)

    def _member(self, document: Document) -> None:
        kind: type[objects.Node | objects.NodeClaim] = objects.Node if document.kind == "Node" else objects.NodeClaim
        member = decode(document, kind)
        held = read_hold(member.metadata.annotations.get(names.HELD, ""))
        self.held = self.held or (None if held is None else held.by)
        self.of_cluster |= bool(member.status.conditions)
        if not self.mark and any(_own_marks(member)):
            self.mark = f"{document.kind} {member.metadata.name}"


def who_decides(documents: Iterable[Document], at: datetime | None = None) -> Decider:
    """Who decides, and what shows it.

    `at`: now, for a live cluster, where a Lease that is not renewed shows nothing.
    """
    clues = _Clues()
    for document in documents:
        try:
            clues.read(document)
        except InputError:
            continue  # whoever reads the cluster reports it
    return _by_lease(clues, at) or _by_marks(clues)


def controller_runs(documents: Iterable[Document]) -> bool:
    """Whether a pod in the documents is a controller and runs."""
    clues = _Clues()
    for document in documents:
        if document.kind == "Pod":
            try:
                clues.read(document)
            except InputError:
                continue  # as above
    return any(pod.status.phase == "Running" for pod in clues.controllers)


def latest(leases: Iterable[objects.Lease]) -> objects.Lease:
    """The one that was renewed last."""
    return max(leases, key=lambda lease: (lease.spec.renew_time is not None, lease.spec.renew_time))


def is_live(lease: objects.Lease, at: datetime) -> bool:
    """Whether the Lease was renewed lately."""
    spec = lease.spec
    seconds = spec.lease_duration_seconds or 0
    lasts = timedelta(seconds=min(max(seconds, 0), _LONGEST_SECONDS))  # a file may have any number
    return spec.renew_time is not None and at - spec.renew_time < max(_STALE, lasts)


def _is_named(raw: bytes, name: bytes) -> bool:
    """Whether the name is a whole text, or a part of an image's name. A regular expression takes ten times longer."""
    at = raw.find(name)
    while at > 0:
        if raw[at - 1] in _BEFORE and raw[at + len(name)] in _AFTER:
            return True
        at = raw.find(name, at + 1)
    return False


def _by_lease(clues: _Clues, at: datetime | None) -> Decider | None:
    beside = clues.leases.get(names.BESIDE_LEASE)
    if beside is not None and (at is None or is_live(beside, at)):
        holder = _holder(beside, clues)
        holder_mode = DovetailMode.RUN if holder is None else holder.mode
        mode = _MODES[clues.held or BesideMode.GUARD] if holder_mode is DovetailMode.RUN else holder_mode
        return _dovetail(f"it holds the Lease {_shown(beside)}", mode)
    lease = clues.leases.get(names.LEADER_ELECTION_LEASE)
    if lease is None or not (at is None or is_live(lease, at)):
        return None
    holder, identity = _holder(lease, clues), lease.spec.holder_identity or ""
    program = holder.program if holder is not None else ""
    if (program or (_OWN if identity.startswith(_OWN) else _THEIRS)) == _OWN:
        return _dovetail(f"it holds the Lease {_shown(lease)}")
    version = None if holder is None else holder.version
    return _karpenter(f"it holds the Lease {_shown(lease)}", version)


def _by_marks(clues: _Clues) -> Decider:
    running = [pod for pod in clues.controllers if pod.status.phase == "Running"]
    theirs, own = ([pod for pod in running if pod.program == name] for name in (_THEIRS, _OWN))
    if clues.held is not None:
        return _dovetail("it holds Nodes", _MODES[clues.held])
    if own and not (theirs and own[0].mode is DovetailMode.RUN):
        return _dovetail(f"{own[0].shown} runs it", own[0].mode)
    if theirs:
        return _karpenter(f"{theirs[0].shown} runs it", theirs[0].version)
    if clues.mark:
        return _dovetail(f"it has written on {clues.mark}")
    if clues.own_crd:
        return _dovetail("the CRD of NodePools has its field gracefulExpireAfter")
    if clues.of_cluster:
        return _karpenter("Dovetail has written on no object")
    if clues.scenario:
        return _dovetail("it plays Scenarios")
    return _karpenter(NOTHING_SHOWS)


def _dovetail(reason: str, mode: DovetailMode = DovetailMode.RUN) -> Decider:
    return Decider(DecidingController.DOVETAIL, mode=mode, reason=reason)


def _karpenter(reason: str, version: str | None = None) -> Decider:
    return Decider(DecidingController.KARPENTER, version=version, reason=reason)


def _holder(lease: objects.Lease, clues: _Clues) -> _ControllerPod | None:
    return next((controller for controller in clues.controllers if controller.metadata.name == lease.holder_pod), None)


def _shown(lease: objects.Lease) -> str:
    return f"{lease.metadata.namespace}/{lease.metadata.name}"


def _own_marks(member: objects.Node | objects.NodeClaim) -> Iterator[bool]:
    """What only Dovetail as the controller of a cluster writes."""
    yield names.DISRUPTION_COMMAND in member.metadata.annotations
    yield any(condition.type == names.ConditionType.DISRUPTION_STATE for condition in member.status.conditions)
    if isinstance(member, objects.Node):
        yield any(taint.key == names.CANDIDATE_TAINT for taint in member.spec.taints)


def _is_own_crd(document: Document) -> bool:
    """Whether the CRD of NodePools has our field."""
    if decode(document, objects.ApiObject).metadata.name != f"{names.NODEPOOL_PLURAL}.{names.GROUP}":
        return False
    return b'"gracefulExpireAfter"' in msgspec.json.encode(plain_value(document))
