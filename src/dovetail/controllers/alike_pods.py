"""What protects the pods of a large cluster now, told without judging each of them?

Pods of one workload carry equal annotations and labels, and records share them. So alike pods are judged once, and no
sooner again than the verdicts say that time can change them (R1).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from dovetail.api import names
from dovetail.controllers.cluster import Cluster
from dovetail.model.records import Owner, PodRecord
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import Kind, protection, read_do_not_disrupt, read_schedule
from dovetail.rules.verdict import Rule, Verdict
from dovetail.runtime.reflector import Added, Change, Deleted, Updated


class Effect(StrEnum):
    """What a protection does for a pod that has it."""

    ACTIVE = "active"
    ELAPSED = "elapsed"  # it protects nothing now: the span is over, the window open, the budget not used up
    INVALID = "invalid"  # something is wrong with it, whatever that leads to (R2, R11)


Effects: TypeAlias = tuple[tuple[Rule, Effect], ...]


class Judgement(msgspec.Struct, frozen=True, eq=False):
    """What the rules say of alike pods. The verdicts may name another pod that is alike."""

    effects: Effects
    blockers: tuple[Verdict, ...]
    until: datetime | None = None
    by: object = None  # what the rules read besides the pod


class Alike(msgspec.Struct, eq=False):
    """Pods that the rules of a kind treat alike: one of them, how many there are, and what was said last."""

    kind: "_Groups"
    pod: PodRecord
    count: int = 0
    judgement: Judgement | None = None

    def judged(self, now: datetime) -> Judgement:
        known = self.judgement
        if known is None or not self.kind.holds(known) or (known.until is not None and known.until <= now):
            known = self.judgement = self.kind.judge(self.pod, now)
        return known


class _Groups(ABC):
    """Active pods by what makes them alike; those without such a key are left out."""

    def __init__(self, cluster: Cluster) -> None:
        self._groups: dict[Hashable, Alike] = {}
        cluster.pods.subscribe(self._follow)

    @abstractmethod
    def key_of(self, pod: PodRecord) -> Hashable | None: ...

    @abstractmethod
    def judge(self, pod: PodRecord, now: datetime) -> Judgement: ...

    @abstractmethod
    def holds(self, judgement: Judgement) -> bool:
        """Whether it still stands but for the time."""

    def __iter__(self) -> Iterator[Alike]:
        return iter(self._groups.values())

    def of(self, pod: PodRecord) -> Alike | None:
        key = self.key_of(pod) if pod.active else None
        return None if key is None else self._groups.get(key)

    def _follow(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(new=new):
                self._count(new.value, 1)
            case Updated(old=old, new=new):
                self._count(new.value, 1)
                self._count(old.value, -1)
            case Deleted(old=old):
                self._count(old.value, -1)

    def _count(self, pod: PodRecord, step: int) -> None:
        key = self.key_of(pod) if pod.active else None
        if key is None:
            return
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Alike(self, pod)
        group.count += step
        if not group.count:
            del self._groups[key]


class _Annotated(_Groups):
    def key_of(self, pod: PodRecord) -> Hashable | None:
        """Records share equal annotations, so their identity will do; only a span from creation tells pods apart."""
        if not pod.annotations:
            return None
        value = pod.annotations.get(names.DO_NOT_DISRUPT)
        timed = value is not None and read_do_not_disrupt(value).span_ns is not None
        return id(pod.annotations), pod.created_at if timed else None

    def judge(self, pod: PodRecord, now: datetime) -> Judgement:
        verdicts = protection(pod, now)
        faulty = _faulty(pod.annotations)
        return Judgement(
            effects=tuple(
                (verdict.rule, _effect(verdict, faulty=faulty[verdict.rule]))
                for verdict in verdicts
                if verdict.rule in faulty
            ),
            blockers=tuple(verdict for verdict in verdicts if not verdict.allowed),
            until=min((verdict.until for verdict in verdicts if verdict.until), default=None),
        )

    def holds(self, judgement: Judgement) -> bool:  # noqa: ARG002
        return True


class _Selected(_Groups):
    """By PodDisruptionBudgets."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._pdbs: PdbIndex | None = None
        cluster.pdbs.subscribe(self._forget)

    def key_of(self, pod: PodRecord) -> Hashable:
        """All that PdbIndex.verdict asks of an active pod."""
        never_evicted = pod.tolerates_disrupted or bool(pod.owner & Owner.NODE)
        return pod.namespace, id(pod.labels), pod.ready is False, never_evicted

    def judge(self, pod: PodRecord, now: datetime) -> Judgement:  # noqa: ARG002
        pdbs = self._index()
        matching = len(pdbs.matching(pod))
        if not matching:
            return Judgement((), (), by=pdbs)
        verdict = pdbs.verdict(pod)
        effect = _effect(verdict, faulty=matching > 1)
        return Judgement(((verdict.rule, effect),), () if verdict.allowed else (verdict,), by=pdbs)

    def holds(self, judgement: Judgement) -> bool:
        return judgement.by is self._pdbs

    def _index(self) -> PdbIndex:
        """Without the pods: what a budget allows is in its status, and one without allows nothing yet."""
        if self._pdbs is None:
            self._pdbs = PdbIndex(self._cluster.pdbs.values(), ())
        return self._pdbs

    def _forget(self, change: object) -> None:  # noqa: ARG002
        self._pdbs = None


class AlikePods:
    """The protections of all active pods of the cluster. Make it before the caches run."""

    def __init__(self, cluster: Cluster) -> None:
        self._kinds = (_Annotated(cluster), _Selected(cluster))

    def effects(self, now: datetime) -> Counter[tuple[Rule, Effect]]:
        """How many pods have which protection, and what it does for them."""
        counts: Counter[tuple[Rule, Effect]] = Counter()
        for kind in self._kinds:
            for group in kind:
                for effect in group.judged(now).effects:
                    counts[effect] += group.count
        return counts

    def groups_of(self, pods: Iterable[PodRecord]) -> tuple[Alike, ...]:
        """What these pods are alike to, as long as none of them changes."""
        found = (kind.of(pod) for pod in pods for kind in self._kinds)
        return tuple({id(group): group for group in found if group is not None}.values())


def blockers(groups: Iterable[Alike], now: datetime) -> list[Verdict]:
    """What blocks pods of these groups now."""
    return [verdict for group in groups for verdict in group.judged(now).blockers]


def _faulty(annotations: Mapping[str, str]) -> dict[Rule, bool]:
    """The protections that the annotations ask for, and whether something is wrong with each."""
    found = {}
    if (value := annotations.get(names.DO_NOT_DISRUPT)) is not None:
        found[Rule.DO_NOT_DISRUPT] = read_do_not_disrupt(value).fault is not None
    for kind, rule in ((Kind.ALLOW, Rule.DISRUPTION_SCHEDULE), (Kind.BLOCK, Rule.DISRUPTION_BLOCK_SCHEDULE)):
        schedule = read_schedule(kind, annotations)
        if schedule.window is not None or schedule.faults:
            found[rule] = bool(schedule.faults)
    return found


def _effect(verdict: Verdict, *, faulty: bool) -> Effect:
    return Effect.INVALID if faulty else Effect.ELAPSED if verdict.allowed else Effect.ACTIVE
