"""`dovetail roll` without a cluster: how it refuses. With a simulated one: tests/sim/rolling."""

import pytest

from dovetail.cli.commands.roll import roll_lines
from dovetail.cli.roll.roller import RolledNode
from dovetail.planning.rolling import RollOutcome
from tests.unit.cli.running import Program


@pytest.mark.parametrize("option", ["--undo", "--dry-run"])
def test_there_is_nothing_to_watch(dovetail: Program, option: str) -> None:
    outcome = dovetail("roll", "node/n1", "--watch", option)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--watch cannot be used with" in outcome.err


def test_an_object_must_be_named(dovetail: Program) -> None:
    assert dovetail("roll").code == 2


def test_no_kubeconfig_is_one_line_and_exit_code_2(dovetail: Program) -> None:
    outcome = dovetail("roll", "node/n1", "--kubeconfig", "/nowhere/config")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "dovetail: /nowhere/config: No such file or directory\n"


def test_names_and_errors_cannot_harm_the_terminal() -> None:
    failed = RolledNode(
        node="n\x1b[31m", node_claim="c", node_pool="p", outcome=RollOutcome.FAILED, error="no\x1b[31m", uid="u"
    )
    lines = roll_lines([failed])
    assert not any("\x1b[31mo" in line or "n\x1b[31m" in line for line in lines)
    assert lines[-1] == "1 node failed"
    assert roll_lines([])[-1] == "there is no NodeClaim; nothing to do"


CLAIM = """\
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: c1
  annotations:
    dovetail.dev/rolled: '{"why":"asked","at":"2026-03-06T16:00:00Z"}'
"""


def test_explain_says_who_has_asked_and_since_when(dovetail: Program) -> None:
    outcome = dovetail("explain", "-f", dovetail.file(CLAIM), "--at", "2026-03-06T16:20:00Z", "nodeclaim/c1")
    assert "  asked by roll since 2026-03-06T16:00:00Z" in outcome.out
    data = dovetail("explain", "-f", dovetail.file(CLAIM), "-o", "json", "nodeclaim/c1").out
    assert '"rolled":' in data
