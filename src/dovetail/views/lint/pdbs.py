"""Findings about PodDisruptionBudgets: whether each can ever allow an eviction, and is the only one for its pods."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from dovetail.api.schema import describe
from dovetail.model.finding import Finding
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.refs import Ref
from dovetail.rules.pdb import never_allows, scaled
from dovetail.values.duration import shown
from dovetail.values.selector import SelectorIndex
from dovetail.views.findings.subject import Subject
from dovetail.views.lint.scaling import ScaleTarget, target_of


class SelectablePods(NamedTuple):
    """Pods that a PDB may select: their labels and their number (None: unknown)."""

    subject: Subject
    labels: Mapping[str, str]
    replicas: int | None

    def plus_one(self) -> "SelectablePods":
        return self._replace(replicas=(self.replicas or 0) + 1)


def pdb_findings(
    pdbs: Sequence[tuple[Subject, PdbRecord]],
    workloads: Sequence[SelectablePods],
    owned_pods: Sequence[SelectablePods],
    scaled_targets: Container[ScaleTarget],
    unit_of: Callable[[str], str],
) -> list[tuple[Subject, Finding]]:
    """All findings about the PDBs of the input, each with its object.

    Pods with an owner count only if the owner is not in the input. A repository may have an object several times, for
    several clusters: only what is nearest to a PDB counts for it.
    """
    around, pods = _PdbSelection(pdbs, workloads), _PdbSelection(pdbs, owned_pods)
    guarded: dict[tuple[str, Subject], Subject] = {}
    findings: list[tuple[Subject, Finding]] = []
    for place, (subject, pdb) in enumerate(pdbs):
        selected = _nearest(subject, around.by_pdb[place], unit_of) or pods.by_pdb[place]
        scaled = any(target_of(workload.subject) in scaled_targets for workload in selected)
        problems = list(_spec(subject, pdb)) or list(_never(subject, pdb, selected, scaled=scaled))
        count = around.count[pdb.namespace] or pods.count[pdb.namespace]
        problems += _selector(subject, pdb, count, selected)
        place_of = _folder(subject.file) if unit_of(subject.file) == subject.file else unit_of(subject.file)
        overlap = next((workload for workload in selected if (place_of, workload.subject) in guarded), None)
        if overlap is not None:
            other = guarded[place_of, overlap.subject]
            if other.object != subject.object:  # duplicates have a finding
                problems.append(_overlap(subject, other, overlap))
        for workload in selected:
            guarded.setdefault((place_of, workload.subject), subject)
        findings += [(subject, problem) for problem in problems]
    return findings


def _nearest(pdb: Subject, selected: Sequence[SelectablePods], unit_of: Callable[[str], str]) -> list[SelectablePods]:
    """The workloads in the same file, unit or folder, if there are any, else all; each once, and else the largest."""
    by_name: dict[Ref, list[SelectablePods]] = defaultdict(list)
    for workload in selected:
        by_name[workload.subject.object].append(workload)

    def nearness(workload: SelectablePods) -> tuple[bool, bool, bool, int]:
        file = workload.subject.file
        same_unit = unit_of(file) == unit_of(pdb.file)
        return file == pdb.file, same_unit, _folder(file) == _folder(pdb.file), workload.replicas or 0

    chosen = [max(same, key=nearness) for same in by_name.values()]
    return [workload for workload in chosen if any(nearness(workload)[:3])] or chosen


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


class _PdbSelection:
    """The workloads that each PDB selects, and the number of workloads in each namespace."""

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


def _spec(subject: Subject, pdb: PdbRecord) -> Iterator[Finding]:
    """Values that the API server refuses."""
    values = (("minAvailable", pdb.min_available), ("maxUnavailable", pdb.max_unavailable))
    if pdb.min_available is not None and pdb.max_unavailable is not None:
        yield subject.error(
            "InvalidPdb",
            "spec.maxUnavailable",
            "minAvailable and maxUnavailable exclude each other: the API server refuses the object",
            "keep the one that is meant; maxUnavailable follows the number of replicas",
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
        yield subject.error(
            "InvalidPdb",
            f"spec.{name}",
            f"{wrong}: the API server refuses the object",
            f'write a number such as 1 or a percentage such as "25%" for {name}',
        )


def _never(subject: Subject, pdb: PdbRecord, selected: Sequence[SelectablePods], *, scaled: bool) -> Iterator[Finding]:
    counts = [workload.replicas for workload in selected]
    known_counts = [count for count in counts if count is not None]
    expected = sum(known_counts) if counts and len(known_counts) == len(counts) else None
    why = never_allows(pdb, expected)
    if why is None:
        return
    name = "minAvailable" if pdb.max_unavailable is None and pdb.min_available is not None else "maxUnavailable"
    # Without a number of pods in it, no number of replicas changes the answer.
    by_count = never_allows(pdb, None) is None
    unless = ", unless something scales it" if by_count and not scaled else ""
    yield subject.warning(
        "PdbNeverAllows",
        f"spec.{name}",
        f"it never allows an eviction, even if every pod is healthy: {why}{unless}; "
        "the nodes of these pods can only be drained by force",
        "write maxUnavailable: 1, and run at least 2 replicas if the service must stay up",
    )


def _selector(subject: Subject, pdb: PdbRecord, around: int, selected: Sequence[SelectablePods]) -> Iterator[Finding]:
    if pdb.selector_problem is not None:
        yield subject.error(
            "InvalidSelector",
            "spec.selector",
            f"{pdb.selector_problem}: the API server refuses the object",
            "use In and NotIn with values, Exists and DoesNotExist without",
        )
    elif around and not selected:
        what = "it has no selector" if pdb.selector is None else f"its selector is {shown(str(pdb.selector))}"
        yield subject.info(
            "PdbMatchesNothing",
            "spec.selector",
            f"{what}, which matches no workload of namespace {pdb.namespace} in these files",
            "copy the labels of the pod template into spec.selector.matchLabels, unless an operator creates the pods",
        )


def _overlap(subject: Subject, other: Subject, workload: SelectablePods) -> Finding:
    return subject.warning(
        "OverlappingPdbs",
        "spec.selector",
        f"{other.object} selects the pods of {workload.subject.object} too: "
        "the eviction API refuses every eviction of pods with more than one budget",
        "narrow one selector, or merge the two budgets",
    )
