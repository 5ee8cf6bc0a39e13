"""The cluster as checkers see it: which objects belong together, who writes, and what the writer could know.

Each change updates the indexes, so that a checker reads only the objects of an action.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS, EventType, Resource
from dovetail.sim.actors.wire import Raw, condition_status, deleting, key_of, labels_of, node_of
from dovetail.sim.server.api_server import PendingRequest
from dovetail.sim.server.store import Change, Collection, StoredObject, VersionedStore
from dovetail.state.store import Key

_FOLLOWED: Final = frozenset(resource.plural for resource in (PODS, NODES, NODECLAIMS, NODEPOOLS, PDBS))
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


class Violation(msgspec.Struct, frozen=True):
    """A broken rule."""

    at: datetime
    rule: str
    object: str
    message: str

    def __str__(self) -> str:
        return f"{self.at.isoformat()} {self.rule}: {self.object} {self.message}"


class ClaimAndNode(msgspec.Struct, frozen=True):
    """A NodeClaim and its Node, either of which may be missing."""

    claim: Raw | None
    node: Raw | None

    @property
    def pool(self) -> str:
        """The label of the claim counts until the Node is registered (02 §1)."""
        labels = {} if self.node is None else labels_of(self.node)
        registered = "true" in (labels.get(names.REGISTERED_LABEL), labels.get(names.INITIALIZED_LABEL))
        source = self.node if self.node is not None and (registered or self.claim is None) else self.claim
        return "" if source is None else labels_of(source).get(names.NODEPOOL_LABEL, "")

    @property
    def name(self) -> str:
        body = self.node or self.claim
        return "" if body is None else str(body["metadata"]["name"])

    @property
    def deleting(self) -> bool:
        return any(body is not None and deleting(body) for body in (self.claim, self.node))

    @property
    def initialized(self) -> bool:
        if self.node is not None:
            return labels_of(self.node).get(names.INITIALIZED_LABEL) == "true"
        return self.claim is not None and condition_status(self.claim, names.ConditionType.INITIALIZED) == "True"


ObservedObject: TypeAlias = tuple[Resource[Any], str, str]  # an object: its kind, name and namespace


def own_parts(member: ClaimAndNode) -> list[ObservedObject]:
    both = ((NODECLAIMS, member.claim), (NODES, member.node))
    return [(resource, body["metadata"]["name"], "") for resource, body in both if body is not None]


class _LastChange(NamedTuple):
    """The last change of an object, its request, and the last change by another request."""

    at: datetime
    asked: PendingRequest | None
    before: datetime


class CheckedCluster:
    """The objects of the server. `slack`: the longest time between a decision and its request."""

    def __init__(self, store: VersionedStore, now: Callable[[], datetime], slack: timedelta) -> None:
        self.now = now
        self.asked: PendingRequest | None = None
        self.violations: list[Violation] = []
        # By rule: how often it was checked, and how often not, because its premise did not hold.
        self.applied: Counter[str] = Counter()
        self.not_applied: Counter[str] = Counter()
        self._slack = slack
        self._store = store
        self._pods, self._nodes = store.collection(PODS), store.collection(NODES)
        self._claims, self._pools = store.collection(NODECLAIMS), store.collection(NODEPOOLS)
        self._pods_on: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._nodes_with: defaultdict[str, dict[str, None]] = defaultdict(dict)  # names by provider ID
        self._claims_with: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._changes: dict[tuple[str, Key], _LastChange] = {}
        for collection in (self._pods, self._nodes, self._claims):
            for key, stored in collection.objects.items():
                self._index(collection.resource.plural, key, None, stored.body)

    # -- changes -------------------------------------------------------------------------------------------------------

    def observe(self, resource: Resource[Any], change: Change) -> None:
        if resource.plural not in _FOLLOWED:
            return
        meta = change.new.body["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        old = None if change.old is None else change.old.body
        if change.type is EventType.DELETED and resource.plural == PODS.plural:
            self._changes.pop((resource.plural, key), None)  # never read again, and a week has many
        else:
            self._remember((resource.plural, key))
        self._index(resource.plural, key, old, None if change.type is EventType.DELETED else change.new.body)

    def _index(self, plural: str, key: Key, old: Raw | None, new: Raw | None) -> None:
        if plural == PODS.plural:
            _move(self._pods_on, key, old, new, node_of)
        elif plural == NODES.plural:
            _move(self._nodes_with, key[1], old, new, provider_id)
        elif plural == NODECLAIMS.plural:
            _move(self._claims_with, key[1], old, new, provider_id)

    def _remember(self, key: tuple[str, Key]) -> None:
        last = self._changes.get(key)
        before = _BEGINNING if last is None else last.before if last.asked is self.asked is not None else last.at
        self._changes[key] = _LastChange(self.now(), self.asked, before)

    @property
    def by_us(self) -> bool:
        """Whether the program makes the current write."""
        return self.asked is not None and self.asked.request.client == names.COMPONENT

    @property
    def decided_at(self) -> datetime:
        """The earliest instant of the decision behind the current write."""
        return (self.now() if self.asked is None else self.asked.at) - self._slack

    def touched_at(self, part: ObservedObject) -> datetime:
        """When the object was last changed before the current write."""
        last = self._changes.get((part[0].plural, (part[2], part[1])))
        if last is None:
            return _BEGINNING
        return last.before if last.asked is self.asked is not None else last.at

    def is_news(self, parts: Iterable[ObservedObject]) -> bool:
        """Whether one of them has changed since the decision behind the current write, which could not know it."""
        decided_at = self.decided_at
        return any(self.touched_at(part) >= decided_at for part in parts)

    def parts(self, member: ClaimAndNode) -> list[ObservedObject]:
        """The objects that a decision about a node reads: itself, its pool, its pods and their PDBs."""
        parts = [*own_parts(member), (NODEPOOLS, member.pool, "")]
        pods = [] if member.node is None else [stored.body["metadata"] for stored in self.pods_on(member.name)]
        parts += [(PODS, meta["name"], meta["namespace"]) for meta in pods]
        return parts + self.pdbs_in({meta["namespace"] for meta in pods})

    def pdbs_in(self, namespaces: Iterable[str]) -> list[ObservedObject]:
        metas = (stored.body["metadata"] for stored in self.in_namespaces(PDBS, namespaces))
        return [(PDBS, meta["name"], meta["namespace"]) for meta in metas]

    # -- objects -------------------------------------------------------------------------------------------------------

    def stored(self, resource: Resource[Any], name: str, namespace: str = "") -> StoredObject | None:
        return self._store.collection(resource).objects.get((namespace, name))

    def claim(self, name: str) -> Raw | None:
        return _body(self._claims, name)

    def node(self, name: str) -> Raw | None:
        return _body(self._nodes, name)

    def pool(self, name: str) -> Raw | None:
        return _body(self._pools, name)

    def pods_on(self, node: str) -> Iterator[StoredObject]:
        return (self._pods.objects[key] for key in self._pods_on.get(node, ()))

    def in_namespaces(self, resource: Resource[Any], namespaces: Iterable[str]) -> list[StoredObject]:
        wanted = set(namespaces)
        objects = self._store.collection(resource).objects if wanted else {}
        return [stored for key, stored in objects.items() if key[0] in wanted]

    def member_of_claim(self, claim: Raw) -> ClaimAndNode:
        return ClaimAndNode(claim, self._only(self._nodes, self._nodes_with, provider_id(claim)))

    def member_of_node(self, node: Raw) -> ClaimAndNode:
        return ClaimAndNode(self._only(self._claims, self._claims_with, provider_id(node)), node)

    def members(self, pool: str) -> Iterator[ClaimAndNode]:
        """All claims and Nodes of the pool."""
        for stored in self._nodes.objects.values():
            member = self.member_of_node(stored.body)
            if member.pool == pool:
                yield member
        for stored in self._claims.objects.values():
            member = self.member_of_claim(stored.body)
            if member.node is None and member.pool == pool:
                yield member

    def bodies(self, resource: Resource[Any]) -> Iterator[Raw]:
        return (stored.body for stored in self._store.collection(resource).objects.values())

    def _only(self, objects: Collection, index: defaultdict[str, dict[str, None]], provider_id_: str) -> Raw | None:
        """The only object with the provider ID; None if there are several, since one machine has one of each."""
        keys = index.get(provider_id_, {}) if provider_id_ else {}
        return _body(objects, next(iter(keys))) if len(keys) == 1 else None

    def report(self, rule: str, object_: Raw | str, message: str) -> None:
        """Add a violation by an object, or by a text that names several."""
        subject = object_ if isinstance(object_, str) else f"{object_['kind']}/{key_of(object_)}"
        self.violations.append(Violation(self.now(), rule, subject, message))


def provider_id(body: Raw) -> str:
    """The provider ID of a Node or NodeClaim."""
    return str(body["spec"].get("providerID") or (body.get("status") or {}).get("providerID") or "")


def begins_to_go(change: Change) -> bool:
    """Whether this write deletes the object, even if finalizers or a grace period still keep it."""
    if change.old is None or deleting(change.old.body):
        return False
    return change.type is EventType.DELETED or deleting(change.new.body)


def _body(collection: Collection, name: str) -> Raw | None:
    stored = collection.objects.get(("", name))
    return None if stored is None else stored.body


def _move(
    index: defaultdict[str, dict[Any, None]], key: Any, old: Raw | None, new: Raw | None, where: Callable[[Raw], str]
) -> None:
    before, after = "" if old is None else where(old), "" if new is None else where(new)
    if before == after:
        return
    if before:
        index[before].pop(key, None)
        if not index[before]:
            del index[before]
    if after:
        index[after][key] = None
