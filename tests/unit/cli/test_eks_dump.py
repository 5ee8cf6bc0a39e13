"""Are the commands that read at home on a cluster that Karpenter runs on EC2?"""

import gzip

import pytest

from tests.harness.eks import DUMP, asked_of, named, objects


def test_the_dump_has_the_situations_that_tests_rely_on() -> None:
    items = objects()
    nodes = [item for item in items if item["kind"] == "Node"]
    unowned = [node for node in nodes if "karpenter.sh/nodepool" not in node["metadata"]["labels"]]
    cordoned = [node for node in nodes if node["spec"].get("unschedulable")]
    assert (len(items), len(nodes), len(unowned), len(cordoned)) == (236, 19, 4, 1)
    assert named(items, "NodeClaim", "general-3b295")["metadata"]["deletionTimestamp"]
    assert "nodeName" not in named(items, "NodeClaim", "spot-batch-9x2kq")["status"]


def test_the_dump_names_no_path_of_a_machine() -> None:
    text = gzip.decompress(DUMP.read_bytes())
    assert not any(path in text for path in (b"/home", b"/root", b"/tmp", b"/work", b"localhost"))


@pytest.mark.parametrize("command", ["explain", "forecast", "plan"])
def test_commands_read_it(command: str) -> None:
    printed = asked_of(objects(), command)
    assert printed.code in {0, 1}
    assert any("ip-10-0-92-176" in line for line in printed.lines)
