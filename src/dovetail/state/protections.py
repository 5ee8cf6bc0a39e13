"""The protections of pods, evaluated once for each group of similar pods.

Pods of one workload have equal annotations and labels. A group is evaluated again only when time can change the answer
(R1).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec

from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.rules.nodes import PodsVerdict
from dovetail.rules.pdb import PdbIndex, asks_budgets, never_allows
from dovetail.rules.protection import POD_RULES, may_be_protected, other_inputs, protection
from dovetail.rules.verdict import Rule, Verdict, together
from dovetail.state.cluster import ClusterState
from dovetail.state.store import Change, Contents, steps_of
from dovetail.values.schedule.instants import ALWAYS, NEVER, Instants, all_of


class ProtectionStatus(StrEnum):
    """What a protection does for a pod that has it."""

    ACTIVE = "active"
    ELAPSED = "elapsed"  # protects nothing now: the span is over, the window is open, the budget allows it
    INVALID = "invalid"  # the value is wrong, whatever that means for the pod (R2, R11)


ProtectionStatuses: TypeAlias = tuple[tuple[Rule, ProtectionStatus], ...]


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """What the rules say about a group of pods. The verdicts may name another pod of the group."""

    effects: ProtectionStatuses = ()
    blockers: tuple[Verdict, ...] = ()
    keeps: bool = False  # on their node for now: no other place is sought for them (05 §12.2)
    until: datetime | None = None
    when: Instants = ALWAYS  # when all rules allow


class PodGroup(msgspec.Struct, eq=False, weakref=True):
    """A group of pods that one kind of rules treats alike: one of them, and the last judgement."""

    kind: "_ProtectionSource"
    pod: PodRecord
    judgement: Judgement | None = None
    by: object = None  # the version of what the rules read besides the pod

    def judged(self, now: datetime) -> Judgement:
        """The same object as long as the judgement is equal."""
        judgement = self.judgement
        if judgement is None or self.by is not self.kind.by or (judgement.until is not None and judgement.until <= now):
            new = self.kind.judge(self.pod, now)
            judgement = self.judgement = new if judgement is None or new != judgement else judgement
            self.by = self.kind.by
        return judgement


class _ProtectionSource(ABC):
    """Rules that protect pods."""

    by: object = None

    @abstractmethod
    def key_of(self, pod: PodRecord) -> Hashable | None:
        """Active pods with equal keys are alike. None: the rules do not apply to the pod."""

    @abstractmethod
    def judge(self, pod: PodRecord, now: datetime) -> Judgement: ...


class _AnnotationProtections(_ProtectionSource):
    def key_of(self, pod: PodRecord) -> Hashable | None:
        """Records share equal annotations, so the key uses their identity."""
        if not may_be_protected(pod):
            return None
        return id(pod.annotations), other_inputs(pod)

    def judge(self, pod: PodRecord, now: datetime) -> Judgement:
        verdicts = protection(pod, now)
        blocking = tuple(verdict for verdict in verdicts if not verdict.allowed)
        return Judgement(
            effects=tuple(
                (verdict.rule, _effect(verdict, faulty=bool(rule.faults(pod.annotations))))
                for rule, verdict in zip(POD_RULES, verdicts, strict=True)
                if rule.applies(pod)
            ),
            blockers=blocking,
            keeps=bool(blocking),
            until=min((verdict.until for verdict in verdicts if verdict.until), default=None),
            when=together(verdicts),
        )


class _PdbProtections(_ProtectionSource):
    """Rules of PodDisruptionBudgets."""

    def __init__(self) -> None:
        self._pdbs = PdbIndex((), ())

    def know(self, pdbs: Contents[PdbRecord]) -> None:
        """Sets the budgets. A budget without status allows nothing yet."""
        if self.by is not pdbs:
            self.by = pdbs
            self._pdbs = PdbIndex((kept.value for kept in pdbs.items.values()), ())

    def key_of(self, pod: PodRecord) -> Hashable:
        """Everything that PdbIndex.verdict reads of an active pod."""
        mirrored = pod.owner is not Owner.NONE and bool(pod.owner & Owner.NODE)  # testing flags is slow
        started = pod.phase != "Pending"
        return pod.namespace, id(pod.labels), started, pod.ready is True, pod.tolerates_disrupted or mirrored

    def judge(self, pod: PodRecord, now: datetime) -> Judgement:  # noqa: ARG002
        if not asks_budgets(pod):
            return Judgement()
        binding = self._pdbs.find_matching(pod)  # the group caches the result
        if not binding:
            return Judgement()
        verdict, several = self._pdbs.verdict_by(binding, pod), len(binding) > 1
        return Judgement(
            effects=((verdict.rule, _effect(verdict, faulty=several)),),
            blockers=() if verdict.allowed else (verdict,),
            keeps=several or any(_fully_blocks(pdb, pod) for pdb in binding),
            when=verdict.when,
        )


# By the number of the kind and the key of the pods: one of the pods, and their number.
GroupCounts: TypeAlias = Mapping[tuple[int, Hashable], tuple[PodRecord, int]]


class PodGroupCounts:
    """Counts the active pods of each group. Create it before changes are applied."""

    def __init__(self, cluster: ClusterState) -> None:
        self._kinds = (_AnnotationProtections(), _PdbProtections())
        self._counts: dict[tuple[int, Hashable], tuple[PodRecord, int]] = {}
        cluster.pods.subscribe(self._follow)

    def counted(self) -> GroupCounts:
        """A copy of the counts."""
        return self._counts.copy()

    def _follow(self, change: Change[PodRecord]) -> None:
        for pod, step in steps_of(change):
            self._count(pod, step)

    def _count(self, pod: PodRecord, step: int) -> None:
        for number, kind in enumerate(self._kinds) if pod.active else ():
            if (alike := kind.key_of(pod)) is not None:
                key = (number, alike)
                first, count = self._counts.get(key, (pod, 0))
                self._counts[key] = (first, count + step)
                if not count + step:
                    del self._counts[key]


class PodProtections:
    """Evaluates groups of pods. Used by one thread at a time. Judgements are cached while somebody holds the group."""

    def __init__(self) -> None:
        self._selected = _PdbProtections()
        self._kinds = (_AnnotationProtections(), self._selected)
        self._groups: WeakValueDictionary[tuple[int, Hashable], PodGroup] = WeakValueDictionary()
        self._counted: list[PodGroup] = []

    def know(self, pdbs: Contents[PdbRecord]) -> None:
        """Sets the current budgets."""
        self._selected.know(pdbs)

    def effects(self, counted: GroupCounts, now: datetime) -> Counter[tuple[Rule, ProtectionStatus]]:
        """Counts pods by protection and its effect."""
        counts: Counter[tuple[Rule, ProtectionStatus]] = Counter()
        groups = [self._group(key, pod) for key, (pod, _) in counted.items()]
        for group, (_, count) in zip(groups, counted.values(), strict=True):
            for effect in group.judged(now).effects:
                counts[effect] += count
        self._counted = groups
        return counts

    def groups_of(self, pods: Iterable[PodRecord]) -> tuple[PodGroup, ...]:
        """The groups of these pods."""
        groups: dict[tuple[int, Hashable], PodGroup] = {}
        for pod in pods:
            for number, kind in enumerate(self._kinds) if pod.active else ():
                if (alike := kind.key_of(pod)) is not None and (key := (number, alike)) not in groups:
                    groups[key] = self._group(key, pod)
        return tuple(groups.values())

    def _group(self, key: tuple[int, Hashable], pod: PodRecord) -> PodGroup:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = PodGroup(self._kinds[key[0]], pod)
        return group

    def leaves(self, pod: PodRecord, now: datetime) -> bool:
        """Whether the pod needs another place, and nothing keeps it on its node for now (05 §12.2)."""
        if not pod.reschedulable:
            return False
        # A terminating pod of a StatefulSet returns with the same name.
        return not pod.active or not any(group.judged(now).keeps for group in self.groups_of((pod,)))


def standing_of(judged: Iterable[Judgement], blockers: Sequence[Verdict], pods: int) -> PodsVerdict:
    """Combines the judgements of a node's pods. While something blocks, the blockers say when that ends."""
    return PodsVerdict(NEVER if blockers else all_of([judgement.when for judgement in judged]), tuple(blockers), pods)


def blockers(groups: Iterable[PodGroup], now: datetime) -> list[Verdict]:
    """The verdicts that block pods of these groups now."""
    return [verdict for group in groups for verdict in group.judged(now).blockers]


def _effect(verdict: Verdict, *, faulty: bool) -> ProtectionStatus:
    return (
        ProtectionStatus.INVALID if faulty else ProtectionStatus.ELAPSED if verdict.allowed else ProtectionStatus.ACTIVE
    )


def _fully_blocks(pdb: PdbRecord, pod: PodRecord) -> bool:
    """Whether the budget never allows an eviction, whatever the number of its pods (02 §4.4.6)."""
    return never_allows(pdb, None) is not None and not (pdb.always_allow and pod.ready is not True)
