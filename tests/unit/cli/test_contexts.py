"""The context of the kubeconfig: its name in headings, and its namespace for names without one."""

import json
from datetime import UTC

import pytest

from dovetail.cli.common.contexts import cluster_title, default_namespace, head
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.output import Times
from dovetail.model.decider import KARPENTER
from tests.harness import builders
from tests.unit.cli.running import Program

TIMES = Times(builders.at("2026-03-07T00:00:00Z"), UTC)
CONTEXTS = {
    "prod": {"cluster": "eks-1", "user": "me", "namespace": "shop"},
    "test": {"cluster": "test", "user": "me"},
}
KUBECONFIG = json.dumps(
    {
        "current-context": "prod",
        "contexts": [{"name": name, "context": context} for name, context in CONTEXTS.items()],
        "clusters": [{"name": name, "cluster": {"server": "https://127.0.0.1:1"}} for name in ("eks-1", "test")],
        "users": [{"name": "me", "user": {}}],
    }
)


@pytest.fixture
def kubeconfig(dovetail: Program) -> str:
    return dovetail.file(KUBECONFIG, "kubeconfig")


def test_the_title_names_context_and_cluster(kubeconfig: str) -> None:
    assert cluster_title(ClusterSource((), kubeconfig)) == "context prod, cluster eks-1"
    title = "Live: context prod, cluster eks-1\nKarpenter decides"
    assert head(ClusterSource((), kubeconfig), KARPENTER, (), TIMES) == title


def test_equal_names_are_said_once(kubeconfig: str) -> None:
    assert cluster_title(ClusterSource((), kubeconfig, "test")) == "context test"


def test_files_have_no_context(kubeconfig: str) -> None:
    source = ClusterSource((kubeconfig,))
    assert (cluster_title(source), default_namespace(source)) == (kubeconfig, "default")
    assert head(source, KARPENTER, (), TIMES) == "Karpenter decides"


@pytest.mark.parametrize(("context", "namespace"), [("prod", "shop"), ("test", "default"), ("gone", "default")])
def test_the_namespace_is_that_of_the_context(kubeconfig: str, context: str, namespace: str) -> None:
    assert default_namespace(ClusterSource((), kubeconfig, context)) == namespace


def test_a_pod_reads_its_own_cluster(dovetail: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dovetail.folder.exists()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert cluster_title(ClusterSource(())) == "the cluster of this pod"


def test_a_context_that_is_not_there_names_those_that_are(dovetail: Program, kubeconfig: str) -> None:
    outcome = dovetail("explain", "--kubeconfig", kubeconfig, "--context", "nope")
    assert outcome.code == 2
    assert outcome.err.endswith(f"there is no context 'nope'; there is {', '.join(sorted(CONTEXTS))}\n")
