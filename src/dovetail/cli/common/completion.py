"""Shell completion of files, contexts and names of objects. Whatever goes wrong, nothing is printed."""

from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, suppress
from io import StringIO
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from dovetail.cli.common.options import ClusterSource

_KINDS: Final = {"pod": "Pod", "node": "Node", "nodeclaim": "NodeClaim", "nodepool": "NodePool"}
_WORKLOADS: Final = {
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
    "replicaset": "ReplicaSet",
    "job": "Job",
}
_MOST: Final = 500


def complete_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes files itself."""
    return [CompletionItem(incomplete, type="file")]


def complete_contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The contexts of the kubeconfig."""
    from dovetail.kube import KubeConfigError, contexts  # noqa: PLC0415  (it takes a second to import)

    try:
        names = contexts(context.params.get("kubeconfig"))
    except KubeConfigError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_objects(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds, and after the slash the names in the files or in the live cluster."""
    return _objects(context, incomplete, _KINDS)


def complete_workloads(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same, with the kinds of workloads."""
    return _objects(context, incomplete, {**_KINDS, **_WORKLOADS})


def complete_nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _starting_with(incomplete, _names(_source(context), "Node"))


def complete_pools(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _starting_with(incomplete, _names(_source(context), "NodePool"))


def complete_namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The namespaces of pods."""
    pods = _names(_source(context), "Pod")
    return _starting_with(incomplete, dict.fromkeys(name.partition("/")[0] for name in pods))


def _objects(context: click.Context, incomplete: str, kinds: Mapping[str, str]) -> list[CompletionItem]:
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        return [CompletionItem(f"{choice}/") for choice in kinds if choice.startswith(kind)]
    if kind not in kinds:
        return []
    return _starting_with(incomplete, (f"{kind}/{name}" for name in _names(_source(context), kinds[kind])))


def _starting_with(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:_MOST]


def _source(context: click.Context) -> "ClusterSource":
    from dovetail.cli.common.options import ClusterSource  # noqa: PLC0415  (it imports this module)

    given = context.params
    return ClusterSource(tuple(given.get("paths") or ()), given.get("kubeconfig"), given.get("context"))


def _names(source: "ClusterSource", kind: str) -> list[str]:
    """Names of objects of the kind, those of pods and workloads with their namespace."""
    from dovetail.api.documents import InputError, decode  # noqa: PLC0415  (completion of files needs it not)
    from dovetail.api.objects import ApiObject  # noqa: PLC0415
    from dovetail.cli.common.read_kinds import RULE_KINDS, workload_kinds  # noqa: PLC0415
    from dovetail.cli.common.sources import cluster_documents  # noqa: PLC0415

    names = []
    in_namespaces = kind == "Pod" or kind in _WORKLOADS.values()
    candidates = (*RULE_KINDS, *workload_kinds({kind.lower()} & _WORKLOADS.keys()))
    kinds = [candidate for candidate in candidates if candidate.resource.kind == kind]
    with redirect_stderr(StringIO()), suppress(InputError, SystemExit):
        for document in cluster_documents(source, kinds, []):
            if document.kind == kind:
                meta = decode(document, ApiObject).metadata
                names.append(f"{meta.namespace or 'default'}/{meta.name}" if in_namespaces else meta.name)
    return sorted(names)
