"""Adds pods to new nodes and narrows their instance types (05 §9, 08 §6.5)."""

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.api import names
from dovetail.scheduling import new_nodes
from dovetail.scheduling.fast.bits import bits_where
from dovetail.scheduling.fast.searching import FastDraft, Search, pop
from dovetail.scheduling.fast.tables import NewNodeState, Table
from dovetail.scheduling.host_ports import conflict
from dovetail.scheduling.new_nodes import Reservations, use_up
from dovetail.scheduling.placement import NewClaim, PodInfo, SchedulingOptions
from dovetail.scheduling.refusals import PlacementDeferred, Refusal
from dovetail.scheduling.requirements import of_labels
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.taints import untolerated


class NodeDrafts:
    """All new nodes of one solve. `left` has what remains of each pool's limits."""

    def __init__(
        self,
        tables: Sequence[Table],
        left: Mapping[Table, Mapping[str, int]],
        reservations: Reservations,
        options: SchedulingOptions,
    ) -> None:
        self._tables = tables
        self._options = options
        self.left = {table: dict(amounts) for table, amounts in left.items()}
        self._reserving = bool(reservations)
        self.reservations = reservations.copy()
        self.drafts: list[FastDraft] = []
        self._version = 0  # grows with each pod on a draft

    def join(self, search: Search, pod: PodInfo) -> FastDraft | None:
        """The new node with the fewest pods that takes the pod."""
        if not self.drafts:
            return None
        joining = search.joining
        joining.refresh(self.drafts, self._version)
        then = {state: self._then(search, state) for state in joining.heaps}
        aside: list[tuple[int, int]] = []
        dead: set[int] = set()
        taken: FastDraft | None = None
        while taken is None:
            tops = [(heap[0], state) for state, heap in joining.heaps.items() if heap and then[state]]
            if not tops:
                break
            _, state = min(tops, key=lambda top: top[0])
            draft = self.drafts[pop(joining.heaps[state])]
            try:
                joined = self._joined(search, draft, then[state])
            except PlacementDeferred:
                joined = True
            if isinstance(joined, FastDraft):
                self._settle(draft, joined, pod)
                taken = draft
            elif joined:
                aside.append((len(draft.pods), draft.index))
            else:
                dead.add(draft.index)
        joining.dropped(dead)
        for _, index in aside:
            joining.moved(self.drafts[index], self._version)
        if taken is not None:
            joining.moved(taken, self._version)
        return taken

    def _then(self, search: Search, state: NewNodeState) -> list[NewNodeState]:
        """The states of a new node after it takes the pod, in the order to try; empty if it cannot."""
        states = search.joining.then.get(state)
        if states is None:
            states = search.joining.then[state] = self._before_others(search, state)
        if not search.elsewhere:
            return states
        return [pinned for then in states if (pinned := _pinned(search, then)) is not None]

    def _before_others(self, search: Search, state: NewNodeState) -> list[NewNodeState]:
        """Like `_then`, without the rules between pods."""
        table, level = state.table, search.level
        if level.on_new is None or untolerated(level.wish.tolerations, table.pool.taints) is not None:
            return []
        with_pod = table.narrowed(state, level.on_new)
        if with_pod is None:
            return []
        states = (table.narrowed(with_pod, place) for place in level.places)
        return [then for then in states if then is not None]

    def _joined(self, search: Search, draft: FastDraft, then: list[NewNodeState]) -> FastDraft | bool:
        """The new node with the pod; True: it may take the pod later, False: never."""
        for counts, most in search.limits:
            if counts.get(draft.host, 0) > most:
                return False
        ports = search.shape.pod.ports
        if ports and conflict(ports, draft.ports):
            return False
        table = draft.state.table
        needed = dict(draft.needed)
        for name, amount in search.shape.request:
            needed[name] = needed.get(name, 0) + amount
        fitting = table.fitting(needed) & draft.types & table.without_ports(ports)
        if not fitting:
            return False
        if not all(
            consulted.group.lets_onto(draft.host, consulted.pod_allows, consulted.selects_itself)
            for consulted in search.together
        ):
            return True
        if not any(fitting & table.suitable(with_pod) for with_pod in search.joining.then[draft.state]):
            return False
        for state in then:
            types = fitting & table.suitable(state)
            if types:
                joined = FastDraft(draft.index, state, types, needed, draft.ports | ports, relaxed=draft.relaxed)
                if not (state.asks_for_values or self._reserving):
                    return joined
                try:
                    return self._decided(search, draft, joined)
                except Refusal:
                    continue
        return True

    def _decided(self, search: Search, draft: FastDraft, joined: FastDraft) -> FastDraft:
        """Raises Refusal and Waiting."""
        pods = (*draft.pods, search.shape.pod)
        asked = msgspec.structs.replace(self._as_drafted(joined), pods=pods)
        decided = new_nodes.decided(asked, draft.held, self._options, self.reservations)
        table = draft.state.table
        joined.state = table.state(decided.requirements.without(names.HOSTNAME_LABEL))
        type_names = {type_.name for type_ in decided.types}
        joined.types &= bits_where(type_.name in type_names for _, type_ in table.types)
        joined.held, joined.relaxed = decided.held, decided.min_values_relaxed
        return joined

    def _as_drafted(self, draft: FastDraft) -> new_nodes.Draft:
        table = draft.state.table
        return new_nodes.Draft(
            pool=table.pool,
            requirements=draft.state.requirements & of_labels({names.HOSTNAME_LABEL: draft.host}),
            options=table.as_options(draft.types),
            pods=tuple(draft.pods),
            requested=Resources(draft.needed),
            ports=draft.ports,
            held=draft.held,
            min_values_relaxed=draft.relaxed,
        )

    def open(self, search: Search, pod: PodInfo) -> FastDraft | None:
        """Another new node for the pod. Raises Waiting."""
        for table in self._tables:
            if table in search.joining.hopeless:
                continue
            left = self.left[table]
            types = table.affordable(left) if left.get(names.NODES_RESOURCE, 1) > 0 else 0
            empty = FastDraft(len(self.drafts), table.start, types)
            joined = self._joined_waiting(search, empty)
            if isinstance(joined, FastDraft):
                self.drafts.append(empty)
                self._settle(empty, joined, pod)
                if left:
                    use_up(left, Resources(table.largest(empty.types)))
                search.joining.opened(empty, self._version)
                return empty
            if not (search.elsewhere or search.together or self._reserving):
                search.joining.hopeless.add(table)
        return None

    def _joined_waiting(self, search: Search, empty: FastDraft) -> FastDraft | bool:
        then = self._then(search, empty.state) if empty.types else []
        return self._joined(search, empty, then) if then else False

    def _settle(self, draft: FastDraft, joined: FastDraft, pod: PodInfo) -> None:
        self.reservations.exchange(draft.held, joined.held)
        draft.state, draft.types, draft.needed = joined.state, joined.types, joined.needed
        draft.ports, draft.held, draft.relaxed = joined.ports, joined.held, joined.relaxed
        draft.pods.append(pod)
        self._version += 1

    def finished(self, draft: FastDraft) -> NewClaim:
        """Raises Refusal."""
        state, table = draft.state, draft.state.table
        if self._reserving or state.asks_for_values:
            return new_nodes.finished(self._as_drafted(draft), self._options)
        types, bits = table.bought(state, draft.types, self._options.max_types)
        if not types:
            raise Refusal("of its instance types, none can be bought as all its pods need it")
        return NewClaim(
            pool=table.pool.name,
            pods=tuple(pod.uid for pod in draft.pods),
            requirements=state.requirements,
            types=types,
            requests=Resources(draft.needed) + table.overhead(bits),
            min_values_relaxed=draft.relaxed,
        )


def _pinned(search: Search, state: NewNodeState) -> NewNodeState | None:
    """The state narrowed to the domains that the rules between pods leave."""
    for consulted in search.elsewhere:
        domains = consulted.group.choose(
            consulted.pod_allows, state.table.allowed(state, consulted.key), consulted.selects_itself
        )
        pinned = state.table.pinned(state, consulted.key, domains)
        if pinned is None:
            return None
        state = pinned
    return state
