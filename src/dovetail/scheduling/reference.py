"""Where do pods go, one at a time and without any short cut (05 §9-§11)?

This is the measure of the fast engine: same order, same ties, same answer. In production only the fast engine calls it,
for the words of a refusal: `fast.solving` asks it why each pod that is left has no place.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence

from dovetail.scheduling.daemons import node_reserve
from dovetail.scheduling.existing_nodes import ExistingNode, nodes_in_order
from dovetail.scheduling.new_nodes import Draft, Reservations, Supply, decided, finished, pools_in_order, suitable
from dovetail.scheduling.placement import (
    RESOURCE_CLAIMS,
    NodeInfo,
    Origin,
    PlacementRequest,
    PodError,
    PodInfo,
    SchedulingOptions,
    Solution,
    TopologyRule,
    queue,
)
from dovetail.scheduling.refusals import PlacementDeferred, Refusal, check_ports, check_taints, pod_error
from dovetail.scheduling.relaxation import RelaxedRequest, wishes
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.topology import Topology


def solve(problem: PlacementRequest, go_on: Callable[[], bool] = lambda: True) -> Solution:
    """A place for each pod, or why not. Once `go_on` says no, what has been placed so far is the answer."""
    engine = Engine.of(problem)
    order = queue(problem)
    waiting = deque(pod for pod in order if not pod.resource_claims)
    errors = {pod.uid: pod_error(pod, Refusal(RESOURCE_CLAIMS)) for pod in order if pod.resource_claims}
    length_when_pushed: dict[str, int] = {}
    while waiting and length_when_pushed.get(waiting[0].uid) != len(waiting):  # else a whole round was in vain
        if not go_on():
            reached = PlacementDeferred("it was not reached in the time given")
            errors.update((pod.uid, pod_error(pod, reached)) for pod in waiting if pod.uid not in errors)
            break
        pod = waiting.popleft()
        try:
            engine.place(pod)
            errors.pop(pod.uid, None)
        except (Refusal, PlacementDeferred) as refusal:
            errors[pod.uid] = pod_error(pod, refusal)
            waiting.append(pod)
            length_when_pushed[pod.uid] = len(waiting)
    return engine.solution(order, errors)


def fitting(problem: PlacementRequest, pod: PodInfo) -> tuple[str, ...]:
    """The nodes, by name, that would take the pod at some step of relaxation, were it the next to be placed."""
    return Engine.of(problem).fitting(pod)


class Engine:
    """Places one pod after the other."""

    def __init__(
        self,
        options: SchedulingOptions,
        topology: Topology,
        sites: Sequence[ExistingNode],
        supplies: Sequence[Supply],
        reservations: Reservations,
        *,
        made: int = 0,  # nodes that are to be made anyway, and cannot be joined
    ) -> None:
        self._made = made
        self._options = options
        self._topology = topology
        self._sites = sites
        self._supplies = supplies
        self._reservations = reservations
        self._drafts: list[Draft] = []

    @staticmethod
    def of(problem: PlacementRequest) -> "Engine":
        sites = []
        for node in nodes_in_order(problem.nodes):
            labels = node.requirements()
            reserve = node_reserve(problem.daemons, labels, node.taints, node.requested_by_daemons)
            sites.append(ExistingNode(node, labels, node.allocatable - node.requested - reserve))
        supplies = [Supply.of(pool, problem) for pool in pools_in_order(problem.pools, problem.types)]
        return Engine(problem.options, Topology.of(problem), sites, supplies, Reservations(problem.types))

    def place(self, pod: PodInfo) -> None:
        """Raises Refusal, with what is wrong when all is given up that can be, or Waiting."""
        refusal = Refusal()
        for wish in wishes(pod, respect_preferences=self._options.respect_preferences):
            try:
                return self.attempt(wish)
            except Refusal as error:
                refusal = error
        raise refusal

    def fitting(self, pod: PodInfo) -> tuple[str, ...]:
        steps = list(wishes(pod, respect_preferences=self._options.respect_preferences))
        found = [site for site in self._sites if any(site.takes(wish, self._topology) for wish in steps)]
        return tuple(sorted(site.node.name for site in found))

    def attempt(self, wish: RelaxedRequest) -> None:
        reasons: list[str] = []
        if self._on_a_node(wish, reasons) or self._with_others(wish) or self._alone(wish, reasons):
            return
        raise Refusal("; ".join(reasons) or "there is no node, and no NodePool that could make one")

    def _on_a_node(self, wish: RelaxedRequest, reasons: list[str]) -> bool:
        refusals = Counter[str]()
        for site in self._sites:
            try:
                site.take(wish, self._topology)
            except Refusal as refusal:
                refusals[str(refusal)] += 1
            else:
                return True
        reasons += [f"{count} node(s): {why}" for why, count in sorted(refusals.items())]
        return False

    def _with_others(self, wish: RelaxedRequest) -> bool:
        """On a node that is to be made anyway; the one with the fewest pods first, of equals the oldest."""
        for index in sorted(range(len(self._drafts)), key=lambda index: len(self._drafts[index].pods)):
            try:
                draft = self._joined(self._drafts[index], wish)
            except (Refusal, PlacementDeferred):
                continue
            self._settle(index, draft)
            return True
        return False

    def _alone(self, wish: RelaxedRequest, reasons: list[str]) -> bool:
        """On a node of its own. What waits for a reservation of one pool does not fall through to the next."""
        index = len(self._drafts)
        for supply in self._supplies:
            try:
                empty = supply.draft(f"new node {self._made + index + 1}")  # no label can be like that
                draft = self._joined(empty, wish)
            except Refusal as refusal:
                reasons.append(f"NodePool {supply.pool.name}: {refusal}")
                continue
            self._drafts.append(empty)
            self._settle(index, draft)
            supply.opened(draft)
            return True
        return False

    def _settle(self, index: int, draft: Draft) -> None:
        self._reservations.exchange(self._drafts[index].held, draft.held)
        self._drafts[index] = draft
        self._topology.record(draft.pods[-1], draft.requirements, draft.pool.taints, reach=draft.reach)

    # -- one pod on one node to be made

    def _joined(self, draft: Draft, wish: RelaxedRequest) -> Draft:
        """With the pod. Raises Refusal and Waiting."""
        well_known = self._options.well_known
        check_taints(wish, draft.pool.taints)
        check_ports(wish.pod.ports, draft.ports)
        if unmet := draft.requirements.incompatibility(wish.full, well_known):
            raise Refusal(str(unmet))
        node = draft.requirements & wish.full
        refusal = Refusal()
        for place in wish.pod.volumes.alternatives:
            try:
                if unmet := node.incompatibility(place, well_known):
                    raise Refusal(f"its volumes: {unmet}")
                return self._joined_at(draft, wish, node & place)
            except Refusal as error:
                refusal = error
        raise refusal

    def _joined_at(self, draft: Draft, wish: RelaxedRequest, node: Requirements) -> Draft:
        pod = wish.pod
        found = self._topology.narrowed(pod, wish.rules, wish.strict, node, self._options.well_known, reach=draft.reach)
        if isinstance(found, TopologyRule):
            raise Refusal(f"{found} does not allow it")
        requested = draft.requested + pod.request
        joined = Draft(
            pool=draft.pool,
            reach=draft.reach,
            requirements=found,
            options=suitable(draft, found, requested, pod.ports),
            pods=(*draft.pods, pod),
            requested=requested,
            ports=draft.ports | pod.ports,
            min_values_relaxed=draft.min_values_relaxed,
        )
        return decided(joined, draft.held, self._options, self._reservations)

    # -- the outcome

    def solution(self, order: Sequence[PodInfo], errors: dict[str, PodError]) -> Solution:
        existing = {}
        for site in self._sites:
            refused = [pod for pod in site.placed if self._too_early(site.node, pod)]
            why = Refusal(f"node {site.node.name} is not initialized")
            errors |= {pod.uid: pod_error(pod, why) for pod in refused}
            if placed := tuple(pod.uid for pod in site.placed if pod.uid not in errors):
                existing[site.node.name] = placed
        claims = []
        for draft in self._drafts:
            try:
                claims.append(finished(draft, self._options))
            except Refusal as refusal:
                errors |= {pod.uid: pod_error(pod, refusal) for pod in draft.pods}
        in_order = {pod.uid: errors[pod.uid] for pod in order if pod.uid in errors}
        return Solution(existing=existing, new_claims=tuple(claims), errors=in_order)

    def _too_early(self, node: NodeInfo, pod: PodInfo) -> bool:
        """What a deleting node leaves is owed already, and may wait for the node to come up (05 §12.3)."""
        return self._options.refuse_uninitialized and not node.initialized and pod.origin is not Origin.DELETING
