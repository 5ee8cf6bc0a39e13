"""The replacements that a node in S3 waits for (R23)."""

from collections.abc import Mapping

from dovetail.api.names import ConditionType
from dovetail.model.refs import Ref
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.verdict import Rule, Verdict, allow
from dovetail.values.schedule.instants import NEVER
from dovetail.values.timestamp import spoken_time

_PROGRESS = {
    ConditionType.LAUNCHED: "not launched yet",
    ConditionType.REGISTERED: "launched, but its node has not joined",
    ConditionType.INITIALIZED: "its node is not ready",
}


def awaited_replacement(member: ClusterNode, nodes: Mapping[str, ClusterNode]) -> Verdict | None:
    """The first replacement of the node's command that is not ready, and when it is given up. None: it has none.

    `nodes`: by the name of the NodeClaim.
    """
    awaits = None if member.claim is None else member.claim.awaits
    if awaits is None or not awaits.replacements:
        return None
    progress = {name: _lacks(nodes.get(name)) for name in awaits.replacements}
    lacking = [name for name, lacks in progress.items() if lacks]
    if not lacking:
        return allow(Rule.REPLACEMENT, member.object, f"its replacement {', '.join(progress)} is ready")
    name = lacking[0]
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return Verdict(
        rule=Rule.REPLACEMENT,
        object=Ref("NodeClaim", "", name),
        allowed=False,
        until=awaits.deadline,
        message=f"waits for replacement {name} ({progress[name]}){more}; given up {spoken_time(awaits.deadline)}",
        when=NEVER,
        transient=True,
    )


def _lacks(replacement: ClusterNode | None) -> str:
    """What the replacement lacks; empty if it is initialized."""
    claim = None if replacement is None else replacement.claim
    if claim is None:
        return "not created yet"
    if claim.deleted_at is not None:
        return "it is being deleted"
    for condition, lacks in _PROGRESS.items():
        if not claim.is_true(condition):
            known = claim.conditions.get(condition)
            return f"{lacks}: {known.message}" if known is not None and known.message else lacks
    return ""
