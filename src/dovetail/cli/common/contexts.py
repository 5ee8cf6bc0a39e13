"""The context of the kubeconfig that a command uses: its name, its cluster and its namespace."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.output import Times, missing_lines
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.values.foreign_text import plain

if TYPE_CHECKING:
    from dovetail.kube import ContextInfo


def context_of(source: ClusterSource) -> "ContextInfo | None":
    """None for files, and if there is no kubeconfig that can be read: connecting says why."""
    if source.paths:
        return None
    from dovetail.kube import KubeConfigError, context_info  # noqa: PLC0415  (it takes a second to import)

    try:
        return context_info(source.kubeconfig, source.context)
    except KubeConfigError:
        return None


def cluster_title(source: ClusterSource) -> str:
    """`context prod, cluster eks-1` of a live cluster, the files of a dump."""
    if source.paths:
        return ", ".join(source.paths)
    info = context_of(source)
    if info is None:
        return source.context or "live cluster"
    if not info.name:
        return "the cluster of this pod"
    return f"context {info.name}" + (f", cluster {info.cluster}" if info.cluster != info.name else "")


def head(source: ClusterSource, decider: Decider, problems: Iterable[Finding], times: Times) -> str:
    """The first lines of an answer: the live cluster, who decides, and whether it runs."""
    lines = [] if source.paths else [f"Live: {plain(cluster_title(source))}"]
    lines += [plain(decider.sentence), *missing_lines(problems, times)]
    return "\n".join(lines)


def place_of(source: ClusterSource) -> str:
    """Where objects are sought, for sentences."""
    return "input" if source.paths else "cluster"


def default_namespace(source: ClusterSource) -> str:
    """The namespace of objects that are named without one: as kubectl, that of the context."""
    info = context_of(source)
    return (info.namespace if info is not None else "") or "default"
