"""The scheduler's view of the cluster, and its choice of a node for a pod.

Requirements are parsed once for all equal pods, and the answer of a node is cached until the node changes.
"""

from collections import Counter
from collections.abc import Container, Sequence

from dovetail.sim.actors.scheduling.demand import Demand, Labels, Spread, demand_key
from dovetail.sim.actors.scheduling.fit import FITS, Fit, NodeUsage, fit, zone_fit
from dovetail.sim.actors.scheduling.score import best, least_allocated
from dovetail.sim.actors.scheduling.topology import Crowd, Surroundings
from dovetail.sim.actors.wire import Raw, deleting, finished, key_of, labels_of, name_of, node_of, status_of


class SchedulerCache:
    """Nodes and the pods on them, with counters of changes."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeUsage] = {}
        self.crowd = Crowd()
        self.changes = 0  # all changes
        self.chances = 0  # changes that can make room: of a node, or a pod that left
        self.touched: list[str] = []  # names of changed nodes, in order
        self._priorities: Counter[int] = Counter()  # number of placed pods by priority
        self.nominated: dict[str, dict[str, Demand]] = {}  # pods nominated to the node, by node
        self._nominations: dict[str, tuple[str, Demand]] = {}
        self._demands: dict[tuple[str, tuple[Spread, ...] | None], Demand] = {}
        self._homeless: dict[str, dict[str, Demand]] = {}  # pods of unknown nodes, by node
        self._placed: dict[str, tuple[str, Demand, bool]] = {}

    def demand(self, pod: Raw, defaults: tuple[Spread, ...] | None = None) -> Demand:
        """The requirements of the pod; the same object for equal pods. `defaults`: see `Demand`."""
        key = (demand_key(pod), defaults)
        if key not in self._demands:
            self._demands[key] = Demand(pod, defaults)
        return self._demands[key]

    def node_changed(self, old: Raw | None, new: Raw | None) -> bool:
        """Apply a change of a node; False if the scheduler ignores it."""
        name = name_of(new or old or {})
        if new is None:
            view = self.nodes.pop(name, None)
            if view is not None and view.demands:
                self._homeless[view.name] = view.demands
        elif name not in self.nodes:
            view = self.nodes[name] = NodeUsage(new)
            for key, demand in self._homeless.pop(name, {}).items():
                view.add(key, demand)
        elif old is not None and _alike(old, new):
            return False
        else:
            self.nodes[name].update(new)
        self.touched.append(name)
        self._changed(chance=True)
        return True

    def pod_changed(self, old: Raw | None, new: Raw | None) -> bool:
        """Apply a change of a pod; False if the scheduler ignores it."""
        key = key_of(new or old or {})
        before, after = self._placed.get(key), None
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
        """Nominate the pod to the node, or to none if the name is empty; False if nothing changes."""
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
        """Whether a pod of a lower priority runs on a node."""
        return any(other < priority for other in self._priorities)

    def leaves(self, key: str) -> bool:
        """Whether the pod is on a node and terminates."""
        return key in self._placed and self._placed[key][2]

    def _arrive(self, key: str, node: str, demand: Demand, leaving: bool) -> None:
        self._placed[key] = (node, demand, leaving)
        self._priorities[demand.priority] += 1
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
    """A node with some pods removed and others added on trial, until the end of a `with`."""

    def __init__(self, cluster: SchedulerCache, node: str) -> None:
        self._cluster = cluster
        self._node = cluster.nodes[node]
        self._gone: dict[str, tuple[Demand, bool]] = {}
        self._come: dict[str, Demand] = {}

    def __enter__(self) -> "Supposition":
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._gone):
            self.stays(key)
        for key, demand in self._come.items():
            self._node.remove(key)
            self._cluster.crowd.add(demand, self._node.name, leaving=False, count=-1)

    def others_come(self, key: str, priority: int) -> None:
        """Add the pods of at least this priority that are nominated to the node, except that of the key."""
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
        """Put back a removed pod."""
        demand, leaving = self._gone.pop(key)
        self._node.add(key, demand)
        self._cluster.crowd.add(demand, self._node.name, leaving=leaving)


def asks_the_same(old: Raw, new: Raw) -> bool:
    return bool(old["spec"] == new["spec"] and labels_of(old) == labels_of(new))


def _alike(old: Raw, new: Raw) -> bool:
    """Whether the scheduler sees no difference between two versions of a node."""
    statuses = status_of(old), status_of(new)
    same_size = all(statuses[0].get(field) == statuses[1].get(field) for field in ("allocatable", "capacity"))
    return same_size and old.get("spec") == new.get("spec") and labels_of(old) == labels_of(new)


class Answers:
    """Fits and scores of all nodes for one demand; `renew` updates those of changed nodes."""

    def __init__(self, demand: Demand) -> None:
        self.fitting: dict[str, int] = {}  # score by node
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
    """The best node for the demand, or None, and the reasons of the others.

    `zones`: labels that the pod's volumes require. `key`: the pod, whose own nomination is ignored.
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
    """The nodes whose room is reserved for nominated pods of at least this priority."""
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
    """Whether the demand fits on the node, with all filters."""
    outcome = fit(demand, node)
    if outcome is not FITS:
        return outcome
    return _among_others(node, Surroundings(demand, cluster.nodes, cluster.crowd), zones)


def _among_others(node: NodeUsage, surroundings: Surroundings, zones: Sequence[Labels]) -> Fit:
    outcome = zone_fit(node, zones)
    return surroundings.fit(node) if outcome is FITS else outcome
