"""Counts the pods of each rule by domain. Moves are recorded and can be undone (08 §5.6, §6.1)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from dovetail.scheduling.fast.rows import Rows
from dovetail.scheduling.placement import BoundPod, PodInfo, TopologyRule
from dovetail.scheduling.topology import Offered, TopologyGroup, reachable


class BoundPodGroup(msgspec.Struct, eq=False):
    """Bound pods that no rule can tell apart, and their number on each row."""

    pod: BoundPod
    rows: dict[int, int] = {}


class BoundPods:
    """The bound pods that rules count."""

    def __init__(self, rows: Rows) -> None:
        self.kinds: dict[tuple[str, frozenset[tuple[str, str]]], BoundPodGroup] = {}
        self.of_uid: dict[str, tuple[int, BoundPod, BoundPodGroup]] = {}
        self.carriers: dict[TopologyRule, dict[int, int]] = {}  # of each inverse rule
        self._known: dict[tuple[str, int], tuple[object, BoundPodGroup]] = {}  # by namespace and identity of labels
        self._inverse: dict[TopologyRule, TopologyRule] = {}
        for row, node in enumerate(rows.nodes):
            self.add(row, node.pods)

    def add(self, row: int, pods: Iterable[BoundPod]) -> None:
        for pod in pods:
            if pod.counts:
                kind = self.kind(pod)
                _more(kind.rows, row)
                self.of_uid[pod.uid] = (row, pod, kind)
                for rule in pod.apart:
                    _more(self.carriers.setdefault(self.inverse(rule), {}), row)

    def remove(self, row: int, pods: Iterable[BoundPod]) -> None:
        for pod in pods:
            if pod.counts:
                _less(self.kind(pod).rows, row)
                if self.of_uid[pod.uid][0] == row:  # else it is on another node now
                    del self.of_uid[pod.uid]
                for rule in pod.apart:
                    carriers = self.carriers[self.inverse(rule)]
                    _less(carriers, row)
                    if not carriers:
                        del self.carriers[self.inverse(rule)]

    def inverse(self, rule: TopologyRule) -> TopologyRule:
        inverse = self._inverse.get(rule)
        if inverse is None:
            inverse = self._inverse[rule] = rule.inverse()
        return inverse

    @property
    def rules_of_nobody(self) -> int:
        """The number of cached rules that no pod carries any more."""
        return len(self._inverse) - len(self.carriers)

    def kind(self, pod: BoundPod) -> BoundPodGroup:
        """Pods with equal labels mostly share the object, which is then looked up by identity."""
        cached = self._known.get((pod.namespace, id(pod.labels)))
        if cached is not None and cached[0] is pod.labels:
            return cached[1]
        key = (pod.namespace, frozenset(pod.labels.items()))
        group = self.kinds.get(key)
        if group is None:
            group = self.kinds[key] = BoundPodGroup(pod)
        self._known[pod.namespace, id(pod.labels)] = (pod.labels, group)
        return group


def _more(rows: dict[int, int], row: int) -> None:
    rows[row] = rows.get(row, 0) + 1


def _less(rows: dict[int, int], row: int) -> None:
    rows[row] -= 1
    if not rows[row]:
        del rows[row]


class CountedGroup(TopologyGroup):
    """A group that also counts why a domain is known: pools offer it, or open nodes are there.

    Hosts are known by their pods. `carriers` is the number of bound pods that carry the rule of an inverse group.
    """

    __slots__ = ("carriers", "passing", "support", "texts")

    def __init__(self, rule: TopologyRule, rows: Rows, offered: Offered) -> None:
        self.texts = rows.column(rule.key).texts
        self.passing = rows.passing(rule.nodes)
        self.carriers = 0
        super().__init__(rule)
        self.support: dict[str, int] = {}
        if not self.of_hosts:
            self._look_around(rows, offered)
        self.counts = dict.fromkeys(self.support, 0)

    def _look_around(self, rows: Rows, offered: Offered) -> None:
        self.support = dict.fromkeys(reachable(self.rule, offered), 1)
        open_ = rows.open if self.passing is None else rows.open & self.passing
        for domain, there in rows.column(self.rule.key).of.items():
            if number := (there & open_).bit_count():
                self.support[domain] = self.support.get(domain, 0) + number

    def domain(self, row: int) -> str | None:
        """The domain in which a pod on this node counts; None: in none."""
        return self.texts[row] if self.passing is None or self.passing >> row & 1 else None

    def shift(self, domain: str, number: int) -> None:
        """Add or remove pods."""
        count = self.counts.get(domain, 0) + number
        if count or domain in self.support:
            self.counts[domain] = count
        else:
            self.counts.pop(domain, None)
        self.changed()

    def shift_support(self, domain: str, number: int) -> None:
        """Add or remove open nodes."""
        support = self.support.get(domain, 0) + number
        if support:
            self.support[domain] = support
            self.counts.setdefault(domain, 0)
        else:
            del self.support[domain]
            if not self.counts.get(domain):
                self.counts.pop(domain, None)
        self.changed()


class RepresentativePod(Protocol):
    """Pods that no rule can tell apart, represented by one."""

    @property
    def pod(self) -> PodInfo | BoundPod: ...


class TopologyGroups:
    """The groups of a world, created on first use."""

    def __init__(self, rows: Rows, bound: BoundPods, offered: Callable[[str], Offered]) -> None:
        self._rows = rows
        self._bound = bound
        self._offered = offered
        self._own: dict[TopologyRule, CountedGroup] = {}
        self._inverse: dict[TopologyRule, CountedGroup] = {}
        self._about: dict[RepresentativePod, list[CountedGroup]] = {}
        self._keeping_away: dict[RepresentativePod, list[CountedGroup]] = {}
        for rule in bound.carriers:
            self.inverse(rule)

    def of(self, rule: TopologyRule) -> CountedGroup:
        """Counts the pods that the rule selects."""
        group = self._own.get(rule)
        if group is None:
            group = self._own[rule] = CountedGroup(rule, self._rows, self._offered(rule.key))
            for kind in self._bound.kinds.values():
                if rule.selects(kind.pod):
                    _count(group, kind.rows)
            _tell(self._about, group)
        return group

    def inverse(self, rule: TopologyRule) -> CountedGroup:
        """Counts the pods that carry an inverse rule."""
        group = self._inverse.get(rule)
        if group is None:
            group = self._inverse[rule] = CountedGroup(rule, self._rows, self._offered(rule.key))
            carriers = self._bound.carriers.get(rule, {})
            group.carriers = sum(carriers.values())
            _count(group, carriers)
            _tell(self._keeping_away, group)
        return group

    def exchange(self, row: int, before: Iterable[BoundPod], after: Iterable[BoundPod]) -> None:
        old, new = {pod.uid: pod for pod in before}, {pod.uid: pod for pod in after}
        gone = [pod for uid, pod in old.items() if new.get(uid) is not pod]
        come = [pod for uid, pod in new.items() if old.get(uid) is not pod]
        self._shift(row, gone, -1)
        self._bound.remove(row, gone)
        self._shift(row, come, 1)
        self._bound.add(row, come)
        for rule in {self._bound.inverse(rule) for pod in come if pod.counts for rule in pod.apart}:
            self.inverse(rule)

    def _shift(self, row: int, pods: Iterable[BoundPod], number: int) -> None:
        for pod in pods:
            if not pod.counts:
                continue
            carried = [self._inverse.get(self._bound.inverse(rule)) for rule in pod.apart]
            for group in carried:
                if group is not None:
                    group.carriers += number
            for group in (*self.about(self._bound.kind(pod)), *carried):
                domain = None if group is None else group.domain(row)
                if group is not None and domain is not None:
                    group.shift(domain, number)

    def about(self, pods: RepresentativePod) -> list[CountedGroup]:
        return _selecting(self._about, self._own, pods)

    def keeping_away(self, pods: RepresentativePod) -> list[CountedGroup]:
        """The inverse groups that select these pods, with or without carriers."""
        return _selecting(self._keeping_away, self._inverse, pods)


def _tell(known: dict[RepresentativePod, list[CountedGroup]], group: CountedGroup) -> None:
    """Add a new group to the pods that it selects."""
    for alike, groups in known.items():
        if group.rule.selects(alike.pod):
            groups.append(group)


def _selecting(
    known: dict[RepresentativePod, list[CountedGroup]],
    groups: dict[TopologyRule, CountedGroup],
    pods: RepresentativePod,
) -> list[CountedGroup]:
    selecting = known.get(pods)
    if selecting is None:
        selecting = known[pods] = [group for rule, group in groups.items() if rule.selects(pods.pod)]
    return selecting


def _count(group: CountedGroup, rows: Mapping[int, int]) -> None:
    for row, number in rows.items():
        domain = group.domain(row)
        if domain is not None:
            group.shift(domain, number)


class UndoLog:
    """Records changes of groups to undo them."""

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[[str, int], None], str, int]] = []

    def count(self, group: CountedGroup, domain: str, number: int = 1) -> None:
        group.shift(domain, number)
        self._entries.append((group.shift, domain, number))

    def hide(self, group: CountedGroup, domain: str) -> None:
        group.shift_support(domain, -1)
        self._entries.append((group.shift_support, domain, -1))

    def undo(self) -> None:
        for shift, domain, number in reversed(self._entries):
            shift(domain, -number)
        self._entries.clear()
