"""Whether PodDisruptionBudgets allow the eviction of a pod, and whether they ever can (02 §4.4)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.rules.verdict import Rule, Verdict, allow, refuse
from dovetail.values.duration import shown
from dovetail.values.selector import SelectorIndex

_PERCENT = re.compile(r"[0-9]{1,9}%")


def scaled(value: int | str, total: int) -> int | None:
    """A count or a percentage of the total, rounded up as the API machinery does; None if it is neither."""
    if isinstance(value, int):
        return value
    return -(-int(value[:-1]) * total // 100) if _PERCENT.fullmatch(value) else None


def desired_healthy(pdb: PdbRecord, expected: int) -> int | None:
    """How many of the expected pods must stay healthy; None if the budget's spec cannot be read."""
    if pdb.max_unavailable is not None:
        unavailable = scaled(pdb.max_unavailable, expected)
        return None if unavailable is None else max(0, expected - unavailable)
    return None if pdb.min_available is None else scaled(pdb.min_available, expected)


def disruptions_allowed(pdb: PdbRecord, *, expected: int, healthy: int) -> int:
    """The arithmetic of the disruption controller. A budget that cannot be read allows nothing."""
    desired = desired_healthy(pdb, expected)
    return 0 if desired is None or expected <= 0 else max(0, healthy - desired)


def never_allows(pdb: PdbRecord, expected: int | None) -> str | None:
    """Why no eviction can ever be allowed even if every pod is healthy, or None. `expected` None: unknown."""
    if pdb.max_unavailable is not None:
        value = pdb.max_unavailable
        if scaled(value, 100) is None:
            return f"maxUnavailable {shown(str(value))} is neither a number nor a percentage"
        return f"maxUnavailable is {value}" if scaled(value, 100) == 0 else None
    if pdb.min_available is None:
        return "it sets neither minAvailable nor maxUnavailable"
    if isinstance(pdb.min_available, str):
        if scaled(pdb.min_available, 100) is None:
            return f"minAvailable {shown(pdb.min_available)} is neither a number nor a percentage"
        if int(pdb.min_available[:-1]) >= 100:
            return f"minAvailable is {pdb.min_available}"
    desired = None if expected is None else desired_healthy(pdb, expected)
    if expected and desired is not None and desired >= expected:
        return f"minAvailable {pdb.min_available} leaves none of {expected} to spare"
    return None


def asks_budgets(pod: PodRecord) -> bool:
    """Whether the eviction API checks PDBs for the pod: not before it has started, nor after its end (R57)."""
    return pod.active and pod.phase != "Pending"


def _key(pdb: PdbRecord) -> tuple[str, str]:
    return pdb.namespace, pdb.name


