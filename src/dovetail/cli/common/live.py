"""Lists the objects of a live cluster, page by page. It never writes."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final, TypeVar

import msgspec

from dovetail.api import names
from dovetail.api.conversion import OLD_VERSION
from dovetail.api.documents import Document
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.process import fail
from dovetail.cli.common.read_kinds import RULE_KINDS, ReadKind
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.ports import ApiError, Forbidden, Gone, KubeApi, NotFound, Resource

T = TypeVar("T")

UNAUTHORIZED: Final = 401
LISTS: Final = 5  # of one kind, if lists expire before their last page


def live_documents(source: ClusterSource, kinds: Sequence[ReadKind], problems: list[Finding]) -> Iterator[Document]:
    """The objects of these kinds, one kind after the other. Adds a problem for each kind that cannot be read.

    Ends the program with exit code 2 if no cluster is configured, with 3 if it cannot be reached or shows nothing.
    """
    # Imported here: the client takes a second to import, and files do not need it.
    from dovetail.kube import KubeConfigError, connect  # noqa: PLC0415

    try:
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            connection = connect(kubeconfig=source.kubeconfig, context=source.context)
            api = runner.run(stack.enter_async_context(connection))
            try:
                for kind in kinds:
                    found = runner.run(_read(api, kind, source.namespace))
                    problems += found.problems
                    if len(problems) == len(kinds) and not found.objects:
                        fail(f"this user may not read anything in the cluster: {problems[0].message}", code=3)
                    version = found.api_version or kind.resource.api_version
                    for number, raw in enumerate(found.objects):
                        yield Document("", 1, number, None, version, kind.resource.kind, raw)
            finally:
                runner.run(stack.aclose())
    except KubeConfigError as error:
        fail(str(error) if source.kubeconfig or source.context else f"{error}; give -f FILE to read a dump instead")
    except ApiError as error:
        words = "refuses these credentials" if error.code == UNAUTHORIZED else "cannot be reached"
        fail(f"the cluster {words}: {error}", code=3)


class _KindListing(msgspec.Struct, frozen=True):
    """Of one kind."""

    objects: Sequence[msgspec.Raw] = ()
    problems: tuple[Finding, ...] = ()
    api_version: str = ""  # if it is not that of the kind


async def _read(api: KubeApi, kind: ReadKind, namespace: str | None) -> _KindListing:
    """Read all namespaces, or only this one if the user may not. Raises ApiError."""
    resource = kind.resource
    try:
        return _KindListing(await all_pages(api, resource, None))
    except NotFound:
        if resource.api_version == names.API_VERSION:  # Karpenter before 1.0 has the kind in another version
            old = msgspec.structs.replace(resource, version=OLD_VERSION.rpartition("/")[2])
            listing = await _read(api, msgspec.structs.replace(kind, resource=old), namespace)
            return msgspec.structs.replace(listing, api_version=OLD_VERSION)
        return _KindListing()  # a cluster without the kind has none of it; `missing_parts` says what follows
    except Forbidden as error:
        if error.code == UNAUTHORIZED:
            raise
        words = str(error)
    if not resource.namespaced or namespace is None:
        return _KindListing(problems=(_not_permitted(kind, words),))
    try:
        found = await all_pages(api, resource, namespace)
    except Forbidden:
        return _KindListing(problems=(_not_permitted(kind, words),))
    return _KindListing(found, (_not_permitted(kind, words, f", but for those of namespace {namespace}"),))


async def all_pages(api: KubeApi, resource: Resource[T], namespace: str | None = None, *, fields: str = "") -> list[T]:
    """The whole list. Starts again if it expires between two pages. Raises ApiError."""
    found: list[T] = []
    continue_, lists = "", 1
    while True:
        try:
            page = await api.list(resource, namespace=namespace, fields=fields, continue_=continue_)
        except Gone:
            if lists == LISTS:
                raise
            found, continue_, lists = [], "", lists + 1
            continue
        found += page.items
        continue_ = page.continue_
        if not continue_:
            return found


def _not_permitted(kind: ReadKind, words: str, but_for: str = "") -> Finding:
    return Finding(
        severity=Severity.ERROR if kind in RULE_KINDS else Severity.WARNING,
        rule="NotPermitted",
        object=Ref(kind.resource.kind),
        field="kind",
        message=f"{kind.resource.plural} could not be read{but_for}: {words}; so {kind.without}",
        remedy=f"let this user get and list them, by a ClusterRole with the rule {kind.right}",
    )
