"""Who is it that asks, and what may they list? The API server says so, by TokenReview and SubjectAccessReview."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PODS, ApiError, Clock, Create, KubeApi, Resource
from dovetail.runtime.tasks import within
from dovetail.web.stream import EVERYTHING, Visibility

T = TypeVar("T")

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", dict[str, Any])
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", dict[str, Any]
)
KEPT_SECONDS: Final = 60.0
TOKENS_KEPT: Final = 256
TOKEN_BYTES_AT_MOST: Final = 16 * 1024
REVIEWS_AT_ONCE: Final = 8
# Readers about whom nothing is known yet wait for their turn so long, and so many.
WAIT_SECONDS: Final = 2.0
WAITING_AT_MOST: Final = 64
RETRY_SECONDS: Final = 5
# Whoever may not list these has nothing to look at: every row is made of them.
NEEDED: Final[tuple[Resource[Any], ...]] = (NODES, NODECLAIMS, NODEPOOLS)


class AccessDenied(Exception):
    """Not shown; the code is that of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Authorizer(Protocol):
    """Decides what somebody may see."""

    async def sight(self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> Visibility:
        """Of which of these namespaces the bearer may see pods. Raises Refused."""


class _User(msgspec.Struct, frozen=True):
    """As the API server knows them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class _ReviewCache(Generic[T]):
    """The latest answers by token, each for a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def get(self, key: bytes) -> T | None:
        until, answer = self._kept.get(key, (0.0, None))
        return answer if self._clock.monotonic() < until else None

    def keep(self, key: bytes, answer: T, *, asked_at: float) -> None:
        self._kept[key] = asked_at + KEPT_SECONDS, answer
        self._kept.move_to_end(key)
        while len(self._kept) > TOKENS_KEPT:
            self._kept.popitem(last=False)


class ReviewAuthorizer(Authorizer):
    """Asks the API server about each token, and about the rights of whom it stands for; answers hold for a minute.

    `api` must be a client of its own: anybody can make us ask, and the API server may take its time.
    """

    def __init__(self, api: KubeApi, clock: Clock, *, audiences: tuple[str, ...] = ()) -> None:
        self._api = api
        self._clock = clock
        self._audiences = audiences
        # Apart, so that a flood of unknown tokens does not push out those that are known.
        self._sights = _ReviewCache[Visibility](clock)
        self._refusals = _ReviewCache[AccessDenied](clock)
        self._readers = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._waiting = 0
        self._reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def sight(self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> Visibility:
        if not token:
            raise AccessDenied(401, "a bearer token is needed")
        if len(token) > TOKEN_BYTES_AT_MOST or not token.isprintable():
            raise AccessDenied(401, "this is no token")
        key = hashlib.sha256(token.encode()).digest()  # tokens themselves are not kept
        known = self._known(key)
        if known is None:
            async with self._turn():
                known = self._known(key)  # by now, somebody else may have sent the same token
                if known is None:
                    asked_at = self._clock.monotonic()
                    known = await self._found(token, namespaces)
                    if isinstance(known, AccessDenied):
                        self._refusals.keep(key, known, asked_at=asked_at)
                    else:
                        self._sights.keep(key, known, asked_at=asked_at)
        if isinstance(known, AccessDenied):
            # Anew: an exception that is raised again and again keeps the frames of each time.
            raise AccessDenied(known.code, str(known))
        return known

    def _known(self, key: bytes) -> Visibility | AccessDenied | None:
        return self._sights.get(key) or self._refusals.get(key)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Few readers are asked about at a time; others wait a little. Raises Refused."""
        busy = AccessDenied(503, "too many readers are being asked about at once; try again")
        if self._waiting >= WAITING_AT_MOST:
            raise busy
        self._waiting += 1
        try:
            await within(self._clock, WAIT_SECONDS, self._readers.acquire())
        except TimeoutError:
            raise busy from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._readers.release()

    async def _found(
        self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]
    ) -> Visibility | AccessDenied:
        """Refusals are answers, too. That nobody could be asked is not kept: it raises Refused."""
        try:
            user = await self._user(token)
            if user is None:
                return AccessDenied(401, "the cluster does not know this token, or it has expired")
            missing = await self._denied(user, ((resource, "") for resource in NEEDED))
            if missing:
                kinds = ", ".join(resource.plural for resource, _ in missing)
                return AccessDenied(403, f"{user.name} may not list {kinds}")
            if not await self._denied(user, [(PODS, "")]):
                return EVERYTHING
            names = await namespaces()
            denied = {name for _, name in await self._denied(user, ((PODS, name) for name in sorted(names)))}
            return Visibility(names - denied)
        except ApiError as error:
            raise AccessDenied(503, f"the cluster could not be asked about this token: {error.message}") from error

    async def _user(self, token: str) -> _User | None:
        spec: dict[str, Any] = {"token": token, **({"audiences": list(self._audiences)} if self._audiences else {})}
        status = await self._review(TOKEN_REVIEWS, spec)
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
        status = await self._review(ACCESS_REVIEWS, spec)
        return status.get("allowed") is True and status.get("denied") is not True

    async def _review(self, resource: Resource[dict[str, Any]], spec: dict[str, Any]) -> dict[str, Any]:
        """Its status. Raises ApiError."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        async with self._reviews:
            return (await self._api.write(Create(resource, body))).get("status") or {}
