"""The port CloudProvider for kwok (07 §4, §5).

A kwok machine is only its Node. A launch only chooses; the controller `kwok.nodes` then creates the Node from what the
launch has recorded on the claim, so that a crash in between neither loses nor duplicates it.
"""

import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from dovetail.api import names, objects
from dovetail.model.instance_types import InstanceType, TypeCatalogue
from dovetail.planning.node.health import RepairPolicy
from dovetail.ports import (
    KWOK_NODECLASSES,
    NODES,
    ApiError,
    CloudError,
    CloudProvider,
    Conflict,
    Delete,
    Instance,
    InstanceGone,
    InsufficientCapacity,
    Interruption,
    KubeApi,
    NodeClassNotReady,
    NotFound,
    TooManyRequests,
)
from dovetail.providers.catalogue import built_in
from dovetail.providers.choosing import choose
from dovetail.providers.kwok.nodes import KWOK, instance_of, name_in, silent_since
from dovetail.providers.notices import Notices
from dovetail.values.timestamp import TimeError, parse_time

log = logging.getLogger(__name__)

REPAIR_POLICIES: Final = (
    RepairPolicy(condition="Ready", status="False", toleration_seconds=600),
    RepairPolicy(condition="Ready", status="Unknown", toleration_seconds=600),
)
# Two million Nodes; a longer list does not end.
PAGES_AT_MOST: Final = 4_000


