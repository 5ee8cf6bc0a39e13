"""Groups pods that are alike to the engine, with the steps of their relaxation (08 §5.1)."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dovetail.api import names
from dovetail.scheduling.fast.rows import NodeQuery
from dovetail.scheduling.placement import PodInfo, Rank, SharedNeeds, in_order, labels_of, labels_read, needs, rank
from dovetail.scheduling.relaxation import RelaxedRequest, wishes
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.topology import apart, as_asked


class RelaxationLevel:
    """One step of relaxation. `on_new` is what it asks of a new node, `places` where its volumes can be.

    No new node has a host name that a pod can ask for.
    """

    __slots__ = ("asked", "on_new", "places", "rules", "wish")

    def __init__(self, wish: RelaxedRequest) -> None:
        self.wish = wish
        self.rules = tuple((rule, rule.selects(wish.pod)) for rule in as_asked(wish.rules))
        self.asked = NodeQuery(wish.full, wish.pod.volumes.alternatives, wish.tolerations, wish.pod.request)
        self.on_new = next(_on_any_host((wish.full,)), None)
        self.places = tuple(_on_any_host(wish.pod.volumes.alternatives))


def _on_any_host(wanted: Iterable[Requirements]) -> Iterator[Requirements]:
    """Without those that ask for a certain host."""
    for requirements in wanted:
        if names.HOSTNAME_LABEL not in requirements:
            yield requirements
        elif requirements.get(names.HOSTNAME_LABEL).has("new node"):
            yield requirements.without(names.HOSTNAME_LABEL)


class PodShape:
    """Pods that are alike; `pod` represents them, with the labels that some rule reads."""

    __slots__ = ("apart", "levels", "pod", "request")

    def __init__(self, pod: PodInfo, *, respect_preferences: bool) -> None:
        self.pod = pod
        self.request = tuple(pod.request.items())
        self.levels = [RelaxationLevel(wish) for wish in wishes(pod, respect_preferences=respect_preferences)]
        self.apart = tuple(rule.inverse() for rule in apart(pod))


class _Needs(msgspec.Struct, eq=False):
    """What pods ask for, without their labels; `read` has the labels that their rules select by."""

    read: frozenset[str]
    of_labels: dict[tuple[tuple[str, str], ...], PodShape] = {}


class _CachedShape(msgspec.Struct, eq=False):
    """A pod, with its shape for the labels that were read last."""

    pod: PodInfo
    needs: _Needs
    rank: Rank
    read: frozenset[str] | None = None
    shape: PodShape | None = None


class Shapes:
    def __init__(self, *, respect_preferences: bool) -> None:
        self.most_at_once = 0  # the most pods in one question
        self._respect_preferences = respect_preferences
        self._pods: dict[str, _CachedShape] = {}
        self._needs: dict[SharedNeeds, _Needs] = {}
        self._reads: dict[frozenset[str], frozenset[str]] = {}  # interned

    def __len__(self) -> int:
        return len(self._pods)

    def in_order(self, pods: Sequence[PodInfo], read: frozenset[str]) -> list[tuple[PodInfo, PodShape]]:
        """The pods in the order of placement. `read` has the labels that rules of bound pods select by."""
        cached_shapes = [self._known(pod) for pod in pods]
        return in_order(pods, self._shapes(cached_shapes, read), [cached.rank for cached in cached_shapes])

    def of(self, pods: Sequence[PodInfo], read: frozenset[str]) -> list[PodShape]:
        return self._shapes([self._known(pod) for pod in pods], read)

    def _shapes(self, pods: Sequence[_CachedShape], read: frozenset[str]) -> list[PodShape]:
        self.most_at_once = max(self.most_at_once, len(pods))
        read = read.union(*{pod.needs.read for pod in pods})
        read = self._reads.setdefault(read, read)
        return [pod.shape if pod.read is read and pod.shape else self._shape(pod, read) for pod in pods]

    def _known(self, pod: PodInfo) -> _CachedShape:
        cached = self._pods.get(pod.uid)
        if cached is not None and cached.pod is pod:
            return cached
        key = needs(pod)
        needs_ = self._needs.get(key)
        if needs_ is None:
            needs_ = self._needs[key] = _Needs(labels_read(pod.all_rules))
        cached = self._pods[pod.uid] = _CachedShape(pod, needs_, rank(pod))
        return cached

    def _shape(self, cached: _CachedShape, read: frozenset[str]) -> PodShape:
        labels = labels_of(cached.pod, read)
        shape = cached.needs.of_labels.get(labels)
        if shape is None:
            alike = msgspec.structs.replace(cached.pod, labels=dict(labels))
            shape = PodShape(alike, respect_preferences=self._respect_preferences)
            cached.needs.of_labels[labels] = shape
        cached.read, cached.shape = read, shape
        return shape
