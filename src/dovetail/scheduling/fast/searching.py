"""Remembers where a shape has been tried during one solve, at one step of relaxation (08 §6.3, §9).

Room, ports, labels and pods on a host only become scarcer during a solve. A node that has refused for one of these
refuses for good, so rows are walked once, and such new nodes are dropped.
"""

from heapq import heapify, heappop, heappush

import msgspec

from dovetail.scheduling.fast.bits import Bits
from dovetail.scheduling.fast.groups import CountedGroup
from dovetail.scheduling.fast.rows import Rows
from dovetail.scheduling.fast.shapes import PodShape, RelaxationLevel
from dovetail.scheduling.fast.tables import NewNodeState, Table
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts
from dovetail.scheduling.placement import PodInfo, TopologyRuleKind
from dovetail.scheduling.requirements import Requirement


class FastDraft(msgspec.Struct, eq=False):
    """A new node as its pods have narrowed it so far."""

    index: int
    state: NewNodeState
    types: Bits
    needed: dict[str, int] = {}
    ports: HostPorts = NO_PORTS
    pods: list[PodInfo] = []
    held: frozenset[str] = frozenset()
    relaxed: bool = False
    host: str = ""

    def __post_init__(self) -> None:
        self.host = f"new node {self.index + 1}"  # not a possible label value


class ConsultedGroup(msgspec.Struct, eq=False):
    """A group that has a say about a pod."""

    group: CountedGroup
    key: str
    pod_allows: Requirement
    selects_itself: bool


class Walk(msgspec.Struct, eq=False):
    """Rows with the same domains, without those that have refused for good."""

    domains: tuple[str, ...]
    left: Bits


class Search:
    """One shape at one step of relaxation."""

    __slots__ = ("_joining", "_keys", "_walks", "elsewhere", "level", "limits", "shape", "together")

    def __init__(self, shape: PodShape, level: RelaxationLevel, consulted: list[ConsultedGroup]) -> None:
        self.shape = shape
        self.level = level
        # Rules about hosts that only become stricter: the counts, and the most before one more.
        self.limits: list[tuple[dict[str, int], int]] = []
        self.together: list[ConsultedGroup] = []
        self.elsewhere: list[ConsultedGroup] = []
        for rule in consulted:
            if not rule.group.of_hosts:
                self.elsewhere.append(rule)
            elif rule.group.rule.kind is TopologyRuleKind.TOGETHER:
                self.together.append(rule)
            else:
                self.limits.append((rule.group.counts, rule.group.most_on_host(rule.selects_itself)))
        self._keys = tuple(dict.fromkeys(rule.key for rule in self.elsewhere)) if self.elsewhere else ()
        self._walks: list[Walk] | None = None
        self._joining: JoinableDrafts | None = None

    @property
    def joining(self) -> "JoinableDrafts":
        """Created on first use: most pods go to an existing node."""
        if self._joining is None:
            self._joining = JoinableDrafts()
        return self._joining

    def walks(self, rows: Rows) -> list[Walk]:
        """The walks in domains that the rules between pods allow now."""
        if self._walks is None:
            self._walks = [Walk(*candidates) for candidates in rows.candidates_by(self.level.asked, self._keys)]
        if not self.elsewhere:
            return self._walks
        open_ = [
            (self._keys.index(rule.key), rule.group.allowed(rule.pod_allows, rule.selects_itself).names)
            for rule in self.elsewhere
        ]
        return [walk for walk in self._walks if all(walk.domains[place] in names for place, names in open_)]


class JoinableDrafts:
    """The new nodes that may take pods of a search: for each state a heap by number of pods, then age."""

    __slots__ = ("_live", "_seen", "_version", "heaps", "hopeless", "then")

    def __init__(self) -> None:
        self.hopeless: set[Table] = set()
        self.heaps: dict[NewNodeState, list[tuple[int, int]]] = {}
        self.then: dict[NewNodeState, list[NewNodeState]] = {}
        self._live: list[FastDraft] = []
        self._seen = 0
        self._version = -1

    def refresh(self, drafts: list[FastDraft], version: int) -> None:
        """Rebuild the heaps if other searches have added pods."""
        if self._version != version:
            self._version = version
            self._live += drafts[self._seen :]
            self._seen = len(drafts)
            self.heaps = {}
            for draft in self._live:
                self.heaps.setdefault(draft.state, []).append((len(draft.pods), draft.index))
            for heap in self.heaps.values():
                heapify(heap)

    def moved(self, draft: FastDraft, version: int) -> None:
        """Put a draft back with one more pod."""
        self._version = version
        heappush(self.heaps.setdefault(draft.state, []), (len(draft.pods), draft.index))

    def opened(self, draft: FastDraft, version: int) -> None:
        self._live.append(draft)
        self._seen += 1
        self.moved(draft, version)

    def dropped(self, dead: set[int]) -> None:
        """Forget drafts that will never take a pod. They are in no heap."""
        if dead:
            self._live = [draft for draft in self._live if draft.index not in dead]


def pop(heap: list[tuple[int, int]]) -> int:
    """The new node with the fewest pods, then the oldest."""
    return heappop(heap)[1]
