"""Shell completion, as bash asks for it."""

import pytest
from click.shell_completion import BashComplete

from dovetail.cli.main import program
from tests.unit.cli.running import Program
from tests.unit.cli.test_contexts import KUBECONFIG
from tests.unit.cli.test_explain_command import CLUSTER


def completed(*words: str) -> list[tuple[str, str]]:
    *before, incomplete = words
    asked = BashComplete(program, {}, "dovetail", "_DOVETAIL_COMPLETE")
    return [(item.type, item.value) for item in asked.get_completions(before, incomplete)]


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "-f", "exa"),
        ("explain", "--kubeconfig", "exa"),
        ("plan", "--instance-types", "exa"),
        ("plan", "--scheduler-config", "exa"),
        ("lint", "exa"),
        ("simulate", "exa"),
        ("record", "-o", "exa"),
        ("top", "-f", "exa"),
        ("dashboard", "-f", "exa"),
    ],
)
def test_the_shell_completes_files(words: tuple[str, ...]) -> None:
    assert completed(*words) == [("file", "exa")]


def test_contexts_are_those_of_the_kubeconfig(dovetail: Program) -> None:
    file = dovetail.file(KUBECONFIG, "kubeconfig")
    assert completed("explain", "--kubeconfig", file, "--context", "p") == [("plain", "prod")]


def test_without_a_kubeconfig_there_are_no_contexts(dovetail: Program) -> None:
    assert dovetail.folder.exists()
    assert completed("explain", "--context", "") == []


def test_kinds_come_before_names() -> None:
    assert completed("explain", "node") == [("plain", "node/"), ("plain", "nodeclaim/"), ("plain", "nodepool/")]


@pytest.mark.parametrize(
    ("incomplete", "name"),
    [
        ("node/batch-9", "node/batch-9dwlm"),
        ("pod/ml/trainer-1", "pod/ml/trainer-1"),
        ("nodepool/g", "nodepool/general"),
    ],
)
def test_names_are_those_in_the_files(incomplete: str, name: str) -> None:
    assert completed("explain", "-f", CLUSTER, incomplete) == [("plain", name)]


def test_names_in_files_that_cannot_be_read_are_not_completed(capfd: pytest.CaptureFixture[str]) -> None:
    assert completed("forecast", "-f", "no-such-file.yaml", "node/") == []
    assert capfd.readouterr() == ("", "")


def test_names_in_a_cluster_that_cannot_be_reached_are_not_completed(dovetail: Program) -> None:
    assert dovetail("--version").code == 0
    assert completed("explain", "--kubeconfig", str(dovetail.folder / "none"), "node/") == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("plan", "-f", CLUSTER, "--remove", "batch-9"), "batch-9dwlm"),
        (("plan", "-f", CLUSTER, "--nodepool", "g"), "general"),
        (("forecast", "-f", CLUSTER, "--nodepool", "g"), "general"),
        (("explain", "-f", CLUSTER, "-n", "sho"), "shop"),
        (("explain", "depl"), "deployment/"),
    ],
)
def test_options_complete_names(words: tuple[str, ...], name: str) -> None:
    assert completed(*words) == [("plain", name)]


def test_workloads_are_completed_where_they_can_be_named(dovetail: Program) -> None:
    file = dovetail.file("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n", "web.yaml")
    assert completed("explain", "-f", file, "deployment/") == [("plain", "deployment/shop/web")]
    assert completed("forecast", "-f", file, "deployment/") == []
