"""Places pods in one solve, by shape, with the answers of the reference engine (08 §6).

Pods that are alike follow one another, and what `searching` learns from the first holds for the next. The reasons of
refusals come from the reference engine.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dovetail.api import names
from dovetail.scheduling import reference
from dovetail.scheduling.existing_nodes import ExistingNode
from dovetail.scheduling.fast.bits import Bits
from dovetail.scheduling.fast.drafting import NodeDrafts
from dovetail.scheduling.fast.groups import CountedGroup, UndoLog
from dovetail.scheduling.fast.searching import ConsultedGroup, FastDraft, Search
from dovetail.scheduling.fast.shapes import PodShape, RelaxationLevel
from dovetail.scheduling.host_ports import conflict
from dovetail.scheduling.new_nodes import Limits, Supply, use_up
from dovetail.scheduling.placement import RESOURCE_CLAIMS, Origin, PodError, PodInfo, Solution
from dovetail.scheduling.refusals import PlacementDeferred, Refusal, pod_error, solution
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.topology import Topology
from dovetail.scheduling.volumes import over_limit

if TYPE_CHECKING:
    from dovetail.scheduling.fast.world import World


class PodRun(msgspec.Struct, eq=False):
    """Like pods that follow one another in the queue, and the length of the queue when they were last put back."""

    shape: PodShape
    pods: deque[PodInfo] = msgspec.field(default_factory=deque)
    length_when_pushed: int = -1


class PlacementStep(NamedTuple):
    """The result for a pod: a row, a new node, or nothing."""

    pod: PodInfo
    row: int | None
    new: bool = False


class TouchedRow:
    """The free room of a row that has received pods."""

    __slots__ = ("attachments", "free", "placed", "ports")

    def __init__(self, site: ExistingNode) -> None:
        self.free = dict(site.free.items())
        self.ports = site.node.ports
        self.attachments = site.node.attachments
        self.placed: list[PodInfo] = []


class Solve:
    """One question. It changes the counts of the world's groups; `undo` restores them."""

    def __init__(
        self,
        world: "World",
        pods: Sequence[PodInfo],
        hidden: Sequence[int],
        shut: Sequence[int] = (),
        most_new: int | None = None,
    ) -> None:
        self._most_new = most_new
        self._for_candidates: set[int] = set()  # new nodes with pods of candidates
        self._world = world
        self._rows = world.rows
        self._options = world.options
        self._shown = self._rows.open
        for row in (*hidden, *shut):
            self._shown &= ~(1 << row)
        self._touched: dict[int, TouchedRow] = {}
        self.steps: list[PlacementStep] = []
        self._drafting = NodeDrafts(world.tables, world.left, world.reservations, world.options)
        self._ledger = UndoLog()
        self._carriers: list[CountedGroup] = []  # groups whose count of carriers is reduced by one
        self._searches: dict[RelaxationLevel, Search] = {}
        self._order = world.shapes.in_order(pods, world.labels_read)
        self._shapes = list(dict.fromkeys(shape for _, shape in self._order))
        self._groups = {
            rule: world.groups.of(rule) for shape in self._shapes for level in shape.levels for rule, _ in level.rules
        }
        self._own_inverse = {rule: world.groups.inverse(rule) for shape in self._shapes for rule in shape.apart}
        self._move(pods)
        self._inverse = {shape: self._keeping_away(shape) for shape in self._shapes}
        self._selected = {shape: world.groups.about(shape) for shape in self._shapes}
        self._hide(hidden)

    def _move(self, pods: Sequence[PodInfo]) -> None:
        """Pods that move count in no domain."""
        for pod in pods:
            bound = self._world.bound.of_uid.get(pod.uid)
            if bound is None:
                continue
            row, record, kind = bound
            for group in self._world.groups.about(kind):
                self._count(group, row, -1)
            for rule in record.apart:
                group = self._world.groups.inverse(self._world.bound.inverse(rule))
                group.carriers -= 1
                self._carriers.append(group)
                self._count(group, row, -1)

    def _count(self, group: CountedGroup, row: int, number: int) -> None:
        domain = group.domain(row)
        if domain is not None:
            self._ledger.count(group, domain, number)

    def _keeping_away(self, shape: PodShape) -> list[CountedGroup]:
        """The inverse groups with carriers that select the shape."""
        selecting = self._world.groups.keeping_away(shape)
        carried = [group for group in selecting if group.carriers or group.rule in self._own_inverse]
        return sorted(carried, key=lambda group: group.rule.key) if len(carried) > 1 else carried

    def _hide(self, hidden: Sequence[int]) -> None:
        """A hidden node no longer makes its domains known, nor counts for the limits of its pool."""
        inverse = (group for groups in self._inverse.values() for group in groups)
        active = dict.fromkeys((*self._groups.values(), *self._own_inverse.values(), *inverse))
        for row in hidden:
            if not self._rows.open >> row & 1:
                continue
            node = self._rows.nodes[row]
            for group in active:
                domain = None if group.of_hosts else group.domain(row)
                if domain is not None:
                    self._ledger.hide(group, domain)
            for table, left in self._drafting.left.items():
                if table.pool.name == node.pool:
                    use_up(left, node.capacity, -1)

    def undo(self) -> None:
        self._ledger.undo()
        for group in self._carriers:
            group.carriers += 1

    def solution(self, go_on: Callable[[], bool], *, explain: bool, begun: Sequence[PlacementStep] = ()) -> Solution:
        """`begun` has the first steps of another solve, which are reused as far as they hold here."""
        errors = {pod.uid: pod_error(pod, Refusal(RESOURCE_CLAIMS)) for pod in self._pods if pod.resource_claims}
        runs = self._runs()
        length = self._taken_over(runs, begun)
        while runs and runs[0].length_when_pushed != length:  # else a whole round has placed nothing
            run = runs[0]
            if not go_on() or self._too_many_new:
                break
            if self._place(run.shape, run.pods[0]):
                run.pods.popleft()
                length -= 1
                if not run.pods:
                    runs.popleft()
            else:  # the same holds for all like pods
                self.steps.append(PlacementStep(run.pods[0], None))
                run.length_when_pushed = length
                runs.rotate(-1)
        self._explain(runs, errors, explain=explain)
        placed = ((self._rows.nodes[row], self._touched[row].placed) for row in sorted(self._touched))
        drafting = self._drafting
        return solution(self._pods, placed, drafting.drafts, errors, self._options, finish=drafting.finished)

    def _taken_over(self, runs: deque[PodRun], begun: Sequence[PlacementStep]) -> int:
        """Reuse the steps of another solve. Returns the number of pods that remain (08 §6.6).

        A pod without rules between pods goes to the same node as before, unless that node is hidden now: the nodes that
        refused it before still do.
        """
        length = sum(len(run.pods) for run in runs)
        for pod, row, new in begun:
            run = runs[0] if runs else None
            if run is None or run.pods[0] is not pod or run.length_when_pushed >= 0 or new:
                break
            if self._inverse[run.shape] or any(level.rules for level in run.shape.levels):
                break
            if row is None:
                if any(self._drafting.left.values()):  # hidden nodes leave more of a limit
                    break
                run.length_when_pushed = length
                runs.rotate(-1)
                continue
            if not self._shown >> row & 1:
                break
            self._put(run.shape, run.pods.popleft(), row)
            length -= 1
            if not run.pods:
                runs.popleft()
        return length

    @property
    def _too_many_new(self) -> bool:
        return self._most_new is not None and len(self._for_candidates) > self._most_new

    @property
    def _pods(self) -> Iterator[PodInfo]:
        return (pod for pod, _ in self._order)

    def _runs(self) -> deque[PodRun]:
        runs: deque[PodRun] = deque()
        for pod, shape in self._order:
            if pod.resource_claims:
                continue
            if not runs or runs[-1].shape is not shape:
                runs.append(PodRun(shape))
            runs[-1].pods.append(pod)
        return runs

    def _place(self, shape: PodShape, pod: PodInfo) -> bool:
        for level in shape.levels:
            search = self._searches.get(level)
            if search is None:
                search = self._searches[level] = Search(shape, level, self._consulted(shape, level))
            try:
                if self._on_a_node(search, pod) or self._on_a_new_node(search, pod):
                    return True
            except PlacementDeferred:
                return False  # relaxing does not help
        return False

    def _consulted(self, shape: PodShape, level: RelaxationLevel) -> list[ConsultedGroup]:
        if not (level.rules or self._inverse[shape]):
            return []
        strict = level.wish.strict
        inverse = ((group, group.rule.key, group.rule.selects(shape.pod)) for group in self._inverse[shape])
        own = ((self._groups[rule], rule.key, itself) for rule, itself in level.rules)
        return [ConsultedGroup(group, key, strict.get(key), itself) for group, key, itself in (*inverse, *own)]

    def _on_a_node(self, search: Search, pod: PodInfo) -> bool:
        """Put the pod on the first row that takes it."""
        only = self._where_others_are(search) if search.together else None
        best = -1
        for walk in search.walks(self._rows):
            left = walk.left & self._shown
            passed = 0  # rows that may take it later
            while left:
                lowest = left & -left
                row = lowest.bit_length() - 1
                if -1 < best < row:
                    break
                if self._takes(search, row):
                    if only is None or only & lowest:
                        best = row
                        break
                    passed |= lowest
                left ^= lowest
            walk.left = left | passed
        if best < 0:
            return False
        self._put(search.shape, pod, best)
        return True

    def _where_others_are(self, search: Search) -> Bits | None:
        """The rows of the hosts where the pod must join others; None: any row."""
        common: Bits | None = None
        for consulted in search.together:
            if consulted.group.in_reach(consulted.pod_allows):
                hosts = self._rows.column(names.HOSTNAME_LABEL).of
                rows = 0
                for host in consulted.group.counts:
                    rows |= hosts.get(host, 0)
            elif consulted.selects_itself:
                continue
            else:
                rows = 0
            common = rows if common is None else common & rows
        return common

    def _takes(self, search: Search, row: int) -> bool:
        """Whether the row has room, ports and attachments. A refusal is final."""
        touched = self._touched.get(row)
        if touched is not None:
            free = touched.free
            for name, amount in search.shape.request:
                if free.get(name, 0) < amount:
                    return False
        if search.limits:
            host = self._rows.hosts[row]
            for counts, most in search.limits:
                if counts.get(host, 0) > most:
                    return False
        pod = search.shape.pod
        if not (pod.ports or pod.volumes.attachments):
            return True
        node = self._rows.nodes[row]
        if conflict(pod.ports, (touched or node).ports):
            return False
        return over_limit(pod.volumes.attachments, (touched or node).attachments, node.attach_limits) is None

    def _put(self, shape: PodShape, pod: PodInfo, row: int) -> None:
        touched = self._touched.get(row)
        if touched is None:
            touched = self._touched[row] = TouchedRow(self._world.site(row))
        for name, amount in shape.request:
            touched.free[name] -= amount
        touched.ports |= pod.ports
        touched.attachments |= pod.volumes.attachments
        touched.placed.append(pod)
        self.steps.append(PlacementStep(pod, row))
        for group in self._selected[shape]:
            self._count(group, row, 1)
        for rule in shape.apart:
            self._count(self._own_inverse[rule], row, 1)

    def _on_a_new_node(self, search: Search, pod: PodInfo) -> bool:
        """Raises Waiting."""
        draft = self._drafting.join(search, pod) or self._drafting.open(search, pod)
        if draft is None:
            return False
        self.steps.append(PlacementStep(pod, None, new=True))
        if pod.origin is Origin.CANDIDATE:
            self._for_candidates.add(draft.index)
        for group in self._selected[search.shape]:
            if draft.state.table.passes(draft.state, group.rule.nodes, draft.host):
                self._record(group, draft)
        for rule in search.shape.apart:
            self._record(self._own_inverse[rule], draft)
        return True

    def _record(self, group: CountedGroup, draft: FastDraft) -> None:
        if group.of_hosts:
            self._ledger.count(group, draft.host)
            return
        for domain in group.recorded(draft.state.table.allowed(draft.state, group.rule.key), there=False):
            self._ledger.count(group, domain)

    def _explain(self, runs: deque[PodRun], errors: dict[str, PodError], *, explain: bool) -> None:
        """Add the errors of the remaining pods, with the reasons of the reference engine."""
        why: Refusal | PlacementDeferred
        engine = self._reference() if explain and any(run.length_when_pushed >= 0 for run in runs) else None
        if self._too_many_new:
            why = Refusal(f"the pods would need more new nodes than {self._most_new}")
            new = (pod for index in self._for_candidates for pod in self._drafting.drafts[index].pods)
            left = (pod for run in runs for pod in run.pods)
            errors.update((pod.uid, pod_error(pod, why)) for pod in (*new, *left))
            return
        for run in runs:
            if run.length_when_pushed < 0:
                why = PlacementDeferred("it was not reached in the time given")
            elif engine is None:
                why = Refusal()  # not asked
            else:
                why = _refusal(engine, run.shape.pod)
            errors.update((pod.uid, pod_error(pod, why)) for pod in run.pods)

    def _reference(self) -> reference.Engine:
        world = self._world
        sites = []
        for row, node in enumerate(self._rows.nodes):
            if not self._shown >> row & 1:
                continue
            site = self._world.site(row)
            touched = self._touched.get(row)
            if touched is not None:
                site = ExistingNode(node, site.labels, Resources(touched.free))
                site.ports, site.attachments = touched.ports, touched.attachments
            sites.append(site)
        inverse = {group.rule: group for groups in self._inverse.values() for group in groups}
        ordered = {rule: inverse[rule] for rule in sorted(inverse, key=lambda rule: rule.key)}
        supplies = [
            Supply(table.pool, table.options, Limits(table.pool, self._drafting.left[table], world.in_use[table]))
            for table in world.tables
        ]
        topology, made = Topology(self._groups, ordered), len(self._drafting.drafts)
        return reference.Engine(self._options, topology, sites, supplies, self._drafting.reservations, made=made)


def _refusal(engine: reference.Engine, pod: PodInfo) -> Refusal | PlacementDeferred:
    try:
        engine.place(pod)
    except (Refusal, PlacementDeferred) as refusal:
        return refusal
    raise AssertionError(f"{pod} has a place that was not found")
