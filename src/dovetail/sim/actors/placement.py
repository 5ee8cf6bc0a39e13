"""What does the scheduler know of the cluster, and which node does it choose for a pod?

What a pod asks is read once for all pods alike, and the answer of a node is kept until the node changes.
"""

from collections.abc import Container, Sequence
from types import TracebackType

from dovetail.sim.actors.demand import Demand, Labels, demand_key
from dovetail.sim.actors.fit import FITS, Fit, NodeUsage, fit, zone_fit
from dovetail.sim.actors.score import best, least_allocated
from dovetail.sim.actors.topology import Crowd, Surroundings
from dovetail.sim.actors.wire import Raw, deleting, finished, key_of, labels_of, name_of, node_of


class SchedulerCache:
    """What the scheduler knows of nodes and of the pods on them, and how often it has changed."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeUsage] = {}
        self.crowd = Crowd()
        self.changes = 0  # anything
        self.chances = 0  # what can make room: a node, or a pod less
        self.touched: list[str] = []  # names of nodes that have changed, in order
        self._priorities: dict[int, int] = {}  # how many pods have a place, by priority
        self.nominated: dict[str, dict[str, Demand]] = {}  # pods that wait for a place on the node, by node
        self._nominations: dict[str, tuple[str, Demand]] = {}
        self._demands: dict[str, Demand] = {}
        self._homeless: dict[str, dict[str, Demand]] = {}  # pods whose node is not known, by node
        self._placed: dict[str, tuple[str, Demand, bool]] = {}

    def demand(self, pod: Raw) -> Demand:
        """What the pod asks; the same object for pods that ask the same."""
        key = demand_key(pod)
        if key not in self._demands:
            self._demands[key] = Demand(pod)
        return self._demands[key]

    def node_changed(self, old: Raw | None, new: Raw | None) -> bool:
        """Take over a change of a node; False if it does not matter here."""
        node = new or old
        assert node is not None
        if new is None:
            view = self.nodes.pop(name_of(node), None)
            if view is not None and view.demands:
                self._homeless[view.name] = view.demands
        elif name_of(new) not in self.nodes:
            view = self.nodes[name_of(new)] = NodeUsage(new)
            for key, demand in self._homeless.pop(view.name, {}).items():
                view.add(key, demand)
        elif old is not None and _alike(old, new):
            return False
        else:
            self.nodes[name_of(new)].update(new)
        self.touched.append(name_of(node))
        self._changed(chance=True)
        return True

    def pod_changed(self, old: Raw | None, new: Raw | None) -> bool:
        """Take over a change of a pod; False if it does not matter here."""
        pod = new or old
        assert pod is not None
        key = key_of(pod)
        before = self._placed.get(key)
        after = None
        if new is not None and node_of(new) and not finished(new):
            if before is not None and old is not None and asks_the_same(old, new):
                after = (before[0], before[1], deleting(new))
            else:
                after = (node_of(new), self.demand(new), deleting(new))
        if before == after:
            return False
        if before is not None:
            self._leave(key, *before)
        if after is not None:
            self._arrive(key, *after)
        self._changed(chance=before is not None)
        return True

    def nominate(self, key: str, node: str, demand: Demand) -> bool:
        """The pod waits for a place on the node, or with an empty name no longer; False if that is known."""
        before, after = self._nominations.get(key), (node, demand) if node else None
        if before == after:
            return False
        if before is not None:
            del self._nominations[key], self.nominated[before[0]][key]
            if not self.nominated[before[0]]:
                del self.nominated[before[0]]
        if after is not None:
            self._nominations[key] = after
            self.nominated.setdefault(node, {})[key] = demand
        self._changed(chance=before is not None)
        return True

    def anybody_below(self, priority: int) -> bool:
        """Whether a pod of a lower priority has a place."""
        return any(other < priority for other in self._priorities)

    def leaves(self, key: str) -> bool:
        """Whether the pod has a place and is on its way out."""
        return key in self._placed and self._placed[key][2]

    def _arrive(self, key: str, node: str, demand: Demand, leaving: bool) -> None:
        self._placed[key] = (node, demand, leaving)
        self._priorities[demand.priority] = self._priorities.get(demand.priority, 0) + 1
        self.crowd.add(demand, node, leaving=leaving)
        self.touched.append(node)
        if node in self.nodes:
            self.nodes[node].add(key, demand)
        else:
            self._homeless.setdefault(node, {})[key] = demand

    def _leave(self, key: str, node: str, demand: Demand, leaving: bool) -> None:
        del self._placed[key]
        self._priorities[demand.priority] -= 1
        if not self._priorities[demand.priority]:
            del self._priorities[demand.priority]
        self.crowd.add(demand, node, leaving=leaving, count=-1)
        self.touched.append(node)
        if node in self.nodes:
            self.nodes[node].remove(key)
        else:
            self._homeless.get(node, {}).pop(key, None)

    def _changed(self, *, chance: bool) -> None:
        self.changes += 1
        self.chances += chance


class Supposition:
    """A node with some of its pods thought away and others thought there, until the end of a `with`."""

    def __init__(self, cluster: SchedulerCache, node: str) -> None:
        self._cluster = cluster
        self._node = cluster.nodes[node]
        self._gone: dict[str, tuple[Demand, bool]] = {}
        self._come: dict[str, Demand] = {}

    def __enter__(self) -> "Supposition":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in list(self._gone):
            self.stays(key)
        for key, demand in self._come.items():
            self._node.remove(key)
            self._cluster.crowd.add(demand, self._node.name, leaving=False, count=-1)

    def others_come(self, key: str, priority: int) -> None:
        """Pods of at least this priority that wait for a place here are thought there; not that of the key itself."""
        for other, demand in self._cluster.nominated.get(self._node.name, {}).items():
            if other != key and demand.priority >= priority:
                self._come[other] = demand
                self._node.add(other, demand)
                self._cluster.crowd.add(demand, self._node.name, leaving=False)

    def goes(self, key: str) -> None:
        demand, leaving = self._gone[key] = (self._node.demands[key], self._cluster.leaves(key))
        self._node.remove(key)
        self._cluster.crowd.add(demand, self._node.name, leaving=leaving, count=-1)

    def stays(self, key: str) -> None:
        """Back with the pod that has gone."""
        demand, leaving = self._gone.pop(key)
        self._node.add(key, demand)
        self._cluster.crowd.add(demand, self._node.name, leaving=leaving)


def asks_the_same(old: Raw, new: Raw) -> bool:
    return bool(old["spec"] == new["spec"] and labels_of(old) == labels_of(new))


def _alike(old: Raw, new: Raw) -> bool:
    """Whether the scheduler sees no difference between the two states of a node."""
    same_status = all(
        old.get("status", {}).get(field) == new.get("status", {}).get(field) for field in ("allocatable", "capacity")
    )
    return same_status and old.get("spec") == new.get("spec") and labels_of(old) == labels_of(new)


class Answers:
    """What the nodes say to one demand by themselves, and how they would score; renewed where nodes have changed."""

    def __init__(self, demand: Demand) -> None:
        self.fitting: dict[str, int] = {}  # nodes, and how empty they would be
        self.unfit: dict[str, Fit] = {}
        self._demand = demand
        self._position: int | None = None

    def renew(self, cluster: SchedulerCache) -> None:
        names = cluster.nodes if self._position is None else dict.fromkeys(cluster.touched[self._position :])
        self._position = len(cluster.touched)
        for name in names:
            self.fitting.pop(name, None)
            self.unfit.pop(name, None)
            node = cluster.nodes.get(name)
            if node is None:
                continue
            outcome = fit(self._demand, node)
            if outcome is FITS:
                self.fitting[name] = least_allocated(self._demand, node)
            else:
                self.unfit[name] = outcome


def place(
    demand: Demand, cluster: SchedulerCache, answers: Answers, zones: Sequence[Labels] = (), *, key: str = ""
) -> tuple[str | None, dict[str, Fit]]:
    """The best node for the demand, or None, and why the others are not.

    `zones`: what the pod's volumes want. `key`: of the pod; what is kept for it does not stand in its way.
    """
    answers.renew(cluster)
    surroundings = Surroundings(demand, cluster.nodes, cluster.crowd)
    fitting, unfit = answers.fitting, answers.unfit
    if surroundings.matter or zones:
        outcomes = {name: _among_others(cluster.nodes[name], surroundings, zones) for name in fitting}
        fitting = {name: fitting[name] for name, outcome in outcomes.items() if outcome is FITS}
        unfit = {**unfit, **{name: outcome for name, outcome in outcomes.items() if outcome is not FITS}}
    taken = _kept_for_others(key, demand, cluster, fitting, zones)
    if taken:
        fitting = {name: score for name, score in fitting.items() if name not in taken}
        unfit = {**unfit, **taken}
    if not fitting:
        return None, unfit
    return best(demand, fitting, cluster.nodes, cluster.crowd), unfit


def _kept_for_others(
    key: str, demand: Demand, cluster: SchedulerCache, fitting: Container[str], zones: Sequence[Labels]
) -> dict[str, Fit]:
    """The nodes whose room is for pods of at least this priority that were nominated there."""
    taken: dict[str, Fit] = {}
    for name in cluster.nominated:
        if name in fitting:
            with Supposition(cluster, name) as what_if:
                what_if.others_come(key, demand.priority)
                outcome = answer(demand, cluster, cluster.nodes[name], zones)
            if outcome is not FITS:
                taken[name] = outcome
    return taken


def answer(demand: Demand, cluster: SchedulerCache, node: NodeUsage, zones: Sequence[Labels]) -> Fit:
    """What the node says, looking at everything, as things are."""
    outcome = fit(demand, node)
    return (
        _among_others(node, Surroundings(demand, cluster.nodes, cluster.crowd), zones) if outcome is FITS else outcome
    )


def _among_others(node: NodeUsage, surroundings: Surroundings, zones: Sequence[Labels]) -> Fit:
    outcome = zone_fit(node, zones)
    return surroundings.fit(node) if outcome is FITS else outcome
