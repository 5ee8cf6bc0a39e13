"""Does `explain` agree with each action? It is asked about the objects as the server holds them at that moment."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from dovetail.api.names import ConditionType, Reason
from dovetail.model.records import PodInterner, claim_record, node_record, pdb_record, pool_record
from dovetail.model.snapshot import Snapshot, take_snapshot
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS, Resource
from dovetail.rules.budgets import BUDGETED, BudgetSemantics
from dovetail.rules.nodes import consolidation_reason
from dovetail.rules.verdict import Rule
from dovetail.sim.actors.wire import Raw, condition_of, node_of
from dovetail.sim.checkers.checked_cluster import CheckedCluster, ClaimAndNode, Part, own_parts
from dovetail.sim.checkers.records import RecordedCommand, record_on
from dovetail.sim.server.faults import ApiRequest
from dovetail.sim.server.store import StoredObject
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import ReasonView, VerdictView, explain

RULE: Final = "explained"
_DRAINING: Final = ("S4", "S5")


class ExplainChecker:
    """A disruption is looked at when its command is written down, or right before a claim or a pod is deleted."""

    def __init__(self, scene: CheckedCluster, reading: str) -> None:
        self._scene = scene
        self._reading = BudgetSemantics(reading)
        self._objection: tuple[str, str] | None = None  # to the request under way: object and sentence

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def begun(self, claim: Raw, record: RecordedCommand) -> None:
        """The program has written the command on the claim."""
        objection = self._to_disrupting(self._scene.member_of_claim(claim), record.reason)
        if objection:
            self._object(f"NodeClaim/{claim['metadata']['name']}", objection)

    def _to_disrupting(self, member: ClaimAndNode, reason: str) -> str:
        """Why `explain` says that the node may not be disrupted for the reason; empty if it may."""
        snapshot = self._node_snapshot(member)
        told = explain(assess(snapshot, self._scene.now(), self._reading), only=(member.name,))
        view = next((each for each in told.nodes if each.name == member.name), None)
        judged = None if view is None else next((each for each in view.reasons if each.reason == reason), None)
        if judged is None:
            return f"was disrupted for {reason}, of which explain says nothing"
        # Whether pods have a place elsewhere shows only in a pass; the taint that tells it may come later (R22).
        if not judged.wanted and not _may_have(snapshot, member, reason):
            return self._unless_news(member, f"was disrupted for {reason}, and explain says that it has no such reason")
        if not judged.allowed:
            return self._unless_news(member, f"was disrupted for {reason}, and explain says: {_blocked(judged)}")
        self._scene.applied[RULE] += 1
        return ""

    def _node_snapshot(self, member: ClaimAndNode) -> Snapshot:
        """The node with its pods, and of its pool what budgets count."""
        pods = [] if member.node is None else list(self._scene.pods_on(member.name))
        members = [*self._scene.members(member.pool)] if member.pool else [member]
        pool = self._scene.stored(NODEPOOLS, member.pool)
        return self._snapshot(members, pods, [pool] if pool is not None else [])

    def _snapshot(
        self, members: Iterable[ClaimAndNode], pods: list[StoredObject], pools: Iterable[StoredObject] = ()
    ) -> Snapshot:
        recorder, members = PodInterner(), list(members)
        namespaces = {stored.body["metadata"]["namespace"] for stored in pods}
        claims = (self._stored_of(NODECLAIMS, member.claim) for member in members)
        nodes = (self._stored_of(NODES, member.node) for member in members)
        return take_snapshot(
            pods=[recorder.pod(stored.read_as(PODS.struct)) for stored in pods],
            nodes=[node_record(stored.read_as(NODES.struct)) for stored in nodes if stored is not None],
            claims=[claim_record(stored.read_as(NODECLAIMS.struct)) for stored in claims if stored is not None],
            pools=[pool_record(stored.read_as(NODEPOOLS.struct)) for stored in pools],
            pdbs=[pdb_record(stored.read_as(PDBS.struct)) for stored in self._scene.in_namespaces(PDBS, namespaces)],
        )

    def _stored_of(self, resource: Resource[Any], body: Raw | None) -> StoredObject | None:
        return None if body is None else self._scene.stored(resource, body["metadata"]["name"])

    def _unless_news(self, member: ClaimAndNode, objection: str) -> str:
        """Nothing, if what it is about has changed since it was decided."""
        of_pool = [part for each in self._scene.members(member.pool) for part in own_parts(each)]
        return self._told([*self._scene.parts(member), *of_pool], objection)

    def _told(self, parts: Iterable[Part], objection: str) -> str:
        if self._scene.is_news(parts):
            self._scene.not_applied[RULE] += 1
            return ""
        return objection

    def could_go(self, node: Raw, at: datetime) -> bool:
        """Whether nothing but a budget would keep the node, for a graceful reason that it has or may have."""
        member = self._scene.member_of_node(node)
        snapshot = self._node_snapshot(member)
        told = explain(assess(snapshot, at, self._reading), only=(member.name,))
        view = next(each for each in told.nodes if each.name == member.name)
        return any(
            all(each.allowed or each.rule == Rule.BUDGET for each in judged.verdicts)
            for judged in view.reasons
            if judged.wanted or _may_have(snapshot, member, judged.reason)
        )

    # -- claims and pods that are deleted ------------------------------------------------------------------------------

    def asked(self, request: ApiRequest) -> None:
        """A request of the program is about to take effect; should it be refused, nothing has been done."""
        self._objection = None
        if request.verb == "delete" and request.resource.plural == NODECLAIMS.plural:
            self._claim_goes(request.name)
        elif request.verb in ("delete", "evict") and request.resource.plural == PODS.plural:
            self._pod_goes(request.name, request.namespace or "")

    def goes(self) -> None:
        """It has taken effect on its object."""
        if self._objection is not None:
            self._object(*self._objection)
            self._objection = None

    def _claim_goes(self, name: str) -> None:
        """Without a command only forceful methods take a node; `explain` knows of expiration."""
        claim = self._scene.claim(name)
        if claim is None or record_on(claim) is not None:
            return
        told = condition_of(claim, ConditionType.DISRUPTION_REASON)
        reason = "" if told is None or told.get("status") != "True" else str(told["reason"])
        if reason not in BUDGETED:
            return
        member = self._scene.member_of_claim(claim)
        if reason != Reason.EXPIRED:
            objection = f"was deleted for {reason}, and no command says so"
        elif member.node is None or member.deleting:
            return  # explain speaks of nodes
        else:
            objection = self._to_disrupting(member, reason)
        if objection:
            self._objection = (f"NodeClaim/{name}", objection)

    def _pod_goes(self, name: str, namespace: str) -> None:
        stored = self._scene.stored(PODS, name, namespace)
        node = None if stored is None else self._scene.node(node_of(stored.body))
        if stored is None or node is None:
            return
        member = self._scene.member_of_node(node)
        told = explain(assess(self._snapshot([member], [stored]), self._scene.now(), self._reading))
        pod, draining = told.pods[0], told.nodes[0].state in _DRAINING
        blocked = [each for each in pod.verdicts if not each.allowed]
        if draining and pod.allowed:
            self._scene.applied[RULE] += 1
            return
        if blocked:
            parts, why = [(PODS, name, namespace), *self._scene.pdbs_in([namespace])], _sentence(blocked)
        else:
            parts, why = own_parts(member), f"its node is in {told.nodes[0].state}"
        objection = self._told(parts, f"was taken off its node, and explain says: {why}")
        if objection:
            self._objection = (f"Pod/{namespace}/{name}", objection)

    def _object(self, object_: str, objection: str) -> None:
        self._scene.applied[RULE] += 1
        self._scene.report(RULE, object_, objection)


def _may_have(snapshot: Snapshot, member: ClaimAndNode, reason: str) -> bool:
    """Whether the node has the reason if its pods have a place elsewhere."""
    found = next((each for each in snapshot.nodes if each.name == member.name), None)
    return found is not None and consolidation_reason(found) == reason


def _blocked(judged: ReasonView) -> str:
    return _sentence([each for each in judged.verdicts if not each.allowed])


def _sentence(verdicts: Iterable[VerdictView]) -> str:
    return "; ".join(f"{each.rule}: {each.message}" for each in verdicts)
