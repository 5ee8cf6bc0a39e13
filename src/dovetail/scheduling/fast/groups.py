"""How many pods of each rule are in each domain, kept up as pods are moved, and put back as it was (08 §5.6, §6.1)?"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

from dovetail.scheduling.fast.rows import Rows
from dovetail.scheduling.problem import BoundPod, Rule
from dovetail.scheduling.topology import Group, Offered, reachable


class Kind:
    """Bound pods that no rule can tell apart, and how many of them are on which rows.

    `groups` are those that are about them, of the first `seen` of all.
    """

    __slots__ = ("groups", "pod", "rows", "seen")

    def __init__(self, pod: BoundPod) -> None:
        self.pod = pod
        self.rows: Counter[int] = Counter()
        self.groups: list[Counted] = []
        self.seen = 0


class Bound:
    """The pods that have a node, as far as rules count them."""

    def __init__(self, rows: Rows) -> None:
        self.kinds: dict[tuple[str, frozenset[tuple[str, str]]], Kind] = {}
        self.of_uid: dict[str, tuple[int, BoundPod, Kind]] = {}
        self.carriers: dict[Rule, Counter[int]] = {}  # of each inverse rule
        self._labels: dict[int, tuple[object, frozenset[tuple[str, str]]]] = {}
        self._inverse: dict[Rule, Rule] = {}
        for row, node in enumerate(rows.nodes):
            self.add(row, node.pods)

    def add(self, row: int, pods: Iterable[BoundPod]) -> None:
        for pod in pods:
            if pod.counts:
                kind = self._kind(pod)
                kind.rows[row] += 1
                self.of_uid[pod.uid] = (row, pod, kind)
                for rule in pod.apart:
                    self.carriers.setdefault(self.inverse(rule), Counter())[row] += 1

    def remove(self, row: int, pods: Iterable[BoundPod]) -> None:
        for pod in pods:
            if pod.counts:
                _less(self._kind(pod).rows, row)
                self.of_uid.pop(pod.uid, None)
                for rule in pod.apart:
                    carriers = self.carriers[self.inverse(rule)]
                    _less(carriers, row)
                    if not carriers:
                        del self.carriers[self.inverse(rule)]

    def inverse(self, rule: Rule) -> Rule:
        found = self._inverse.get(rule)
        if found is None:
            found = self._inverse[rule] = rule.inverse()
        return found

    def _kind(self, pod: BoundPod) -> Kind:
        """Equal labels of many pods are mostly one object, which is looked at once."""
        known = self._labels.get(id(pod.labels))
        if known is None or known[0] is not pod.labels:
            known = self._labels[id(pod.labels)] = (pod.labels, frozenset(pod.labels.items()))
        key = (pod.namespace, known[1])
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = Kind(pod)
        return found


def _less(rows: Counter[int], row: int) -> None:
    rows[row] -= 1
    if not rows[row]:
        del rows[row]


class Counted(Group):
    """A group that knows why it knows a domain: it is offered, or open nodes are there. Hosts are known by their pods.

    `carriers`: how many bound pods carry the rule, of an inverse group.
    """

    __slots__ = ("carriers", "passing", "support", "texts")

    def __init__(self, rule: Rule, rows: Rows, offered: Offered) -> None:
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
        """Where a pod on this node counts; None: nowhere."""
        return self.texts[row] if self.passing is None or self.passing >> row & 1 else None

    def shift(self, domain: str, number: int) -> None:
        """So many pods more, or less."""
        count = self.counts.get(domain, 0) + number
        if count or domain in self.support:
            self.counts[domain] = count
        else:
            self.counts.pop(domain, None)
        self.changed()

    def shift_support(self, domain: str, number: int) -> None:
        """So many open nodes more, or less."""
        support = self.support.get(domain, 0) + number
        if support:
            self.support[domain] = support
            self.counts.setdefault(domain, 0)
        else:
            del self.support[domain]
            if not self.counts.get(domain):
                self.counts.pop(domain, None)
        self.changed()


class Groups:
    """The groups of a world, each made when it is first asked for."""

    def __init__(self, rows: Rows, bound: Bound, offered: Callable[[str], Offered]) -> None:
        self._rows = rows
        self._bound = bound
        self._offered = offered
        self.own: dict[Rule, Counted] = {}
        self.inverse: dict[Rule, Counted] = {}
        for rule in bound.carriers:
            self.keeping_away(rule)

    def of(self, rule: Rule) -> Counted:
        """The pods that the rule is about."""
        group = self.own.get(rule)
        if group is None:
            group = self.own[rule] = Counted(rule, self._rows, self._offered(rule.key))
            for kind in self._bound.kinds.values():
                if rule.selects(kind.pod):
                    _count(group, kind.rows)
        return group

    def about(self, kind: Kind) -> list[Counted]:
        """The groups that count these pods."""
        if kind.seen < len(self.own):
            new = islice(self.own.values(), kind.seen, None)
            kind.groups += [group for group in new if group.rule.selects(kind.pod)]
            kind.seen = len(self.own)
        return kind.groups

    def keeping_away(self, rule: Rule) -> Counted:
        """The pods that carry an inverse rule."""
        group = self.inverse.get(rule)
        if group is None:
            group = self.inverse[rule] = Counted(rule, self._rows, self._offered(rule.key))
            carriers = self._bound.carriers.get(rule, Counter())
            group.carriers = carriers.total()
            _count(group, carriers)
        return group


def _count(group: Counted, rows: Counter[int]) -> None:
    for row, number in rows.items():
        domain = group.domain(row)
        if domain is not None:
            group.shift(domain, number)


class Ledger:
    """What was changed, so that it can be undone."""

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[[str, int], None], str, int]] = []

    def count(self, group: Counted, domain: str, number: int = 1) -> None:
        group.shift(domain, number)
        self._entries.append((group.shift, domain, number))

    def hide(self, group: Counted, domain: str) -> None:
        group.shift_support(domain, -1)
        self._entries.append((group.shift_support, domain, -1))

    def undo(self) -> None:
        for shift, domain, number in reversed(self._entries):
            shift(domain, -number)
        self._entries.clear()
