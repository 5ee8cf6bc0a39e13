"""Who executes commands, Dovetail or a Karpenter beside it, and all in which the engine differs (10 §I.4)."""

from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, DovetailMode
from dovetail.model.decider import Decider
from dovetail.planning.disruption.board import CONSOLIDATING, Method
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.nodepool.hash import pool_annotations, pool_hash
from dovetail.rules.states import BESIDE_DISRUPTED, DISRUPTED, has_disrupted_taint


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """`disrupted`: the taint of nodes in S3. `writes_reason`: the condition DisruptionReason is ours to write.

    `names_types`: replacements list their instance types, which are those of the provider. `replaces_for_cost`: nodes
    may be replaced by cheaper ones. `drains_in_waves`: drains keep the waves of a command (R55). `lands_again`: the
    methods whose pods are placed once more before a drain (R50). `infers_labels`: replacements get the labels that
    follow from their requirements. `shares_room`: another controller places pods on replacements, so a command waits
    for room that is gone. `drops_commands`: a NodePool may be opted out while a command is under way. Its marks go
    then: no other process acts, so they are ours.
    """

    disrupted: objects.Taint
    writes_reason: bool = True
    names_types: bool = True
    replaces_for_cost: bool = True
    drains_in_waves: bool = True
    lands_again: frozenset[Method] = CONSOLIDATING
    infers_labels: bool = True
    shares_room: bool = False
    drops_commands: bool = False

    def options(self, *, spot_to_spot: bool = False) -> ConsolidationOptions:
        return ConsolidationOptions(
            spot_to_spot=spot_to_spot, replaces=self.replaces_for_cost, in_waves=self.drains_in_waves
        )

    def is_claim_of_another(self, claim: objects.NodeClaim) -> bool:
        """Whether Karpenter disrupts the claim by a command of its own."""
        return not self.writes_reason and objects.is_true(claim, ConditionType.DISRUPTION_REASON)

    def is_node_of_another(self, node: objects.Node) -> bool:
        """The same, of a Node."""
        return not self.writes_reason and has_disrupted_taint(node)

    def hash_annotations(self, pool: objects.NodePool) -> Mapping[str, str]:
        """The annotations by which a new NodeClaim does not count as drifted.

        Karpenter computes them its own way, so they are what it has written on the NodePool.
        """
        if self.writes_reason:
            return pool_annotations(pool_hash(pool.spec.template))
        keys = (names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION)
        return {key: pool.metadata.annotations[key] for key in keys if key in pool.metadata.annotations}


def execution_of(decider: Decider) -> Execution:
    return BY_KARPENTER if decider.mode is DovetailMode.DRIVE else BY_DOVETAIL


BY_DOVETAIL: Final = Execution(disrupted=DISRUPTED)
BY_KARPENTER: Final = Execution(
    disrupted=BESIDE_DISRUPTED,
    writes_reason=False,
    names_types=False,
    replaces_for_cost=False,
    drains_in_waves=False,
    lands_again=frozenset(Method),
    infers_labels=False,
    shares_room=True,
    drops_commands=True,
)
