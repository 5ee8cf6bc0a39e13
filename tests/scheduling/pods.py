"""Random pods that are to be placed, and pods that have a node already."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from dovetail.scheduling.node_affinity import ParsedNodeAffinity
from dovetail.scheduling.placement import BoundPod, NodeFilter, Origin, PodInfo, TopologyRule, TopologyRuleKind
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements, of_labels, one_of
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED
from dovetail.scheduling.volumes import NO_VOLUMES, Attachment, PodVolumes
from dovetail.values.selector import Selector, make_selector
from tests.scheduling.dice import (
    APPS,
    CAPACITY_TYPE,
    GPU,
    HOST,
    NAMESPACES,
    RACK,
    TIER,
    TRACKS,
    VALUES,
    ZONE,
    Dice,
    amounts,
    random_ports,
    random_requirements,
    random_tolerations,
)

DRIVERS: Final = ("disk.example.com", "file.example.com")
_CLAIMS: Final = ("c1", "c2", "c3", "c4", "c5", "c6")
_START: Final = datetime(2026, 3, 6, tzinfo=UTC)
_CPU: Final = (0, 100, 250, 500, 1000, 1500, 3000)
_MEMORY: Final = (0, 128, 256, 1024, 4096)
_KEYS: Final = (HOST, HOST, HOST, ZONE, ZONE, ZONE, RACK, TIER, CAPACITY_TYPE)


# -- to be placed ------------------------------------------------------------------------------------------------------


def random_pods(dice: Dice, count: int, hosts: Sequence[str]) -> tuple[PodInfo, ...]:
    """Of few kinds in some problems, each for itself in others. Equal pods are not always the same object."""
    kinds = dice.one((1, 2, 4, 8, 16, max(1, count)))
    sizes = [_size(dice) for _ in range(dice.one((1, 2, 3, 6)))]
    made = [_kind(dice.thrown(f"pod {kind}"), sizes, hosts) for kind in range(kinds)]
    pods = []
    for number in range(count):
        kind = dice.between(0, kinds - 1)
        like = _kind(dice.thrown(f"pod {kind}"), sizes, hosts) if dice.chance(0.02) else made[kind]
        pods.append(
            msgspec.structs.replace(
                like,
                uid=f"pod-{number:03}",
                name=f"{like.name}-{number:03}",
                created=None if dice.has("ageless") else _START + timedelta(seconds=dice.between(0, 5)),
                labels={**like.labels, "number": str(number)} if dice.has("unread labels") else like.labels,
                origin=dice.one((Origin.CANDIDATE, Origin.DELETING)) if dice.has("moved", 0.5) else Origin.PENDING,
                resource_claims=dice.has("resource claims", 0.1),
            )
        )
    return tuple(dice.shuffled(pods))


def _size(dice: Dice) -> Resources:
    extra = {GPU: dice.between(1, 2)} if dice.has("gpu", 0.2) else {}
    return amounts(dice.one(_CPU), dice.one(_MEMORY), pods=1, **extra)


def _kind(dice: Dice, sizes: Sequence[Resources], hosts: Sequence[str]) -> PodInfo:
    namespace, app = dice.one(NAMESPACES[: dice.one((1, 1, 3))]), dice.one(APPS)
    pod = PodInfo(
        uid="",
        namespace=namespace,
        name=app,
        labels={"app": app, **({"track": dice.one(TRACKS)} if dice.has("tracks") else {})},
        request=dice.one(sizes),
        affinity=_affinity(dice, hosts),
        tolerations=random_tolerations(dice, "tolerations"),
        ports=random_ports(dice, "pod ports"),
        volumes=_volumes(dice, namespace),
    )

    def rules(kind: TopologyRuleKind, feature: str, most: int) -> tuple[TopologyRule, ...]:
        return tuple(_rule(dice, kind, pod) for _ in range(dice.between(1, most) if dice.has(feature) else 0))

    return msgspec.structs.replace(
        pod,
        rules=(
            *rules(TopologyRuleKind.SPREAD, "spread", 2),
            *rules(TopologyRuleKind.TOGETHER, "together", 2),
            *rules(TopologyRuleKind.APART, "apart", 2),
        ),
        preferred_together=rules(TopologyRuleKind.TOGETHER, "preferred together", 2),
        preferred_apart=rules(TopologyRuleKind.APART, "preferred apart", 3),
        preferred_spread=rules(TopologyRuleKind.SPREAD, "preferred spread", 2),
    )


def _affinity(dice: Dice, hosts: Sequence[str]) -> ParsedNodeAffinity:
    selector = NO_REQUIREMENTS
    if dice.has("node selector"):
        key = dice.one(tuple(VALUES))
        selector = of_labels({key: dice.one(VALUES[key])})
    if dice.has("selects a host", 0.1) and hosts:
        selector &= of_labels({HOST: dice.one(hosts)})
    terms = [random_requirements(dice) for _ in range(dice.one((1, 1, 2, 3)))] if dice.has("node terms") else []
    preferred = [random_requirements(dice) for _ in range(dice.one((1, 1, 2, 3)))] if dice.has("node wishes") else []
    return ParsedNodeAffinity(selector, tuple(terms), tuple(preferred))


def _volumes(dice: Dice, namespace: str) -> PodVolumes:
    if not dice.has("volumes"):
        return NO_VOLUMES
    claims = [Attachment(dice.one(DRIVERS), namespace, claim) for claim in dice.some(_CLAIMS, 0, 2)]
    places = [_place(dice) for _ in range(dice.one((0, 1, 1, 2, 3)))]
    return PodVolumes(frozenset(claims), tuple(places) or (NO_REQUIREMENTS,))


def _place(dice: Dice) -> Requirements:
    key = dice.one((ZONE, ZONE, ZONE, RACK))
    values = dice.some(VALUES[key], 0 if dice.chance(0.05) else 1, 2)  # volumes can contradict each other
    return Requirements((one_of(key, values),))


# -- rules between pods ------------------------------------------------------------------------------------------------


def _rule(dice: Dice, kind: TopologyRuleKind, of: PodInfo) -> TopologyRule:
    """One of the pod's, which has everything else already."""
    soft = of.tolerations | {SOFT_TAINTS_TOLERATED}
    key, selector = dice.one(_KEYS), _selector(dice, of.name)
    if kind is not TopologyRuleKind.SPREAD:
        return TopologyRule(kind, key, _namespaces(dice, of.namespace), selector, tolerations=soft)
    honoured = soft if dice.has("taints honoured") else None
    alternatives = (NO_REQUIREMENTS,) if dice.has("node affinity ignored") else of.affinity.alternatives()
    return TopologyRule(
        kind,
        key,
        frozenset((of.namespace,)),
        selector if selector is not None else Selector(),
        max_skew=dice.one((1, 1, 1, 2, 5)),
        min_domains=dice.between(1, 5) if dice.has("min domains") else None,
        nodes=NodeFilter(alternatives, honoured),
        tolerations=honoured,
    )


