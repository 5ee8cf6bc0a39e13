"""Does the controller that decides run? Its Lease says it: whoever runs renews it every few seconds.

Without a controller nothing happens of what an answer expects: no drain ends, no replacement is given up. Where that is
not certain, nothing is said.
"""

from collections.abc import Container, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.names import DovetailMode
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.values.timestamp import format_time
from dovetail.views.deciding import LEASES, controller_runs, is_live, latest

NO_CONTROLLER: Final = "NoController"
_NOTHING: Final = "nothing is decided until one runs"
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_BESIDE: Final = {
    DovetailMode.GUARD: "nodes are neither held nor released until one runs",
    DovetailMode.DRIVE: "no command of its own is started until one runs",
}


def is_held(lease: objects.Lease, at: datetime) -> bool:
    """Whether a controller holds it, by all that can be known: one that was never renewed cannot be judged."""
    return bool(lease.spec.holder_identity) and (lease.spec.renew_time is None or is_live(lease, at))


def missing_controllers(
    documents: Iterable[Document], decider: Decider, now: datetime | None, judged: Container[str] = LEASES
) -> Iterator[Finding]:
    """A problem for each controller that decides in the cluster and does not run.

    `now`: of a live cluster, by the clock of whoever renews Leases. The documents then have all Leases of controllers
    that there are, the pods of controllers, and NodePools. None: they are a dump, which may have some of them.
    `judged`: names of Leases; the documents may lack others.
    """
    documents = list(documents)
    try:
        leases = [decode(document, objects.Lease) for document in documents if document.kind == "Lease"]
    except InputError:
        return
    # Kubelets renew theirs all the time, so the last renewal in a dump is the instant at which Leases were read.
    renewals = [lease.spec.renew_time for lease in leases if lease.spec.renew_time is not None]
    at, live = now or max(renewals, default=_NEVER), now is not None
    needed = {names.LEADER_ELECTION_LEASE: ("controller", _NOTHING)}
    if decider.mode is not None and decider.mode in _BESIDE:
        needed[names.BESIDE_LEASE] = (f"dovetail {decider.mode}", _BESIDE[decider.mode])
    for name, (program, without) in needed.items():
        named = [lease for lease in leases if lease.metadata.name == name]
        if name not in judged or any(is_held(lease, at) for lease in named):
            continue
        if named:
            yield _not_held(latest(named), program, without, live=live)
        elif live and _has_pools(documents) and not controller_runs(documents):
            yield _no_lease(name, program, without)


def _has_pools(documents: Iterable[Document]) -> bool:
    return any(document.kind == names.NODEPOOL_KIND for document in documents)


def _not_held(lease: objects.Lease, program: str, without: str, *, live: bool) -> Finding:
    meta, spec = lease.metadata, lease.spec
    about = Ref("Lease", meta.namespace or "default", meta.name)
    has, when = ("has", "") if live else ("had", " when the dump was taken")
    verb = "renewed" if spec.holder_identity else "held"
    since = "" if spec.renew_time is None else f" since {format_time(spec.renew_time.replace(microsecond=0))}"
    return Finding(
        severity=Severity.ERROR if live else Severity.WARNING,
        rule=NO_CONTROLLER,
        object=Ref("Lease"),
        field="spec.renewTime" if spec.holder_identity else "spec.holderIdentity",
        message=f"no {program} {has} {verb} the Lease {about.path}{since}{when}; {without}",
        remedy=f"see why it does not run: kubectl -n {about.namespace} get deployments,pods",
    )


def _no_lease(name: str, program: str, without: str) -> Finding:
    """Karpenter can run outside of the cluster, and each program under another name."""
    return Finding(
        severity=Severity.WARNING,
        rule=NO_CONTROLLER,
        object=Ref("Lease"),
        field="metadata.name",
        message=f"no {program} has made a Lease {name}; unless it runs elsewhere or under another name, {without}",
        remedy="see what runs: kubectl get pods -A -l 'app.kubernetes.io/name in (dovetail, karpenter)'",
    )
