"""Why is a NodeClaim disrupted? It is written on the claim before it is deleted, so that whoever drains its node says
it of every pod, and still does after a change of leader (R24)."""

from datetime import datetime

from dovetail.api import objects
from dovetail.api.names import Condition, Reason
from dovetail.controllers.base.cluster import Cluster
from dovetail.controllers.base.writing import write_status
from dovetail.planning.conditions import Conditions
from dovetail.ports import KubeApi


async def write_reason(
    api: KubeApi, cluster: Cluster, claim: objects.NodeClaim, reason: Reason, now: datetime
) -> objects.NodeClaim:
    """The claim with the condition `DisruptionReason`; as it is, if it is going already. Raises ApiError."""
    if claim.metadata.deletion_timestamp is not None:
        return claim  # for whatever reason that was
    conditions = Conditions(claim, now)
    conditions.set(Condition.DISRUPTION_REASON, reason=reason, message=reason)
    return await write_status(api, cluster, claim, conditions)