def _namespaces(dice: Dice, own: str) -> frozenset[str] | None:
    if not dice.has("namespaces"):
        return frozenset((own,))
    return None if dice.chance(0.4) else frozenset(dice.some(NAMESPACES, 0, 2))


def _selector(dice: Dice, app: str) -> Selector | None:
    """Mostly of the pods like it, or of another app; at times of all, of none, or by more than one label."""
    if dice.has("odd selectors"):
        match dice.between(0, 4):
            case 0:
                return None
            case 1:
                return Selector()
            case 2:
                return make_selector({}, [("track", dice.one(("Exists", "DoesNotExist")), [])])
            case 3:
                return make_selector({"app": app}, [("track", "NotIn", [dice.one(TRACKS)])])
            case _:
                return make_selector({}, [("app", dice.one(("In", "NotIn")), dice.some(APPS, 1, 2))])
    return make_selector({"app": app if dice.chance(0.7) else dice.one(APPS)})


# -- on nodes already --------------------------------------------------------------------------------------------------


def random_bound_pods(dice: Dice, node: str, count: int, moving: Sequence[PodInfo]) -> tuple[BoundPod, ...]:
    """Some keep others away; some end; some of the pods that are to be moved are still there."""
    pods = [_bound_pod(dice, f"{node}-{number}") for number in range(count)]
    pods += [_still(each) for each in moving]
    return tuple(pods)


def _bound_pod(dice: Dice, uid: str) -> BoundPod:
    namespace, app = dice.one(NAMESPACES), dice.one(APPS)
    apart = [
        TopologyRule(
            TopologyRuleKind.APART, dice.one(_KEYS), _namespaces(dice, namespace), _selector(dice, app) or Selector()
        )
        for _ in range(dice.between(1, 2) if dice.has("bound apart", 0.5) else 0)
    ]
    labels = {"app": app, **({"track": dice.one(TRACKS)} if dice.has("tracks") else {})}
    return BoundPod(uid=uid, namespace=namespace, labels=labels, apart=tuple(apart), counts=not dice.has("ending", 0.5))


def _still(pod: PodInfo) -> BoundPod:
    apart = tuple(rule.inverse() for rule in pod.rules if rule.kind is TopologyRuleKind.APART)
    return BoundPod(uid=pod.uid, namespace=pod.namespace, labels=pod.labels, apart=apart)
