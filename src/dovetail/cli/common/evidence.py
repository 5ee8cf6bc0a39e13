"""What shows who decides in a live cluster, and whether it runs: Leases, and the pods of their holders."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.cli.common.live import all_pages
from dovetail.cli.common.options import ClusterSource
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.ports import LEASES, NODEPOOLS, PODS, ApiError, Clock, KubeApi, Resource
from dovetail.views.leading import is_held, missing_controllers

_CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", dict[str, Any]
)
_CONTROLLERS: Final = "app.kubernetes.io/name in (dovetail, karpenter)"
CLOCKS_DIFFER: Final = timedelta(hours=1)  # at most
LOOK_AGAIN_SECONDS: Final = 4.0  # holders renew every two seconds


class Evidence(NamedTuple):
    """What this user may read of it."""

    documents: list[Document]
    at: datetime
    """Now, by the clock of whoever renews the Leases."""
    judged: frozenset[str]
    """Names of Leases about which nothing is missing."""

    def missing(self, decider: Decider) -> list[Finding]:
        """A problem for each controller that does not run, if that is certain."""
        return list(missing_controllers(self.documents, decider, self.at, self.judged))


def live_evidence(source: ClusterSource) -> Evidence | None:
    """None if the cluster cannot be reached: reading the objects has told it."""
    # Imported here: the client takes a second to import, and files do not need it.
    from dovetail.kube import KubeConfigError, connect  # noqa: PLC0415
    from dovetail.runtime.clock import SystemClock  # noqa: PLC0415

    async def read() -> Evidence:
        async with connect(kubeconfig=source.kubeconfig, context=source.context) as api:
            return await evidence(api, SystemClock())

    try:
        return asyncio.run(read())
    except (KubeConfigError, ApiError):
        return None


async def evidence(api: KubeApi, clock: Clock) -> Evidence:
    """The same with a connection. If no Lease is held: the CRD of NodePools, these, and the pods of controllers."""
    listed, at = await _leases(api), clock.now()
    leases = [lease for documents in listed.values() for lease in _decoded(documents)]
    if any(_is_doubtful(lease, at) for lease in leases):
        # Its holder has stopped, or has another clock. Then it renews the Lease meanwhile, which shows the time there.
        before = {lease.metadata.uid: lease.spec.renew_time for lease in leases}
        await clock.sleep(LOOK_AGAIN_SECONDS)
        listed, at = await _leases(api), clock.now()
        leases = [lease for documents in listed.values() for lease in _decoded(documents)]
        news = [lease.spec.renew_time for lease in leases if lease.spec.renew_time != before.get(lease.metadata.uid)]
        at = max(filter(None, news), default=at)
    documents, judged = [lease for named in listed.values() for lease in named], frozenset(listed)
    for lease in leases:
        if pod := lease.holder_pod:
            documents += await _listed(api, PODS, lease.metadata.namespace, fields=f"metadata.name={pod}") or ()
    if not any(is_held(lease, at) for lease in leases):
        documents += await _listed(api, _CRDS, fields=f"metadata.name={names.NODEPOOL_PLURAL}.{names.GROUP}") or ()
        pools, pods = await _listed(api, NODEPOOLS), await _listed(api, PODS, labels=_CONTROLLERS)
        documents += [*(pools or ()), *(pods or ())]
        judged = frozenset() if pools is None or pods is None else judged
    return Evidence(documents, at, judged)


def _is_doubtful(lease: objects.Lease, at: datetime) -> bool:
    """Whether it only seems that nobody renews it: the clock of the holder may be another, but not by hours."""
    renewed_at = lease.spec.renew_time
    held = lease.spec.holder_identity and not is_held(lease, at)
    return bool(held) and renewed_at is not None and at - renewed_at < CLOCKS_DIFFER


async def _leases(api: KubeApi) -> dict[str, list[Document]]:
    """Those of controllers that this user may read, by name."""
    leases_by_name = {}
    for name in (names.LEADER_ELECTION_LEASE, names.BESIDE_LEASE):
        leases = await _listed(api, LEASES, fields=f"metadata.name={name}")
        if leases is not None:
            leases_by_name[name] = leases
    return leases_by_name


async def _listed(
    api: KubeApi, resource: Resource[Any], namespace: str | None = None, *, labels: str = "", fields: str = ""
) -> list[Document] | None:
    read = resource.read_as(dict[str, Any])
    try:
        listed = await all_pages(api, read, namespace, labels=labels, fields=fields)
    except ApiError:
        return None
    return [Document("", 1, index, None, read.api_version, read.kind, value=raw) for index, raw in enumerate(listed)]


def _decoded(documents: Sequence[Document]) -> Iterator[objects.Lease]:
    for document in documents:
        if document.kind == "Lease":
            with suppress(InputError):
                yield decode(document, objects.Lease)
