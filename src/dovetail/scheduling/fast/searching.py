"""Where has a shape been looked for already, at one step of relaxation, during one solve (08 §6.3, §9)?

Whatever has refused because of room, ports, labels or pods on the same host refuses for ever, since all of that only
grows scarcer during a solve. So rows are walked once, and new nodes that have refused for good are dropped.
"""

from heapq import heapify, heappop, heappush

from dovetail.scheduling.fast.bits import Bits
from dovetail.scheduling.fast.groups import Counted
from dovetail.scheduling.fast.rows import Rows
from dovetail.scheduling.fast.shapes import Level, PodShape
from dovetail.scheduling.fast.tables import State, Table
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts
from dovetail.scheduling.problem import Kind, Pod
from dovetail.scheduling.requirements import Requirement


class Draft:
    """A node to be made, as far as its pods have decided it."""

    __slots__ = ("held", "host", "index", "needed", "pods", "ports", "relaxed", "state", "types")

    def __init__(self, index: int, state: State, types: Bits) -> None:
        self.index = index
        self.host = f"new node {index + 1}"  # no label can be like that
        self.state = state
        self.types = types
        self.needed: dict[str, int] = {}
        self.ports: HostPorts = NO_PORTS
        self.pods: list[Pod] = []
        self.held: frozenset[str] = frozenset()
        self.relaxed = False


class Consulted:
    """A group that is asked about a pod."""

    __slots__ = ("group", "key", "pod_allows", "selects_itself")

    def __init__(self, group: Counted, pod_allows: Requirement, selects_itself: bool) -> None:
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

    def __init__(self, shape: PodShape, level: Level, consulted: list[Consulted]) -> None:
        self.shape = shape
        self.level = level
        self.ports = shape.pod.ports
        self.attachments = shape.pod.volumes.attachments
        hosts = [each for each in consulted if each.group.of_hosts]
        # Of rules that pods on a host can only make stricter: the counts, and how many there may be.
        self.limits = [
            (each.group.counts, each.group.most_on_host(each.selects_itself))
            for each in hosts
            if each.group.rule.kind is not Kind.TOGETHER
        ]
        self.together = [each for each in hosts if each.group.rule.kind is Kind.TOGETHER]
        self.elsewhere = [each for each in consulted if not each.group.of_hosts]
        self._keys = tuple(dict.fromkeys(each.key for each in self.elsewhere))
        self._places = [(each, self._keys.index(each.key)) for each in self.elsewhere]
        self._walks: list[Walk] | None = None
        # New nodes
        self.hopeless: set[Table] = set()
        self.heaps: dict[State, list[tuple[int, int]]] = {}
        self.then: dict[State, list[State]] = {}
        self._live: list[Draft] = []
        self._seen = 0
        self._version = -1

    def walks(self, rows: Rows) -> list[Walk]:
        """Those whose domains other pods leave open now."""
        if self._walks is None:
            asked = self.level.asked
            self._walks = [Walk(*each) for each in rows.candidates_by(asked, self._keys)]
        if not self._places:
            return self._walks
        open_ = [
            (place, each.group.allowed(each.pod_allows, each.selects_itself).names) for each, place in self._places
        ]
        return [walk for walk in self._walks if all(walk.domains[place] in names for place, names in open_)]

    def refresh(self, drafts: list[Draft], version: int) -> None:
        """Order the new nodes again if others than this search have put pods on them."""
        if self._version != version:
            self._version = version
            self._live += drafts[self._seen :]
            self._seen = len(drafts)
            self.heaps = {}
            for draft in self._live:
                self.heaps.setdefault(draft.state, []).append((len(draft.pods), draft.index))
            for heap in self.heaps.values():
                heapify(heap)

    def moved(self, draft: Draft, version: int) -> None:
        """The draft, which was taken from its heap, has one more pod of this shape."""
        self._version = version
        heappush(self.heaps.setdefault(draft.state, []), (len(draft.pods), draft.index))

    def opened(self, draft: Draft, version: int) -> None:
        """So has a new one."""
        self._live.append(draft)
        self._seen += 1
        self.moved(draft, version)

    def dropped(self, dead: set[int]) -> None:
        """These will never take it; they are in no heap any more."""
        if dead:
            self._live = [draft for draft in self._live if draft.index not in dead]

    def drop(self, state: State) -> None:
        """Nor will any that is like this."""
        self.dropped({index for _, index in self.heaps.pop(state)})


def pop(heap: list[tuple[int, int]]) -> int:
    """The new node with the fewest pods, of equals the oldest."""
    return heappop(heap)[1]
