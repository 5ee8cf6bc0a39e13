"""Who is it that asks, and what may they list? The API server says so, by TokenReview and SubjectAccessReview."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol

import msgspec

from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PODS, ApiError, Clock, KubeApi, Resource
from dovetail.web.stream import EVERYTHING, Sight

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", dict[str, Any])
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", dict[str, Any]
)
KEPT_SECONDS: Final = 60.0
TOKENS_KEPT: Final = 256
TOKEN_BYTES_AT_MOST: Final = 16 * 1024
ASKED_AT_ONCE: Final = 16
# Whoever may not list these has nothing to look at: every row is made of them.
NEEDED: Final[tuple[Resource[Any], ...]] = (NODES, NODECLAIMS, NODEPOOLS)


class Refused(Exception):
    """Not shown; the code is that of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Access(Protocol):
    """Decides what somebody may see."""

    async def sight(self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> Sight:
        """Of which of these namespaces the bearer may see pods. Raises Refused."""


class _User(msgspec.Struct, frozen=True):
    """As the API server knows them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class ReviewedAccess(Access):
    """Asks the API server about each token, and about the rights of whom it stands for; answers hold for a minute."""

    def __init__(self, api: KubeApi, clock: Clock, *, audiences: tuple[str, ...] = ()) -> None:
        self._api = api
        self._clock = clock
        self._audiences = audiences
        self._known: OrderedDict[bytes, tuple[float, Sight | Refused]] = OrderedDict()
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    async def sight(self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> Sight:
        if not token:
            raise Refused(401, "a bearer token is needed")
        if len(token) > TOKEN_BYTES_AT_MOST or not token.isprintable():
            raise Refused(401, "this is no token")
        key = hashlib.sha256(token.encode()).digest()  # tokens themselves are not kept
        known = self._known.get(key)
        now = self._clock.monotonic()
        if known is None or known[0] <= now:
            known = now + KEPT_SECONDS, await self._found(token, namespaces)
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > TOKENS_KEPT:
                self._known.popitem(last=False)
        if isinstance(known[1], Refused):
            raise known[1]
        return known[1]

    async def _found(self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> Sight | Refused:
        """Refusals are answers, too. That nobody could be asked is not kept: it raises Refused."""
        try:
            user = await self._user(token)
            if user is None:
                return Refused(401, "the cluster does not know this token, or it has expired")
            missing = await self._denied(user, ((resource, "") for resource in NEEDED))
            if missing:
                kinds = ", ".join(resource.plural for resource, _ in missing)
                return Refused(403, f"{user.name} may not list {kinds}")
            if not await self._denied(user, [(PODS, "")]):
                return EVERYTHING
            names = await namespaces()
            denied = {name for _, name in await self._denied(user, ((PODS, name) for name in sorted(names)))}
            return Sight(names - denied)
        except ApiError as error:
            raise Refused(503, f"the cluster could not be asked about this token: {error.message}") from error

    async def _user(self, token: str) -> _User | None:
        spec: dict[str, Any] = {"token": token, **({"audiences": list(self._audiences)} if self._audiences else {})}
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}
        status = (await self._api.create(TOKEN_REVIEWS, body)).get("status") or {}
        if status.get("authenticated") is not True or status.get("error"):
            return None
        told = status.get("user") or {}
        return _User(
            str(told.get("username") or ""),
            str(told.get("uid") or ""),
            tuple(told.get("groups") or ()),
            told.get("extra") or {},
        )

    async def _denied(self, user: _User, what: Iterable[tuple[Resource[Any], str]]) -> list[tuple[Resource[Any], str]]:
        asked = list(what)
        allowed = await asyncio.gather(*(self._may_list(user, resource, namespace) for resource, namespace in asked))
        return [each for each, may in zip(asked, allowed, strict=True) if not may]

    async def _may_list(self, user: _User, resource: Resource[Any], namespace: str) -> bool:
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": user.extra,
            "resourceAttributes": {
                "verb": "list",
                "group": resource.group,
                "version": resource.version,
                "resource": resource.plural,
                "namespace": namespace,
            },
        }
        body = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
        async with self._asking:
            answer = await self._api.create(ACCESS_REVIEWS, body)
        status = answer.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True
