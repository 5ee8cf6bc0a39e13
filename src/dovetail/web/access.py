"""What a reader may see: the API server decides, by TokenReview and SubjectAccessReview."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

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
# How long unknown readers wait for their turn, and how many of them.
WAIT_SECONDS: Final = 2.0
WAITING_AT_MOST: Final = 64
RETRY_SECONDS: Final = 5
# A reader needs the right to list these: every row is made of them.
NEEDED: Final[tuple[Resource[Any], ...]] = (NODES, NODECLAIMS, NODEPOOLS)


class AccessDenied(Exception):
    """The reader may see nothing; `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Authorizer(Protocol):
    """Decides what a reader may see."""

    async def sight(self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> Visibility:
        """The namespaces whose pods the bearer may see. Raises Refused."""


# The fields of a SubjectAccessReview that say who it is about.
_User: TypeAlias = dict[str, Any]


class _ReviewCache(Generic[T]):
    """The latest answers by token, each kept for a minute."""

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
    """Asks the API server about each token and the rights of its user. Answers are kept for a minute.

    `api` must be a separate client: anybody can trigger reviews, and the API server may answer slowly.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        # Separate, so that a flood of unknown tokens does not evict the known ones.
        self._sights = _ReviewCache[Visibility](clock)
        self._refusals = _ReviewCache[AccessDenied](clock)
        self._readers = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._waiting = 0
        self._reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def sight(self, token: str, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> Visibility:
        if not token:
            raise AccessDenied(401, "a bearer token is required")
        if len(token) > TOKEN_BYTES_AT_MOST or not token.isprintable():
            raise AccessDenied(401, "this is not a token")
        key = hashlib.sha256(token.encode()).digest()  # the token itself is not kept
        outcome = self._known(key)
        if outcome is None:
            async with self._turn():
                outcome = self._known(key)  # another request may have sent the same token meanwhile
                if outcome is None:
                    asked_at = self._clock.monotonic()
                    outcome = await self._found(token, namespaces)
                    if isinstance(outcome, AccessDenied):
                        self._refusals.keep(key, outcome, asked_at=asked_at)
                    else:
                        self._sights.keep(key, outcome, asked_at=asked_at)
        if isinstance(outcome, AccessDenied):
            # A new exception: one that is raised again and again keeps the frames of each time.
            raise AccessDenied(outcome.code, str(outcome))
        return outcome

    def _known(self, key: bytes) -> Visibility | AccessDenied | None:
        return self._sights.get(key) or self._refusals.get(key)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Review few readers at a time; others wait a little. Raises Refused."""
        busy = AccessDenied(503, "too many tokens are being reviewed; try again")
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
        """Refusals are answers and kept. Raises Refused, which is not kept, if the API server cannot be asked."""
        try:
            user = await self._user(token)
            if user is None:
                return AccessDenied(401, "the token is unknown to the cluster, or has expired")
            missing = await self._denied(user, ((resource, "") for resource in NEEDED))
            if missing:
                kinds = ", ".join(resource.plural for resource, _ in missing)
                return AccessDenied(403, f"{user['user']} may not list {kinds}")
            if not await self._denied(user, [(PODS, "")]):
                return EVERYTHING
            names = await namespaces()
            denied = {name for _, name in await self._denied(user, ((PODS, name) for name in sorted(names)))}
            return Visibility(names - denied)
        except ApiError as error:
            raise AccessDenied(503, f"the token could not be reviewed: {error.message}") from error

    async def _user(self, token: str) -> _User | None:
        status = await self._review(TOKEN_REVIEWS, {"token": token})
        if status.get("authenticated") is not True or status.get("error"):
            return None
        user = status.get("user") or {}
        return {
            "user": str(user.get("username") or ""),
            "uid": str(user.get("uid") or ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
        }

    async def _denied(self, user: _User, what: Iterable[tuple[Resource[Any], str]]) -> list[tuple[Resource[Any], str]]:
        asked = list(what)
        allowed = await asyncio.gather(*(self._may_list(user, resource, namespace) for resource, namespace in asked))
        return [pair for pair, may in zip(asked, allowed, strict=True) if not may]

    async def _may_list(self, user: _User, resource: Resource[Any], namespace: str) -> bool:
        spec = {
            **user,
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
        """The status of the review. Raises ApiError."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        async with self._reviews:
            return (await self._api.write(Create(resource, body))).get("status") or {}
