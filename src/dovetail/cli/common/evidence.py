"""What shows who decides in a live cluster, and whether it runs: Leases, and the pods of their holders."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.cli.common.live import all_pages
from dovetail.cli.common.options import ClusterSource
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.ports import LEASES, NODEPOOLS, PODS, ApiError, Clock, KubeApi, Resource
from dovetail.views.deciding import is_live
from dovetail.views.leading import missing_controllers

_CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", dict[str, Any]
)
_CONTROLLERS: Final = "app.kubernetes.io/name in (dovetail, karpenter)"
LOOK_AGAIN_SECONDS: Final = 4.0  # holders renew every two seconds


class Evidence(NamedTuple):
    """What this user may read of it."""

    documents: list[Document]
    at: datetime
    """Now, by the clock of whoever renews the Leases."""
    complete: bool
    """Whether nothing is missing that would show a controller."""

    def missing(self, decider: Decider) -> list[Finding]:
        """A problem for each controller that does not run, if that is certain."""
        return list(missing_controllers(self.documents, decider, self.at)) if self.complete else []


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
    """The same with a connection. Without Leases: the CRD of NodePools, these, and the pods of controllers."""
    leases, at = await _leases(api), clock.now()
    if leases and any(lease.spec.holder_identity and not is_live(lease, at) for lease in _decoded(leases)):
        # Its holder has stopped, or has another clock. Then it renews the Lease meanwhile, which shows the time there.
        before = {lease.metadata.uid: lease.spec.renew_time for lease in _decoded(leases)}
        await clock.sleep(LOOK_AGAIN_SECONDS)
        leases, at = await _leases(api), clock.now()
        now = [lease for lease in _decoded(leases or ()) if lease.spec.renew_time != before.get(lease.metadata.uid)]
        at = max((lease.spec.renew_time for lease in now if lease.spec.renew_time), default=at)
    documents, complete = list(leases or ()), leases is not None
    for lease in _decoded(documents):
        if pod := (lease.spec.holder_identity or "").rpartition("_")[0]:
            documents += await _listed(api, PODS, lease.metadata.namespace, fields=f"metadata.name={pod}") or ()
    if not documents:
        documents += await _listed(api, _CRDS, fields=f"metadata.name={names.NODEPOOL_PLURAL}.{names.GROUP}") or ()
        pools, pods = await _listed(api, NODEPOOLS), await _listed(api, PODS, labels=_CONTROLLERS)
        documents += [*(pools or ()), *(pods or ())]
        complete = complete and pools is not None and pods is not None
    return Evidence(documents, at, complete)


async def _leases(api: KubeApi) -> list[Document] | None:
    """Those of controllers; None if this user may not read them."""
    documents: list[Document] = []
    for name in (names.LEADER_ELECTION_LEASE, names.BESIDE_LEASE):
        leases = await _listed(api, LEASES, fields=f"metadata.name={name}")
        if leases is None:
            return None
        documents += leases
    return documents


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
