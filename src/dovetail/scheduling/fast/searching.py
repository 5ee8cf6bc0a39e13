"""Where has a shape been looked for already, at one step of relaxation, during one solve (08 §6.3, §9)?

Whatever has refused because of room, ports, labels or pods on the same host refuses for ever, since all of that only
grows scarcer during a solve. So rows are walked once, and new nodes that have refused for good are dropped.
"""

from heapq import heapify, heappop, heappush

from dovetail.scheduling.fast.bits import Bits
from dovetail.scheduling.fast.groups import CountedGroup
from dovetail.scheduling.fast.rows import Rows
from dovetail.scheduling.fast.shapes import PodShape, RelaxationLevel
from dovetail.scheduling.fast.tables import NewNodeState, Table
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts
from dovetail.scheduling.placement import PodInfo, TopologyRuleKind
from dovetail.scheduling.requirements import Requirement


class FastDraft:
    """A node to be made, as far as its pods have decided it."""

    __slots__ = ("held", "host", "index", "needed", "pods", "ports", "relaxed", "state", "types")

    def __init__(self, index: int, state: NewNodeState, types: Bits) -> None:
        self.index = index
        self.host = f"new node {index + 1}"  # no label can be like that
        self.state = state
        self.types = types
        self.needed: dict[str, int] = {}
        self.ports: HostPorts = NO_PORTS
        self.pods: list[PodInfo] = []
        self.held: frozenset[str] = frozenset()
        self.relaxed = False


class ConsultedGroup:
    """A group that is asked about a pod."""

    __slots__ = ("group", "key", "pod_allows", "selects_itself")

    def __init__(self, group: CountedGroup, pod_allows: Requirement, selects_itself: bool) -> None:
        self.group = group
        self.key = group.rule.key
        self.pod_allows = pod_allows
        self.selects_itself = selects_itself


class Walk:
    """Rows with the same domains, without those that have refused for good."""

    __slots__ = ("domains", "left")

    def __init__(self, domains: tuple[str, ...], rows: Bits) -> None:
        self.domains = domains
        self.left = rows


class Search:
    """One shape at one step."""

    __slots__ = ("_joining", "_keys", "_walks", "elsewhere", "level", "limits", "shape", "together")

    def __init__(self, shape: PodShape, level: RelaxationLevel, consulted: list[ConsultedGroup]) -> None:
        self.shape = shape
        self.level = level
        # Of rules that pods on a host can only make stricter: the counts, and how many there may be.
        self.limits: list[tuple[dict[str, int], int]] = []
        self.together: list[ConsultedGroup] = []
        self.elsewhere: list[ConsultedGroup] = []
        for each in consulted:
            if not each.group.of_hosts:
                self.elsewhere.append(each)
            elif each.group.rule.kind is TopologyRuleKind.TOGETHER:
                self.together.append(each)
            else:
                self.limits.append((each.group.counts, each.group.most_on_host(each.selects_itself)))
        self._keys = tuple(dict.fromkeys(each.key for each in self.elsewhere)) if self.elsewhere else ()
        self._walks: list[Walk] | None = None
        self._joining: JoinableDrafts | None = None

    @property
    def joining(self) -> "JoinableDrafts":
        """Most pods go to a node that is there, and never ask."""
        if self._joining is None:
            self._joining = JoinableDrafts()
        return self._joining

    def walks(self, rows: Rows) -> list[Walk]:
        """Those whose domains other pods leave open now."""
        if self._walks is None:
            self._walks = [Walk(*each) for each in rows.candidates_by(self.level.asked, self._keys)]
        if not self.elsewhere:
            return self._walks
        open_ = [
            (self._keys.index(each.key), each.group.allowed(each.pod_allows, each.selects_itself).names)
            for each in self.elsewhere
        ]
        return [walk for walk in self._walks if all(walk.domains[place] in names for place, names in open_)]


class JoinableDrafts:
    """The nodes to be made that may take pods of a search: of each state a heap by number of pods, of equals by age."""

    __slots__ = ("_live", "_seen", "_version", "heaps", "hopeless", "then")

    def __init__(self) -> None:
        self.hopeless: set[Table] = set()
        self.heaps: dict[NewNodeState, list[tuple[int, int]]] = {}
        self.then: dict[NewNodeState, list[NewNodeState]] = {}
        self._live: list[FastDraft] = []
        self._seen = 0
        self._version = -1

    def refresh(self, drafts: list[FastDraft], version: int) -> None:
        """Order them again if others have put pods on them."""
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
        """The draft, which was taken from its heap, has one more pod."""
        self._version = version
        heappush(self.heaps.setdefault(draft.state, []), (len(draft.pods), draft.index))

    def opened(self, draft: FastDraft, version: int) -> None:
        """So has a new one."""
        self._live.append(draft)
        self._seen += 1
        self.moved(draft, version)

    def dropped(self, dead: set[int]) -> None:
        """These will never take one; they are in no heap any more."""
        if dead:
            self._live = [draft for draft in self._live if draft.index not in dead]


def pop(heap: list[tuple[int, int]]) -> int:
    """The new node with the fewest pods, of equals the oldest."""
    return heappop(heap)[1]
