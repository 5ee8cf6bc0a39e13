"""Events about blocked nodes: each pass tells of some of them, and the next ones of the others."""

from dovetail.controllers.disruption.reporter import Rotation


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
