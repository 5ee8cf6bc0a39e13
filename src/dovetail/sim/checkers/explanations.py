"""Checks that `explain`, for the objects at that moment, allows each action of the program."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from dovetail.api.names import ConditionType, Reason
from dovetail.model.rule_settings import BudgetSemantics, RuleSettings
from dovetail.model.snapshot import Snapshot
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS, Resource
from dovetail.rules.budgets import BUDGETED
from dovetail.rules.nodes import consolidation_reason
from dovetail.rules.verdict import Rule
from dovetail.sim.actors.wire import Raw, condition_of, node_of
from dovetail.sim.checkers.checked_cluster import CheckedCluster, ClaimAndNode, ObservedObject, own_parts
from dovetail.sim.checkers.records import RecordedCommand, record_on
from dovetail.sim.server.faults import ApiRequest
from dovetail.sim.server.store import StoredObject
from dovetail.state.cluster import ClusterState
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import ReasonView, VerdictView, explain

RULE: Final = "explained"
_DRAINING: Final = ("S4", "S5")


class ExplainChecker:
    """Checks a disruption when its command is written, and right before a claim or a pod is deleted."""

    def __init__(self, scene: CheckedCluster, reading: str) -> None:
        self._scene = scene
        self._settings = RuleSettings(budgets=BudgetSemantics(reading))
        self._objection: tuple[Raw, str] | None = None  # to the current request: object and sentence

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def begun(self, claim: Raw, record: RecordedCommand) -> None:
        """The program has written the command on the claim."""
        objection = self._to_disrupting(self._scene.member_of_claim(claim), record.reason)
        if objection:
            self._object(claim, objection)

    def _to_disrupting(self, member: ClaimAndNode, reason: str) -> str:
        """Why `explain` says that the node may not be disrupted for the reason; empty if it may."""
        snapshot = self._node_snapshot(member)
        reasons = self._reasons(member, snapshot, self._scene.now())
        judged = next((answer for answer in reasons if answer.reason == reason), None)
        if judged is None:
            return f"was disrupted for {reason}, of which explain says nothing"
        # Only a pass finds out whether pods fit elsewhere; the taint that shows it may come later (R22).
        if not judged.wanted and not _may_have(snapshot, member, reason):
            return self._unless_news(member, f"was disrupted for {reason}, and explain says that it has no such reason")
        if not judged.allowed:
            why = _sentence([verdict for verdict in judged.verdicts if not verdict.allowed])
            return self._unless_news(member, f"was disrupted for {reason}, and explain says: {why}")
        self._scene.applied[RULE] += 1
        return ""

    def _reasons(self, member: ClaimAndNode, snapshot: Snapshot, at: datetime) -> Iterable[ReasonView]:
        """The answers of `explain` for the node, by reason."""
        nodes = explain(assess(snapshot, at), only=(member.name,)).nodes
        return next((node.reasons for node in nodes if node.name == member.name), ())

    def _node_snapshot(self, member: ClaimAndNode) -> Snapshot:
        """A snapshot of the node with its pods, and of the nodes that its pool's budgets count."""
        pods = [] if member.node is None else list(self._scene.pods_on(member.name))
        members = [*self._scene.members(member.pool)] if member.pool else [member]
        pool = self._scene.stored(NODEPOOLS, member.pool)
        return self._snapshot(members, pods, [pool] if pool is not None else [])

    def _snapshot(
        self, members: Iterable[ClaimAndNode], pods: list[StoredObject], pools: Iterable[StoredObject] = ()
    ) -> Snapshot:
        state, members = ClusterState(settings=self._settings), list(members)
        namespaces = {stored.body["metadata"]["namespace"] for stored in pods}
        parts: dict[Resource[Any], Iterable[StoredObject | None]] = {
            PODS: pods,
            NODES: (self._stored_of(NODES, member.node) for member in members),
            NODECLAIMS: (self._stored_of(NODECLAIMS, member.claim) for member in members),
            NODEPOOLS: pools,
            PDBS: self._scene.in_namespaces(PDBS, namespaces),
        }
        for resource, objects in parts.items():
            for stored in objects:
                if stored is not None:
                    state.load(resource.plural, stored.read_as(resource.struct))
        return state.snapshot()

    def _stored_of(self, resource: Resource[Any], body: Raw | None) -> StoredObject | None:
        return None if body is None else self._scene.stored(resource, body["metadata"]["name"])

    def _unless_news(self, member: ClaimAndNode, objection: str) -> str:
        """The objection, unless the objects have changed since the decision."""
        of_pool = [part for other in self._scene.members(member.pool) for part in own_parts(other)]
        return self._unless_changed([*self._scene.parts(member), *of_pool], objection)

    def _unless_changed(self, parts: Iterable[ObservedObject], objection: str) -> str:
        if self._scene.is_news(parts):
            self._scene.not_applied[RULE] += 1
            return ""
        return objection

    def could_go(self, node: Raw, at: datetime) -> bool:
        """Whether only a budget can block the node, for a graceful reason that it has or may have."""
        member = self._scene.member_of_node(node)
        snapshot = self._node_snapshot(member)
        return any(
            all(verdict.allowed or verdict.rule == Rule.BUDGET for verdict in judged.verdicts)
            for judged in self._reasons(member, snapshot, at)
            if judged.wanted or _may_have(snapshot, member, judged.reason)
        )

    # -- deletions of claims and pods ----------------------------------------------------------------------------------

    def asked(self, request: ApiRequest) -> None:
        """Check a request of the program right before it takes effect; the server may still refuse it."""
        self._objection = None
        if request.verb == "delete" and request.resource.plural == NODECLAIMS.plural:
            self._claim_goes(request.name)
        elif request.verb in ("delete", "evict") and request.resource.plural == PODS.plural:
            self._pod_goes(request.name, request.namespace or "")

    def goes(self) -> None:
        """Report the objection once the request has taken effect."""
        if self._objection is not None:
            self._object(*self._objection)
            self._objection = None

    def _claim_goes(self, name: str) -> None:
        """Check a deletion without a command: only forceful methods do that, and `explain` covers expiration."""
        claim = self._scene.claim(name)
        if claim is None or record_on(claim) is not None:
            return
        condition = condition_of(claim, ConditionType.DISRUPTION_REASON)
        reason = "" if condition is None or condition.get("status") != "True" else str(condition["reason"])
        if reason not in BUDGETED:
            return
        member = self._scene.member_of_claim(claim)
        if reason != Reason.EXPIRED:
            objection = f"was deleted for {reason}, and no command says so"
        elif member.node is None or member.deleting:
            return  # explain covers nodes only
        else:
            objection = self._to_disrupting(member, reason)
        if objection:
            self._objection = (claim, objection)

    def _pod_goes(self, name: str, namespace: str) -> None:
        stored = self._scene.stored(PODS, name, namespace)
        node = None if stored is None else self._scene.node(node_of(stored.body))
        if stored is None or node is None:
            return
        member = self._scene.member_of_node(node)
        explanation = explain(assess(self._snapshot([member], [stored]), self._scene.now()))
        pod, state = explanation.pods[0], explanation.nodes[0].state
        blocked = [verdict for verdict in pod.verdicts if not verdict.allowed]
        if state in _DRAINING and pod.allowed:
            self._scene.applied[RULE] += 1
            return
        if blocked:
            parts, why = [(PODS, name, namespace), *self._scene.pdbs_in([namespace])], _sentence(blocked)
        else:
            parts, why = own_parts(member), f"its node is in {state}"
        objection = self._unless_changed(parts, f"was taken off its node, and explain says: {why}")
        if objection:
            self._objection = (stored.body, objection)

    def _object(self, body: Raw, objection: str) -> None:
        self._scene.applied[RULE] += 1
        self._scene.report(RULE, body, objection)


def _may_have(snapshot: Snapshot, member: ClaimAndNode, reason: str) -> bool:
    """Whether the node has the reason if its pods fit elsewhere."""
    return any(node.name == member.name and consolidation_reason(node) == reason for node in snapshot.nodes)


def _sentence(verdicts: Iterable[VerdictView]) -> str:
    return "; ".join(f"{verdict.rule}: {verdict.message}" for verdict in verdicts)
