"""The reference engine: places pods one at a time, without shortcuts (05 §9-§11).

The fast engine must give the same answers, in the same order and with the same ties. In production only `fast.solving`
uses this engine, for the reasons why pods cannot be placed.
"""

from collections import deque
from collections.abc import Callable, Sequence

from dovetail.api import names
from dovetail.scheduling.daemons import node_reserve
from dovetail.scheduling.existing_nodes import ExistingNode, nodes_in_order
from dovetail.scheduling.new_nodes import (
    Draft,
    Limits,
    Reservations,
    Supply,
    daemon_options,
    decided,
    finished,
    in_use,
    limits_left,
    pools_in_order,
    suitable,
)
from dovetail.scheduling.no_place import Lack, Misfit, NoPlace
from dovetail.scheduling.placement import (
    RESOURCE_CLAIMS,
    PlacementRequest,
    PodError,
    PodInfo,
    SchedulingOptions,
    Solution,
    TopologyRule,
    queue,
)
from dovetail.scheduling.refusals import (
    PlacementDeferred,
    Refusal,
    RefusedByAll,
    check_ports,
    check_taints,
    pod_error,
    solution,
)
from dovetail.scheduling.relaxation import RelaxedRequest, wishes
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.topology import Topology


def solve(problem: PlacementRequest, go_on: Callable[[], bool] = lambda: True) -> Solution:
    """A place for each pod, or the reason why there is none. Stops as soon as `go_on` returns False."""
    engine = Engine.of(problem)
    order = queue(problem)
    waiting = deque(pod for pod in order if not pod.resource_claims)
    errors = {pod.uid: pod_error(pod, Refusal(RESOURCE_CLAIMS)) for pod in order if pod.resource_claims}
    length_when_pushed: dict[str, int] = {}
    while waiting and length_when_pushed.get(waiting[0].uid) != len(waiting):  # else a whole round has placed nothing
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


class Engine:
    def __init__(
        self,
        options: SchedulingOptions,
        topology: Topology,
        sites: Sequence[ExistingNode],
        supplies: Sequence[Supply],
        reservations: Reservations,
        *,
        made: int = 0,  # new nodes of the solution that pods cannot join
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
        supplies = [
            Supply(
                pool,
                daemon_options(pool, problem.types[pool.name], problem.daemons, problem.options.well_known),
                Limits(pool, limits_left(pool, problem.nodes), in_use(pool, problem.nodes)),
            )
            for pool in pools_in_order(problem.pools, problem.types)
        ]
        return Engine(problem.options, Topology.of(problem), sites, supplies, Reservations(problem.types))

    def place(self, pod: PodInfo) -> None:
        """Place the pod. Raises Waiting, or the Refusal of the last step of relaxation."""
        refusal = Refusal()
        for wish in wishes(pod, respect_preferences=self._options.respect_preferences):
            try:
                return self.attempt(wish)
            except Refusal as error:
                refusal = error
        raise refusal

    def attempt(self, wish: RelaxedRequest) -> None:
        nodes: list[Misfit] = []
        pools: list[Misfit] = []
        if self._on_a_node(wish, nodes) or self._with_others(wish) or self._alone(wish, pools):
            return
        raise RefusedByAll(NoPlace(tuple(pools), tuple(nodes)))

    def _on_a_node(self, wish: RelaxedRequest, misfits: list[Misfit]) -> bool:
        for site in self._sites:
            try:
                site.take(wish, self._topology)
            except Refusal as refusal:
                misfits.append(_misfit(site.node.name, refusal, wish, site.labels))
            else:
                return True
        return False

    def _with_others(self, wish: RelaxedRequest) -> bool:
        """On a new node of the solution: the one with the fewest pods first, then the oldest."""
        for index in sorted(range(len(self._drafts)), key=lambda index: len(self._drafts[index].pods)):
            try:
                draft = self._joined(self._drafts[index], wish)
            except (Refusal, PlacementDeferred):
                continue
            self._settle(index, draft)
            return True
        return False

    def _alone(self, wish: RelaxedRequest, misfits: list[Misfit]) -> bool:
        """On another new node. A pod that waits for a reservation of one pool does not go to the next pool."""
        index = len(self._drafts)
        for supply in self._supplies:
            try:
                empty = supply.draft(f"new node {self._made + index + 1}")  # not a possible label value
                draft = self._joined(empty, wish)
            except Refusal as refusal:
                misfits.append(_misfit(supply.pool.name, refusal, wish, supply.pool.requirements))
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

    def _joined(self, draft: Draft, wish: RelaxedRequest) -> Draft:
        """The new node with the pod. Raises Refusal and Waiting."""
        well_known = self._options.well_known
        check_taints(wish, draft.pool.taints)
        check_ports(wish.pod.ports, draft.ports)
        if unmet := draft.requirements.incompatibility(wish.full, well_known):
            raise Refusal(unmet, Lack.REQUIREMENTS)
        node = draft.requirements & wish.full
        refusal = Refusal()
        for place in wish.pod.volumes.alternatives:
            try:
                if unmet := node.incompatibility(place, well_known):
                    raise Refusal(f"its volumes: {unmet}", Lack.VOLUMES)
                return self._joined_at(draft, wish, node & place)
            except Refusal as error:
                refusal = error
        raise refusal

    def _joined_at(self, draft: Draft, wish: RelaxedRequest, node: Requirements) -> Draft:
        pod = wish.pod
        narrowed = self._topology.narrowed(
            pod, wish.rules, wish.strict, node, self._options.well_known, reach=draft.reach
        )
        if isinstance(narrowed, TopologyRule):
            raise Refusal(f"{narrowed} does not allow it", Lack.PODS)
        requested = draft.requested + pod.request
        joined = Draft(
            pool=draft.pool,
            reach=draft.reach,
            requirements=narrowed,
            options=suitable(draft, narrowed, requested, pod.ports),
            pods=(*draft.pods, pod),
            requested=requested,
            ports=draft.ports | pod.ports,
            min_values_relaxed=draft.min_values_relaxed,
        )
        return decided(joined, draft.held, self._options, self._reservations)

    def solution(self, order: Sequence[PodInfo], errors: dict[str, PodError]) -> Solution:
        placed = ((site.node, site.placed) for site in self._sites)
        options = self._options
        return solution(order, placed, self._drafts, errors, options, finish=lambda draft: finished(draft, options))


def _misfit(name: str, refusal: Refusal, wish: RelaxedRequest, labels: Requirements) -> Misfit:
    if _is_of_other_pool(wish, labels):
        return Misfit(name, Lack.OTHER_POOL, Lack.OTHER_POOL)
    return Misfit(name, refusal.lack, str(refusal))


def _is_of_other_pool(wish: RelaxedRequest, labels: Requirements) -> bool:
    """Whether the pod asks for other NodePools by their names."""
    key = names.NODEPOOL_LABEL
    return key in wish.full and key in labels and not wish.full.get(key).overlaps(labels.get(key))