async def launchable_class(api: KubeApi, claim: objects.NodeClaim) -> objects.KWOKNodeClass:
    """The node class of the claim. Raises InsufficientCapacity if there is none, NodeClassNotReady if it
    is not ready.
    """
    name = claim.spec.node_class_ref.name
    if not name:  # the CRD refuses it, but its schema may not be in force
        raise InsufficientCapacity("spec.nodeClassRef.name is empty: no KWOKNodeClass is meant")
    with _asking(f"KWOKNodeClass {name}"):
        try:
            node_class = await api.get(KWOK_NODECLASSES, name)
        except NotFound:
            raise InsufficientCapacity(f"KWOKNodeClass {name!r} does not exist") from None
    ready = objects.condition_in(node_class.status.conditions, names.ConditionType.READY)
    if ready is not None and ready.status == "False":
        raise NodeClassNotReady(f"KWOKNodeClass {name!r} is not ready: {ready.message or ready.reason}")
    return node_class


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turns errors of the API server into errors of the port."""
    try:
        yield
    except ApiError as error:
        wait = error.retry_after if isinstance(error, TooManyRequests) else 0.0
        raise CloudError(f"{what}: {error}", retry_after=wait) from error


class KwokProvider(CloudProvider):
    """Machines for claims with a KWOKNodeClass. `api` must refuse deletes once the lease is lost."""

    name = KWOK
    node_classes = KWOK_NODECLASSES.read_as(objects.NodeClass)

    def __init__(self, api: KubeApi, *, types: Sequence[InstanceType] | None = None, seed: int = 0) -> None:
        self._api = api
        self._types = tuple(built_in() if types is None else types)
        self._by_name = {type_.name: type_ for type_ in self._types}
        self._seed = seed
        self._notices = Notices()
        self._noticed: dict[str, str] = {}  # by UID of the Node: the last value of the annotation

    async def create(self, claim: objects.NodeClaim) -> Instance:
        """Choose a machine. Nothing is written, so this can be repeated."""
        await launchable_class(self._api, claim)
        type_, offering = choose(claim, self._by_name, self._seed)
        return instance_of(claim, type_, offering)

    async def delete(self, claim: objects.NodeClaim) -> None:
        """Delete the Node. The machine is gone in any case.

        A Node with our finalizer stays until it is drained. A Node without it was never registered, and nothing runs
        there.
        """
        provider_id = claim.status.provider_id
        with _asking(f"Node of {provider_id}"):
            node = await self._node(provider_id)
            if node.metadata.deletion_timestamp is None:
                with suppress(NotFound, Conflict):  # deleted or replaced in the meantime
                    await self._api.write(Delete(NODES, node.metadata.name, uid=node.metadata.uid))
        raise InstanceGone(f"{provider_id} is gone")

    async def get(self, provider_id: str) -> Instance:
        with _asking(f"Node of {provider_id}"):
            return _instance(await self._node(provider_id))

    async def _node(self, provider_id: str) -> objects.Node:
        """The Node, deleting or not. Raises InstanceGone."""
        if not provider_id.startswith(names.KWOK_PROVIDER_ID_PREFIX) or not name_in(provider_id):
            raise InstanceGone(f"{provider_id!r} is not a machine of kwok's")
        try:
            node = await self._api.get(NODES, name_in(provider_id))
        except NotFound:
            raise InstanceGone(f"{provider_id} has no Node") from None
        if node.spec.provider_id != provider_id:
            raise InstanceGone(f"{provider_id} has no Node; the one of this name is {node.spec.provider_id!r}")
        return node

    async def list(self) -> Sequence[Instance]:
        instances: list[Instance] = []
        continue_ = ""
        with _asking("list of Nodes"):
            for _ in range(PAGES_AT_MOST):
                page = await self._api.list(NODES, continue_=continue_)
                if page.undecodable > len(page.unread):
                    raise CloudError("some Nodes can neither be read nor named, and must not be taken for gone")
                instances += [_instance(node) for node in page.items if _is_kwok(node)]
                # A Node that cannot be decoded still exists: its name identifies the machine.
                unread = [node.name for node in page.unread if node.name.startswith(f"{KWOK}-")]
                instances += [Instance(provider_id=f"{names.KWOK_PROVIDER_ID_PREFIX}{name}") for name in unread]
                if not page.continue_:
                    return instances
                continue_ = page.continue_
        raise CloudError(f"the list of Nodes did not end after {PAGES_AT_MOST} pages")

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:  # noqa: ARG002
        return TypeCatalogue(0, self._types)

    async def drift_reason(self, claim: objects.NodeClaim) -> str:  # noqa: ARG002
        """A KWOKNodeClass has nothing to drift from."""
        return ""

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return REPAIR_POLICIES

    def node_seen(self, node: objects.Node) -> None:
        """Call it for every added or changed Node. Each value of its annotation is one notice."""
        uid, value = node.metadata.uid, node.metadata.annotations.get(names.KWOK_INTERRUPTED, "false")
        if not _is_kwok(node) or value == "false":
            self._noticed.pop(uid, None)
            self._notices.drop(uid)
        elif self._noticed.get(uid) != value:
            self._noticed[uid] = value
            deadline = _deadline(node.metadata.name, value)
            notice = Interruption(
                provider_id=node.spec.provider_id, kind=str(names.Reason.INTERRUPTED), deadline=deadline
            )
            self._notices.add(uid, notice)

    def node_gone(self, node: objects.Node) -> None:
        """Call it for every deleted Node."""
        self._noticed.pop(node.metadata.uid, None)
        self._notices.drop(node.metadata.uid)

    def interruptions(self) -> AsyncGenerator[Interruption, None]:
        return self._notices.listen()

    def dealt_with(self, notice: Interruption) -> None:
        self._notices.dealt_with(notice)


def _is_kwok(node: objects.Node) -> bool:
    return node.spec.provider_id.startswith(names.KWOK_PROVIDER_ID_PREFIX)


def _instance(node: objects.Node) -> Instance:
    owner = next((ref for ref in node.metadata.owner_references if ref.kind == names.NODECLAIM_KIND), None)
    return Instance(
        provider_id=node.spec.provider_id,
        labels=node.metadata.labels,
        annotations=node.metadata.annotations,
        capacity=node.status.capacity,
        allocatable=node.status.allocatable,
        deleting=node.metadata.deletion_timestamp is not None,
        silent_since=silent_since(node),
        claim_uid=owner.uid if owner is not None else "",
        claim_name=owner.name if owner is not None else "",
    )


def _deadline(node: str, value: str) -> datetime | None:
    if value == "true":
        return None
    try:
        return parse_time(value)
    except TimeError as error:
        log.warning("%s: %s counts as true: %s", node, names.KWOK_INTERRUPTED, error)
        return None
