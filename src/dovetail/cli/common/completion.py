"""Shell completion of files, contexts and names of objects. Whatever goes wrong, nothing is printed."""

from contextlib import redirect_stderr, suppress
from io import StringIO
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from dovetail.cli.common.options import ClusterSource

_KINDS: Final = {"pod": "Pod", "node": "Node", "nodeclaim": "NodeClaim", "nodepool": "NodePool"}
_MOST: Final = 500


def complete_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes files itself."""
    return [CompletionItem(incomplete, type="file")]


def complete_contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The contexts of the kubeconfig."""
    from dovetail.kube import KubeConfigError, contexts  # noqa: PLC0415  (it takes a second to import)

    try:
        found = contexts(context.params.get("kubeconfig"))
    except KubeConfigError:
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def complete_objects(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds, and after the slash the names in the files or in the live cluster."""
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        return [CompletionItem(f"{each}/") for each in _KINDS if each.startswith(kind)]
    if kind not in _KINDS:
        return []
    from dovetail.cli.common.options import ClusterSource  # noqa: PLC0415  (it imports this module)

    given = context.params
    source = ClusterSource(tuple(given.get("paths") or ()), given.get("kubeconfig"), given.get("context"))
    found = (f"{kind}/{name}" for name in _names(source, _KINDS[kind]))
    return [CompletionItem(name) for name in found if name.startswith(incomplete)][:_MOST]


def _names(source: "ClusterSource", kind: str) -> list[str]:
    """Names of objects of the kind, those of pods with their namespace."""
    from dovetail.api.documents import InputError, decode  # noqa: PLC0415  (completion of files needs it not)
    from dovetail.api.objects import ApiObject  # noqa: PLC0415
    from dovetail.cli.common.read_kinds import RULE_KINDS  # noqa: PLC0415
    from dovetail.cli.common.sources import cluster_documents  # noqa: PLC0415

    names = []
    kinds = [each for each in RULE_KINDS if each.resource.kind == kind]
    with redirect_stderr(StringIO()), suppress(InputError, SystemExit):
        for document in cluster_documents(source, kinds, []):
            if document.kind == kind:
                meta = decode(document, ApiObject).metadata
                names.append(f"{meta.namespace or 'default'}/{meta.name}" if kind == "Pod" else meta.name)
    return sorted(names)
