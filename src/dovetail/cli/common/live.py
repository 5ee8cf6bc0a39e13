"""Lists the objects of a live cluster, page by page. It never writes."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, TypeVar

import msgspec

from dovetail.api import names
from dovetail.api.conversion import OLD_VERSION
from dovetail.api.documents import Document
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.process import fail
from dovetail.cli.common.read_kinds import RULE_KINDS, ReadKind
from dovetail.cli.common.refusals import UNAUTHORIZED, why_no_answer
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.ports import NODES, ApiError, Forbidden, Gone, KubeApi, NotFound, Resource

T = TypeVar("T")

LISTS: Final = 5  # of one kind, if lists expire before their last page
_NOTHING: Final = "this user may not read anything in the cluster"
_NOT_PERMITTED: Final = "NotPermitted"


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
                unread: dict[str, tuple[ReadKind, _KindListing]] = {}
                for kind in kinds:
                    listing = runner.run(_read(api, kind, source.namespace))
                    if listing.problems:
                        unread[kind.resource.kind] = kind, listing
                    if len(unread) == len(kinds) and not listing.objects:
                        first = next(iter(unread.values()))[1].problems[0]
                        fail(f"{_NOTHING}: {first.message}{_hint(source.namespace)}", code=3)
                    version = listing.api_version or kind.resource.api_version
                    for number, raw in enumerate(listing.objects):
                        yield Document("", 1, number, None, version, kind.resource.kind, raw)
                problems += _unread(unread, source.namespace)
            finally:
                runner.run(stack.aclose())
    except KubeConfigError as error:
        fail(str(error) if source.kubeconfig or source.context else f"{error}; give -f FILE to read a dump instead")
    except ApiError as error:
        fail(why_no_answer(error), code=3)


class _KindListing(msgspec.Struct, frozen=True):
    """The objects of one kind, as far as they could be listed."""

    objects: Sequence[msgspec.Raw] = ()
    problems: tuple[Finding, ...] = ()
    api_version: str = ""  # if it is not that of the kind
    namespace: str = ""  # if only this one was read


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
        items = await all_pages(api, resource, namespace)
    except Forbidden:
        return _KindListing(problems=(_not_permitted(kind, words),))
    problem = _not_permitted(kind, words, f", but for those of namespace {namespace}")
    return _KindListing(items, (problem,), namespace=namespace)


async def all_pages(
    api: KubeApi, resource: Resource[T], namespace: str | None = None, *, labels: str = "", fields: str = ""
) -> list[T]:
    """The whole list. Starts again if it expires between two pages. Raises ApiError."""
    items: list[T] = []
    continue_, lists = "", 1
    while True:
        try:
            page = await api.list(resource, namespace=namespace, labels=labels, fields=fields, continue_=continue_)
        except Gone:
            if lists == LISTS:
                raise
            items, continue_, lists = [], "", lists + 1
            continue
        items += page.items
        continue_ = page.continue_
        if not continue_:
            return items


def _not_permitted(kind: ReadKind, words: str, but_for: str = "") -> Finding:
    return Finding(
        severity=Severity.ERROR if kind in RULE_KINDS else Severity.WARNING,
        rule=_NOT_PERMITTED,
        object=Ref(kind.resource.kind),
        field="kind",
        message=f"{kind.resource.plural} could not be read{but_for}: {words}; so {kind.without}",
        remedy=f"let this user get and list them, by a ClusterRole with the rule {kind.right}",
    )


def _hint(namespace: str | None) -> str:
    return "" if namespace else "; dovetail explain -n NAMESPACE needs the right to read that namespace only"


def _unread(unread: Mapping[str, tuple[ReadKind, _KindListing]], namespace: str | None) -> list[Finding]:
    """The problems of these kinds. Those of which only the namespace was read are none if no Node was read either."""
    if namespace is None or NODES.kind not in unread or not any(listing.namespace for _, listing in unread.values()):
        return [problem for _, listing in unread.values() for problem in listing.problems]
    whole = [(kind, listing) for kind, listing in unread.values() if not listing.namespace]
    inside = [problem for kind, listing in whole if kind.resource.namespaced for problem in listing.problems]
    return [_of_one_namespace([kind for kind, _ in whole if not kind.resource.namespaced], namespace), *inside]


def _of_one_namespace(kinds: Sequence[ReadKind], namespace: str) -> Finding:
    """One problem for all cluster-scoped kinds, if the user may read only what is in the namespace."""
    plurals = ", ".join(kind.resource.plural for kind in kinds)
    return Finding(
        severity=Severity.ERROR,
        rule=_NOT_PERMITTED,
        object=Ref(NODES.kind),
        field="kind",
        message=f"this user may read only namespace {namespace}, and not {plurals}: what protects its pods is known, "
        "but not their nodes, budgets and deadlines",
        remedy=f"let this user get and list them, by a ClusterRole with {', '.join(kind.right for kind in kinds)}",
    )
