"""`dovetail cleanup` without a cluster: what it prints, and how it refuses. With one: tests/cluster/test_cleanup.py."""

import socket

import click

from dovetail.cli.cleanup.cleaner import CleanedObject, CleanupOutcome
from dovetail.cli.commands.cleanup import CleanupReport, lines_of
from tests.unit.cli.running import Program

TAINT = "taint karpenter.sh/candidate:PreferNoSchedule"
COMMAND = "annotation karpenter.sh/disruption-command"
STATE = "condition DisruptionState"
CLEANED = (
    CleanedObject("Node/n1", CleanupOutcome.CLEANED, (TAINT,)),
    CleanedObject("NodeClaim/general-8vtqz", CleanupOutcome.CLEANED, (STATE, COMMAND)),
)
FAILED = CleanedObject("NodePool/p", CleanupOutcome.FAILED, ("status.disruptions",), "not\x1b[31m you")
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {token: t}}]
"""


def test_each_object_is_named_once() -> None:
    assert lines_of(CleanupReport(dry_run=False, objects=CLEANED)) == [
        click.style("OBJECT                    REMOVED", bold=True),
        f"Node/n1                   {TAINT}",
        f"NodeClaim/general-8vtqz   {STATE}",
        f"                          {COMMAND}",
        "",
        "2 objects cleaned",
    ]


def test_what_failed_is_told_even_to_the_quiet_and_cannot_harm_the_terminal() -> None:
    report = CleanupReport(dry_run=False, objects=(*CLEANED[:1], FAILED))
    *_, failed, empty, summary = lines_of(report)
    assert (empty, summary) == ("", "1 object cleaned, 1 object could not be cleaned")
    assert "NodePool/p: not" in failed
    assert "\x1b[31m you" not in failed
    assert lines_of(report, quiet=True) == [failed]


def test_nothing_to_do() -> None:
    assert lines_of(CleanupReport(dry_run=True, objects=())) == ["nothing to clean up"]
    assert lines_of(CleanupReport(dry_run=True, objects=()), quiet=True) == []


def test_no_kubeconfig_is_one_line_and_exit_code_2(dovetail: Program) -> None:
    outcome = dovetail("cleanup", "--kubeconfig", "/nowhere/config")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "dovetail: /nowhere/config: No such file or directory\n"


def test_no_server_is_one_line_and_exit_code_3(dovetail: Program) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        file = dovetail.file(KUBECONFIG % taken.getsockname()[1])
        outcome = dovetail("cleanup", "--force", "--kubeconfig", file)
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.startswith("dovetail: the cluster cannot be reached: ")
    assert outcome.err.count("\n") == 1


def test_wrong_usage(dovetail: Program) -> None:
    assert dovetail("cleanup", "--output", "xml").code == 2
    assert dovetail("cleanup", "extra").code == 2
