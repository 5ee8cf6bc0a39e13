"""Can nodes be made from a NodePool's node class (01 §5.1)?"""

import msgspec

from dovetail.api.names import Condition, ConditionReason
from dovetail.api.objects import NodeClass
from dovetail.planning.conditions import FALSE, TRUE, UNKNOWN


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The condition NodeClassReady to be set."""

    status: str
    reason: str = ""
    message: str = ""


def node_class_readiness(node_class: NodeClass | None, name: str) -> Readiness:
    """Of the class with this name, None if there is none."""
    if node_class is None:
        return _unready(ConditionReason.NODECLASS_NOT_FOUND, f"there is no node class {name}")
    if node_class.metadata.deletion_timestamp is not None:
        return _unready(ConditionReason.NODECLASS_TERMINATING, f"node class {name} is being deleted")
    ready = next((entry for entry in node_class.status.conditions if entry.type == Condition.READY), None)
    if ready is None or ready.status == UNKNOWN:
        return _unready(ConditionReason.NODECLASS_READINESS_UNKNOWN, f"node class {name} does not say if it is ready")
    if ready.status != TRUE:
        return _unready(ready.reason, ready.message)
    return Readiness(status=TRUE)


def _unready(reason: str, message: str) -> Readiness:
    return Readiness(status=FALSE, reason=reason, message=message)
