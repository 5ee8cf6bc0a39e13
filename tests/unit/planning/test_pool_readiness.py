"""Whether nodes can be made from a NodePool's node class (01 §5.1)."""

import pytest

from dovetail.api import objects
from dovetail.planning.nodepool.validation import Readiness, node_class_readiness
from tests.harness.builders import CREATED, at


def node_class(status: str | None, *, reason: str = "", message: str = "", deleting: bool = False) -> objects.NodeClass:
    ready = objects.Condition(type="Ready", status=status or "", reason=reason, message=message)
    return objects.NodeClass(
        metadata=objects.ObjectMeta(name="default", deletion_timestamp=at(CREATED) if deleting else None),
        status=objects.NodeClassStatus(
            conditions=[objects.Condition(type="Other", status="False"), *([] if status is None else [ready])]
        ),
    )


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (node_class("True"), "True", ""),
        (None, "False", "NodeClassNotFound"),
        (node_class("True", deleting=True), "False", "NodeClassTerminating"),
        (node_class("Unknown", reason="Waiting"), "False", "NodeClassReadinessUnknown"),
        (node_class(None), "False", "NodeClassReadinessUnknown"),
        (node_class("False", reason="ImageNotFound"), "False", "ImageNotFound"),
    ],
)
def test_readiness(found: objects.NodeClass | None, status: str, reason: str) -> None:
    readiness = node_class_readiness(found, "default")
    assert (readiness.status, readiness.reason) == (status, reason)


def test_the_class_tells_why() -> None:
    found = node_class_readiness(node_class("False", reason="ImageNotFound", message="no image"), "default")
    assert found == Readiness(status="False", reason="ImageNotFound", message="no image")
