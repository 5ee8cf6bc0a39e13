"""Events about blocked nodes: each pass tells of some of them, and the next ones of the others."""

import msgspec

from dovetail.api.names import Reason
from dovetail.controllers.disruption.reporter import Rotation, cause_of
from dovetail.model.refs import Ref, Sentence
from dovetail.planning.disruption.board import blocked_for
from dovetail.rules.verdict import Rule, refuse
from tests.harness import builders


def nodes(*names: str) -> list[tuple[str, str]]:
    return [(name, f"why {name} stays") for name in names]


def test_every_node_has_its_turn() -> None:
    rotation = Rotation(at_most=2)
    turns = [[name for name, _ in rotation.next(nodes("d", "b", "a", "e", "c"))] for _ in range(4)]
    assert turns == [["a", "b"], ["c", "d"], ["e", "a"], ["b", "c"]]


def test_a_short_list_is_handed_out_whole_each_time() -> None:
    rotation = Rotation(at_most=3)
    assert [sorted(rotation.next(nodes("b", "a"))) for _ in range(2)] == [nodes("a", "b")] * 2


def test_nodes_that_come_and_go_do_not_stop_it() -> None:
    rotation = Rotation(at_most=1)
    assert rotation.next(nodes("a", "c")) == nodes("a")
    assert rotation.next(nodes("b", "c")) == nodes("b")
    assert rotation.next(()) == []
    assert rotation.next(nodes("a")) == nodes("a")


# -- one event for each cause ------------------------------------------------------------------------------------------


def protected(pod: str, message: str, until: str | None = None) -> Sentence:
    verdict = refuse(Rule.DO_NOT_DISRUPT, Ref("Pod", "shop", pod), message)
    if until is not None:
        verdict = msgspec.structs.replace(verdict, until=builders.at(until))
    return blocked_for(Reason.DRIFTED, verdict)


def test_a_cause_stays_while_its_figures_instants_and_pods_change() -> None:
    first = protected("web-1a", "shop/web-1a fits on no other node: limits.cpu: 6 of 4 in use", "2026-03-01T10:00:00Z")
    later = protected("web-2b", "shop/web-2b fits on no other node: limits.cpu: 9 of 4 in use", "2026-03-02T11:30:00Z")
    assert cause_of(first) == cause_of(later)


def test_another_rule_another_limit_and_no_end_are_other_causes() -> None:
    sentences = [
        protected("web", "do-not-disrupt is true"),
        protected("web", "do-not-disrupt is 4h", "2026-03-01T10:00:00Z"),
        protected("web", "limits.cpu: 6 of 4 in use"),
        protected("web", "limits.memory: 6Gi of 4Gi in use"),
        blocked_for(Reason.DRIFTED, refuse(Rule.REPLACEMENT, Ref("NodePool", "", "web"), "makes no new nodes")),
    ]
    assert len({cause_of(sentence) for sentence in sentences}) == len(sentences)
