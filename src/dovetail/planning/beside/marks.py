"""What changes on a Node for a hold: both annotations in one patch, and only what is ours (R48)."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from dovetail.api import names
from dovetail.model.beside import Hold, read_hold, written_mark
from dovetail.model.node_records import NodeRecord


class MarkAction(StrEnum):
    """What a patch does; the label of metrics."""

    HOLD = "hold"
    REFRESH = "refresh"  # a hold of ours gets another text
    RELEASE = "release"
    DROP_MARK = "drop-mark"  # a user has changed what it marked


class MarkChange(msgspec.Struct, frozen=True):
    """The annotations to merge into a Node; None removes one."""

    action: MarkAction
    annotations: Mapping[str, str | None]


def hold_change(node: NodeRecord, wanted: Hold | None, now: datetime) -> MarkChange | None:
    """What makes the node held as wanted, or not held by us.

    The instant and the reason in the annotation are not kept up to date: they change together with who holds, or when
    the instant has passed.
    """
    hold = node.hold
    if hold is not None:
        if wanted is None:
            return MarkChange(MarkAction.RELEASE, {names.DO_NOT_DISRUPT: None, names.HELD: None})
        outdated = hold.until is not None and hold.until <= now and wanted.until != hold.until
        if outdated or hold.by is not wanted.by:
            return MarkChange(MarkAction.REFRESH, {names.HELD: written_mark(wanted)})
        return None
    if node.do_not_disrupt is None and wanted is not None:
        return MarkChange(MarkAction.HOLD, {names.DO_NOT_DISRUPT: "true", names.HELD: written_mark(wanted)})
    if node.held is not None and read_hold(node.held) is not None:
        return MarkChange(MarkAction.DROP_MARK, {names.HELD: None})
    return None


def is_in_the_way(node: NodeRecord) -> bool:
    """Whether a user's do-not-disrupt keeps nobody off the node, and keeps us from holding it."""
    return node.hold is None and node.do_not_disrupt not in (None, "true")