class PdbIndex:
    """The PDBs of a cluster, with what each allows now."""

    def __init__(self, pdbs: Iterable[PdbRecord], pods: Iterable[PodRecord]) -> None:
        self._by_namespace: dict[str, SelectorIndex[PdbRecord]] = defaultdict(SelectorIndex)
        counted = False
        for pdb in pdbs:
            counted = counted or pdb.disruptions_allowed is None or pdb.expected_pods is None
            if pdb.selector is not None:  # without a selector it matches nothing
                self._by_namespace[pdb.namespace].add(pdb.selector, pdb)
        # Records share equal label sets, so one answer serves all pods of a workload.
        self._matches: dict[tuple[str, int], tuple[Mapping[str, str], tuple[PdbRecord, ...]]] = {}
        self._expected: dict[tuple[str, str], int] = defaultdict(int)
        self._healthy: dict[tuple[str, str], int] = defaultdict(int)
        for pod in pods if counted else ():  # a PDB with a status does not need the pods
            for pdb in self.matching(pod):
                if pod.active:
                    self._expected[_key(pdb)] += 1
                    self._healthy[_key(pdb)] += pod.ready is True

    def matching(self, pod: PodRecord) -> tuple[PdbRecord, ...]:
        """The PDBs that select the pod. The answer is cached for all pods with these labels."""
        if pod.namespace not in self._by_namespace:
            return ()
        key = (pod.namespace, id(pod.labels))
        known = self._matches.get(key)
        if known is None:
            # Keeps a reference to the labels, so that their id() stays unique.
            known = self._matches[key] = (pod.labels, self.find_matching(pod))
        return known[1]

    def binding(self, pod: PodRecord) -> tuple[PdbRecord, ...]:
        """The PDBs that the eviction API checks for the pod."""
        return self.matching(pod) if asks_budgets(pod) else ()

    def find_matching(self, pod: PodRecord) -> tuple[PdbRecord, ...]:
        """Like `matching`, without the cache, for an index that outlives pods."""
        candidates = self._by_namespace.get(pod.namespace)
        return () if candidates is None else candidates.matching(pod.labels)

    def expected(self, pdb: PdbRecord) -> int:
        """The number of pods of the budget: by its status, else counted."""
        return self._expected[_key(pdb)] if pdb.expected_pods is None else pdb.expected_pods

    def allowed(self, pdb: PdbRecord) -> int:
        """The evictions that the budget allows now: by its status, else computed."""
        if pdb.disruptions_allowed is not None:
            return pdb.disruptions_allowed
        return disruptions_allowed(pdb, expected=self.expected(pdb), healthy=self._healthy[_key(pdb)])

    def _is_healthy(self, pdb: PdbRecord) -> bool:
        """Whether the eviction API allows evicting unready pods (unhealthyPodEvictionPolicy IfHealthyBudget)."""
        healthy, desired = self._health(pdb)
        return desired is not None and healthy >= desired > 0

    def _health(self, pdb: PdbRecord) -> tuple[int, int | None]:
        """How many of its pods are healthy, and how many must be: by its status, else counted."""
        healthy = self._healthy[_key(pdb)] if pdb.current_healthy is None else pdb.current_healthy
        return healthy, desired_healthy(pdb, self.expected(pdb)) if pdb.desired_healthy is None else pdb.desired_healthy

    def answer(self, pdb: PdbRecord) -> tuple[int, int, tuple[int, int | None]]:
        """Everything that verdicts read of a budget besides the pod and the record."""
        return self.expected(pdb), self.allowed(pdb), self._health(pdb)

    def verdict(self, pod: PodRecord) -> Verdict:
        """Whether the API server would refuse the eviction (02 §4.4)."""
        return self.verdict_by(self.matching(pod), pod)

    def verdict_by(self, matching: tuple[PdbRecord, ...], pod: PodRecord) -> Verdict:
        """The verdict of the PDBs that select the pod."""
        rule = Rule.POD_DISRUPTION_BUDGET
        if not matching:
            return allow(rule, pod.object, "no PodDisruptionBudget selects it")
        if not asks_budgets(pod):
            why = "has not started" if pod.active else "is finished or terminating"
            return allow(rule, pod.object, f"the pod {why}")
        if pod.tolerates_disrupted or (pod.owner is not Owner.NONE and pod.owner & Owner.NODE):  # flags are slow
            return allow(rule, pod.object, "the pod is never evicted: it is a mirror pod or tolerates the taint")
        if len(matching) > 1:
            named = ", ".join(pdb.name for pdb in matching)
            return refuse(rule, pod.object, f"{len(matching)} PodDisruptionBudgets select it, at most one may: {named}")
        pdb = matching[0]
        if pod.ready is not True:
            if pdb.always_allow:
                return allow(rule, pod.object, f"{pdb.name} always allows evicting pods that are not ready")
            if self._is_healthy(pdb):
                return allow(rule, pod.object, f"{pdb.name} allows it: the pod is not ready, and enough others are")
        allowed = self.allowed(pdb)
        if allowed > 0:
            return allow(rule, pod.object, f"{pdb.name} allows {allowed} more")
        never = never_allows(pdb, self.expected(pdb))
        why = f"{pdb.name} can never allow it: {never}" if never else self._why_not_now(pdb)
        return refuse(rule, pod.object, why, transient=never is None)

    def _why_not_now(self, pdb: PdbRecord) -> str:
        healthy, desired = self._health(pdb)
        expected = self.expected(pdb)
        known = pdb.current_healthy is not None or _key(pdb) in self._expected
        if desired is None or not known or healthy > desired:  # its controller has not written its allowance yet
            return f"{pdb.name} allows no disruption now"
        missing = desired - healthy + 1
        more = f"{missing} more {'is' if missing == 1 else 'are'}"
        return (
            f"{pdb.name} allows no disruption now: {healthy} of {expected} pods are healthy, and {desired} must be; "
            f"it allows one when {more} healthy"
        )
