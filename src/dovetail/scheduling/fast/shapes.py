"""Which pods are alike to the engine, and what does it ask on their behalf at each step of relaxation (08 §5.1)?"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dovetail.api import names
from dovetail.scheduling.fast.rows import Asked
from dovetail.scheduling.problem import Pod, Shape, labels_of, labels_read, needs
from dovetail.scheduling.reference import Wish, wishes
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.topology import apart, as_asked


class Level:
    """One step of relaxation. `on_new` and `places` are what it asks of a new node, and of where its volumes can be.

    No new node has the name of a host that a pod could ask for.
    """

    __slots__ = ("asked", "on_new", "places", "rules", "wish")

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.rules = tuple((rule, rule.selects(wish.pod)) for rule in as_asked(wish.rules))
        self.asked = Asked(wish.full, wish.pod.volumes.alternatives, wish.tolerations, wish.pod.request)
        self.on_new = next(_on_any_host((wish.full,)), None)
        self.places = tuple(_on_any_host(wish.pod.volumes.alternatives))


def _on_any_host(wanted: Iterable[Requirements]) -> Iterator[Requirements]:
    """Without those that ask for a certain host."""
    for each in wanted:
        if names.HOSTNAME_LABEL not in each:
            yield each
        elif each.get(names.HOSTNAME_LABEL).has("new node"):
            yield each.without(names.HOSTNAME_LABEL)


class PodShape:
    """Pods that are alike; `pod` stands for all of them, with no labels but those that somebody reads."""

    __slots__ = ("apart", "levels", "pod", "request")

    def __init__(self, pod: Pod, *, respect_preferences: bool) -> None:
        self.pod = pod
        self.request = tuple(pod.request.items())
        self.levels = [Level(wish) for wish in wishes(pod, respect_preferences=respect_preferences)]
        self.apart = tuple(rule.inverse() for rule in apart(pod))


class _Needs:
    """What pods ask for, their labels aside; `read`: the labels of other pods that their rules ask for."""

    __slots__ = ("of_labels", "read")

    def __init__(self, pod: Pod) -> None:
        self.read = labels_read(pod.all_rules)
        self.of_labels: dict[tuple[tuple[str, str], ...], PodShape] = {}


class Shapes:
    """All that were met."""

    def __init__(self, *, respect_preferences: bool) -> None:
        self._respect_preferences = respect_preferences
        self._pods: dict[str, tuple[Pod, _Needs]] = {}
        self._needs: dict[Shape, _Needs] = {}

    def of(self, pods: Sequence[Pod], read: frozenset[str]) -> list[PodShape]:
        """`read`: the labels that rules of bound pods ask for."""
        found = [self._needs_of(pod) for pod in pods]
        read = read.union(*{each.read for each in found})
        return [self._shape(pod, each, read) for pod, each in zip(pods, found, strict=True)]

    def _needs_of(self, pod: Pod) -> _Needs:
        known = self._pods.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        key = needs(pod)
        found = self._needs.get(key)
        if found is None:
            found = self._needs[key] = _Needs(pod)
        self._pods[pod.uid] = (pod, found)
        return found

    def _shape(self, pod: Pod, needs_: _Needs, read: frozenset[str]) -> PodShape:
        labels = labels_of(pod, read)
        found = needs_.of_labels.get(labels)
        if found is None:
            alike = msgspec.structs.replace(pod, labels=dict(labels))
            found = needs_.of_labels[labels] = PodShape(alike, respect_preferences=self._respect_preferences)
        return found

    def forget(self, alive: Iterable[str]) -> None:
        """All but these pods, by UID."""
        kept = set(alive)
        self._pods = {uid: known for uid, known in self._pods.items() if uid in kept}
        used = {id(known[1]) for known in self._pods.values()}
        self._needs = {key: each for key, each in self._needs.items() if id(each) in used}
