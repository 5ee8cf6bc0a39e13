"""Can each PodDisruptionBudget ever allow an eviction, and is it the only one for its pods?"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.api.schema import describe
from dovetail.model.finding import Finding
from dovetail.model.records import PdbRecord
from dovetail.rules.pdb import never_allows, scaled
from dovetail.values.duration import shown
from dovetail.values.selector import SelectorIndex
from dovetail.views.lint.subject import Subject


class SelectablePods(NamedTuple):
    """Pods that a PDB may select: their labels, and how many there will be (None: that is not known)."""

    subject: Subject
    labels: Mapping[str, str]
    replicas: int | None

    def plus_one(self) -> "SelectablePods":
        return self._replace(replicas=(self.replicas or 0) + 1)


def pdb_findings(
    pdbs: Sequence[tuple[Subject, PdbRecord]], workloads: Sequence[SelectablePods], owned_pods: Sequence[SelectablePods]
) -> list[tuple[Subject, Finding]]:
    """All findings about the PDBs of the input, with the object each is about.

    Pods that something owns count only where what owns them is not in the input.
    """
    around, pods = _PdbSelection(pdbs, workloads), _PdbSelection(pdbs, owned_pods)
    guarded: dict[Subject, Subject] = {}
    found: list[tuple[Subject, Finding]] = []
    for place, (subject, pdb) in enumerate(pdbs):
        selected = around.by_pdb[place] or pods.by_pdb[place]
        problems = _spec(subject, pdb) or _never(subject, pdb, selected)
        count = around.count[pdb.namespace] or pods.count[pdb.namespace]
        problems += _selector(subject, pdb, count, selected)
        overlap = next((w for w in selected if w.subject in guarded), None)
        if overlap is not None and guarded[overlap.subject].object != subject.object:  # given twice is told elsewhere
            problems.append(_overlap(subject, guarded[overlap.subject], overlap))
        for workload in selected:
            guarded.setdefault(workload.subject, subject)
        found += [(subject, problem) for problem in problems]
    return found


class _PdbSelection:
    """Which workloads each PDB selects, and how many each namespace has."""

    def __init__(self, pdbs: Sequence[tuple[Subject, PdbRecord]], workloads: Sequence[SelectablePods]) -> None:
        self.by_pdb: dict[int, list[SelectablePods]] = defaultdict(list)
        self.count: Counter[str] = Counter(workload.subject.namespace for workload in workloads)
        indexes: dict[str, SelectorIndex[int]] = defaultdict(SelectorIndex)
        for place, (_, pdb) in enumerate(pdbs):
            if pdb.selector is not None:
                indexes[pdb.namespace].add(pdb.selector, place)
        for workload in workloads:
            for place in indexes[workload.subject.namespace].matching(workload.labels):
                self.by_pdb[place].append(workload)


def _spec(subject: Subject, pdb: PdbRecord) -> list[Finding]:
    """What the API server refuses."""
    found = []
    values = (("minAvailable", pdb.min_available), ("maxUnavailable", pdb.max_unavailable))
    if pdb.min_available is not None and pdb.max_unavailable is not None:
        found.append(
            subject.error(
                "InvalidPdb",
                "spec.maxUnavailable",
                "minAvailable and maxUnavailable exclude each other: the API server refuses the object",
                "keep maxUnavailable, which follows the number of replicas, and remove minAvailable",
            )
        )
    for name, value in values:
        if value is None:
            continue
        percent = scaled(value, 100)
        if percent is None or percent < 0:
            wrong = f"{describe(value)} is neither a number of 0 or more nor a percentage"
        elif isinstance(value, str) and percent > 100:
            wrong = f"{shown(value)} is more than 100%"
        else:
            continue
        found.append(
            subject.error(
                "InvalidPdb",
                f"spec.{name}",
                f"{wrong}: the API server refuses the object",
                f'write a number such as 1 or a percentage such as "25%" for {name}',
            )
        )
    return found


def _never(subject: Subject, pdb: PdbRecord, selected: Sequence[SelectablePods]) -> list[Finding]:
    counts = [workload.replicas for workload in selected]
    known = [count for count in counts if count is not None]
    expected = sum(known) if counts and len(known) == len(counts) else None
    why = never_allows(pdb, expected)
    if why is None:
        return []
    name = "minAvailable" if pdb.max_unavailable is None and pdb.min_available is not None else "maxUnavailable"
    return [
        subject.warning(
            "PdbNeverAllows",
            f"spec.{name}",
            f"no eviction can ever be allowed, even if every pod is healthy: {why}; "
            "the nodes of these pods cannot be drained but by force",
            "write maxUnavailable: 1, and run at least 2 replicas if the service must stay up",
        )
    ]


def _selector(subject: Subject, pdb: PdbRecord, around: int, selected: Sequence[SelectablePods]) -> list[Finding]:
    if pdb.selector_problem is not None:
        return [
            subject.error(
                "InvalidSelector",
                "spec.selector",
                f"{pdb.selector_problem}: the API server refuses the object",
                "use In and NotIn with values, Exists and DoesNotExist without",
            )
        ]
    if not around or selected:
        return []
    what = "it has no selector" if pdb.selector is None else f"its selector {shown(str(pdb.selector))} matches none"
    return [
        subject.info(
            "PdbMatchesNothing",
            "spec.selector",
            f"{what} of the {around} workloads of namespace {pdb.namespace} in this input: it protects nothing",
            "copy the labels of the pod template into spec.selector.matchLabels",
        )
    ]


def _overlap(subject: Subject, other: Subject, workload: SelectablePods) -> Finding:
    return subject.warning(
        "OverlappingPdbs",
        "spec.selector",
        f"{other.object} selects the pods of {workload.subject.object} too: "
        "the eviction API refuses every eviction of pods with more than one budget",
        "narrow one selector, or merge the two budgets",
    )
