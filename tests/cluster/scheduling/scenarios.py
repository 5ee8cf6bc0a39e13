"""Small clusters and pods from a seed: every feature by which a pod can ask for its place, in random mixtures."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from dovetail.api import names
from tests.cluster.scheduling.world import HELD, LABELS_OF_SPACES, Manifest, Scenario, volume

T = TypeVar("T")

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE, HOST, ARCH = names.ZONE_LABEL, names.HOSTNAME_LABEL, names.ARCH_LABEL
RACK, DISK, SIZE = "example.com/rack", "example.com/disk", "example.com/size"
GPU: Final = "example.com/gpu"
DRIVER: Final = "csi.example.com"
ZONES: Final = ("a", "b", "c")
RACKS: Final = ("r1", "r2")
SIZES: Final = ("1", "2", "8", "016", "large")
DISKS: Final = ("ssd", "hdd")
APPS: Final = ("web", "db", "job")
SPACES: Final = tuple(LABELS_OF_SPACES)
EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")


class _Draw:
    """Chance, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def some(self, values: Sequence[T], most: int) -> list[T]:
        return self.random.sample(values, self.random.randint(1, min(most, len(values))))

    def times(self, least: int, most: int, make: Callable[[], T]) -> list[T]:
        return [make() for _ in range(self.random.randint(least, most))]

    def chance(self, share: float) -> bool:
        return self.random.random() < share


def scenario(seed: int, *, pods: int = 10) -> Scenario:
    """The same for the same seed."""
    draw = _Draw(seed)
    nodes = [_node(draw, f"n{index}") for index in range(draw.random.randint(4, 9))]
    volumes = [_volume(draw, f"v{index}") for index in range(draw.random.randint(2, 5))]
    limited = [node["metadata"]["name"] for node in nodes if draw.chance(0.4)]
    present = [
        _present(draw, f"old{index}", draw.one(nodes)["metadata"]["name"])
        for index in range(draw.random.randint(len(nodes) // 2, 2 * len(nodes)))
    ]
    return Scenario(
        nodes=tuple(nodes),
        present=tuple(present),
        pods=tuple(_pod(draw, f"new{index}", volumes) for index in range(pods)),
        volumes=tuple(volumes),
        csi_nodes=tuple(_csi_node(name, draw.random.randint(1, 2)) for name in limited),
    )


def scenario_of_profiles(seed: int, profiles: Sequence[str], owners: Sequence[Manifest], *, pods: int = 10) -> Scenario:
    """Pods of several schedulers and owners, most of them without spread constraints of their own."""
    draw = _Draw(seed)
    nodes = [_node(draw, f"n{index}") for index in range(draw.random.randint(4, 9))]
    present = [
        pod(f"old{index}", _labels(draw), nodeName=draw.one(nodes)["metadata"]["name"])
        for index in range(draw.random.randint(len(nodes) // 2, 2 * len(nodes)))
    ]

    def one(name: str) -> Manifest:
        made = pod(name, _labels(draw), schedulerName=draw.one(profiles))
        made["metadata"]["namespace"] = draw.one(("shop", "shop", "lab"))
        if draw.chance(0.7):
            made["metadata"]["ownerReferences"] = [draw.one(owners)]
        if draw.chance(0.2):
            made["spec"]["topologySpreadConstraints"] = [_spread(draw, draw.one((ZONE, RACK)))]
        if draw.chance(0.2):
            made["spec"]["nodeSelector"] = draw.one(({ARCH: "amd64"}, {DISK: "ssd"}, {ZONE: "a"}))
        if draw.chance(0.6):
            made["spec"]["tolerations"] = [{"operator": "Exists", "key": key} for key in draw.some(("for", "level"), 2)]
        return made

    return Scenario(tuple(nodes), tuple(present), tuple(one(f"new{index}") for index in range(pods)))


# -- nodes and volumes -------------------------------------------------------------------------------------------------


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    cpu: str = "4",
    pods: str = "9",
    taints: Sequence[Manifest] = (),
) -> Manifest:
    """A node without a kubelet; `labels` besides that of its host."""
    has = {"cpu": cpu, "memory": "4Gi", "pods": pods, "ephemeral-storage": "20Gi"}
    return {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {"capacity": has, "allocatable": has},
    }


def _node(draw: _Draw, name: str) -> Manifest:
    labels = {ARCH: draw.one(("amd64", "arm64"))}
    if draw.chance(0.95):
        labels[ZONE] = draw.one(ZONES)
    if draw.chance(0.8):
        labels[RACK] = draw.one(RACKS)
    if draw.chance(0.6):
        labels[DISK] = draw.one(DISKS)
    if draw.chance(0.8):
        labels[SIZE] = draw.one(SIZES)
    taints = {
        (each["key"], each["effect"]): each for each in draw.times(0, 2, lambda: _taint(draw)) if draw.chance(0.5)
    }
    made = node(
        name, labels, cpu=draw.one(("1500m", "2", "3")), pods=draw.one(("3", "5", "8")), taints=[*taints.values()]
    )
    if draw.chance(0.4):
        for part in ("capacity", "allocatable"):
            made["status"][part][GPU] = str(draw.random.randint(1, 2))
    return made


def _taint(draw: _Draw) -> Manifest:
    if draw.chance(0.4):
        return {"key": "level", "value": draw.one(("1", "5", "9", "high")), "effect": draw.one(EFFECTS)}
    return {"key": "for", "value": draw.one(APPS), "effect": draw.one(EFFECTS)}


def _volume(draw: _Draw, name: str) -> Manifest:
    spec: Manifest = {}
    if draw.chance(0.7):
        terms = draw.times(1, 2, lambda: {"matchExpressions": [_among(ZONE, draw.some(ZONES, 2))]})
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return volume(name, draw.one(SPACES), DRIVER if draw.chance(0.8) else "", **spec)


def _csi_node(name: str, count: int) -> Manifest:
    driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}
    return {"metadata": {"name": name}, "spec": {"drivers": [driver]}}


# -- pods --------------------------------------------------------------------------------------------------------------


def _labels(draw: _Draw) -> dict[str, str]:
    return {"app": draw.one(APPS), "rev": draw.one(("1", "2"))}


def pod(name: str, labels: dict[str, str] | None = None, *, cpu: str = "100m", **spec: Any) -> Manifest:
    """A pod without a node, unless it has one in `spec`."""
    containers = [{"name": "app", "image": "none", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": labels or {}},
        "spec": {"containers": containers, **spec},
    }


def _present(draw: _Draw, name: str, on: str) -> Manifest:
    """A pod that has a node, wherever that is: others cannot know how it came there."""
    made = pod(name, _labels(draw), cpu=draw.one(("50m", "100m", "200m")), nodeName=on)
    made["metadata"]["namespace"] = draw.one(SPACES)
    if draw.chance(0.15):
        made["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [_pod_term(draw)]}}
    if draw.chance(0.15):
        made["spec"]["containers"][0]["ports"] = [_port(draw)]
    if draw.chance(0.08):
        made["status"] = {"phase": draw.one(("Succeeded", "Failed"))}
    elif draw.chance(0.05):
        made["metadata"]["finalizers"] = [HELD]
    return made


def _pod(draw: _Draw, name: str, volumes: Sequence[Manifest]) -> Manifest:
    made = pod(name, _labels(draw), cpu=draw.one(("100m", "300m", "700m", "1200m")))
    made["metadata"]["namespace"] = draw.one(SPACES)
    spec: Manifest = made["spec"]
    _ask_for_resources(draw, spec)
    if draw.chance(0.15):
        spec["nodeSelector"] = draw.one(({ARCH: "amd64"}, {DISK: "ssd"}, {ZONE: "a"}, {SIZE: "8"}))
    affinity = {
        "nodeAffinity": _node_affinity(draw),
        "podAffinity": _pod_affinity(draw, 0.15),
        "podAntiAffinity": _pod_affinity(draw, 0.25),
    }
    spec["affinity"] = {kind: terms for kind, terms in affinity.items() if terms}
    if draw.chance(0.6):
        spec["tolerations"] = draw.times(1, 2, lambda: _toleration(draw))
    if draw.chance(0.4):
        keys = draw.some((ZONE, ZONE, HOST, RACK), 2)
        spec["topologySpreadConstraints"] = [_spread(draw, key) for key in dict.fromkeys(keys)]
    if draw.chance(0.1):
        spec["containers"][0]["ports"] = [_port(draw)]
    if draw.chance(0.25):
        _mount(made, draw.one(volumes))
    return made


def _mount(made: Manifest, of: Manifest) -> None:
    """A claim is used in its own namespace."""
    ref = of["spec"]["claimRef"]
    made["metadata"]["namespace"] = ref["namespace"]
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": ref["name"]}}]


def _ask_for_resources(draw: _Draw, spec: Manifest) -> None:
    main = spec["containers"][0]["resources"]
    if draw.chance(0.3):
        main["requests"]["memory"] = draw.one(("100Mi", "1Gi", "3Gi"))
    if draw.chance(0.1):
        main["limits"] = {"ephemeral-storage": draw.one(("1Gi", "15Gi"))}
    if draw.chance(0.1):
        main["limits"] = {GPU: draw.one(("0", "1", "2"))}
    if draw.chance(0.25):
        spec["initContainers"] = draw.times(1, 3, lambda: _init_container(draw))
        for index, container in enumerate(spec["initContainers"]):
            container["name"] = f"init{index}"
    if draw.chance(0.1):
        spec["runtimeClassName"] = "sandbox"
    if draw.chance(0.1) and "initContainers" not in spec:
        spec["resources"] = draw.one(({"requests": {"cpu": "1500m"}}, {"limits": {"cpu": "3", "memory": "4Gi"}}))


def _init_container(draw: _Draw) -> Manifest:
    amounts = {"cpu": draw.one(("100m", "600m", "1100m"))}
    sidecar = {"restartPolicy": "Always"} if draw.chance(0.5) else {}
    return {"image": "none", "resources": {"requests": amounts}, **sidecar}


def _port(draw: _Draw) -> Manifest:
    made = {"containerPort": 80, "hostPort": draw.one((8080, 8081)), "protocol": draw.one(("TCP", "TCP", "UDP"))}
    return {**made, "hostIP": draw.one(("10.0.0.1", "0.0.0.0", "10.0.0.2"))} if draw.chance(0.5) else made


def _toleration(draw: _Draw) -> Manifest:
    effect = {"effect": draw.one(EFFECTS)} if draw.chance(0.4) else {}
    match draw.random.randrange(6):
        case 0:
            return {"operator": "Exists", **effect}
        case 1:
            return {"key": draw.one(("for", "level")), "operator": "Exists", **effect}
        case 2 | 3:
            return {"key": "for", "value": draw.one(APPS), **effect}
        case 4:
            return {"key": "level", "operator": "Equal", "value": draw.one(("1", "5", "9")), **effect}
    return {"key": "level", "operator": draw.one(("Gt", "Lt")), "value": draw.one(("1", "5", "9")), **effect}


# -- which nodes -------------------------------------------------------------------------------------------------------


def _among(key: str, values: Sequence[str], operator: str = "In") -> Manifest:
    return {"key": key, "operator": operator, "values": list(values)}


def _expression(draw: _Draw) -> Manifest:
    match draw.random.randrange(7):
        case 0:
            return {"key": draw.one((DISK, SIZE, RACK)), "operator": draw.one(("Exists", "DoesNotExist"))}
        case 1 | 2:
            return _among(SIZE, [draw.one(("0", "1", "2", "7", "15"))], draw.one(("Gt", "Lt")))
        case 3:
            return _among(ZONE, draw.some(ZONES, 2), draw.one(("In", "In", "NotIn")))
        case 4:
            return _among(DISK, draw.some(DISKS, 1), draw.one(("In", "NotIn")))
        case 5:
            return _among(SIZE, draw.some(SIZES, 3), draw.one(("In", "NotIn")))
    return _among(ARCH, ["amd64"], draw.one(("In", "NotIn")))


def _node_term(draw: _Draw) -> Manifest:
    return {"matchExpressions": draw.times(1, 2, lambda: _expression(draw))}


def _node_affinity(draw: _Draw) -> Manifest:
    made: Manifest = {}
    if draw.chance(0.25):
        made[REQUIRED] = {"nodeSelectorTerms": draw.times(1, 2, lambda: _node_term(draw))}
    if draw.chance(0.2):
        made[PREFERRED] = draw.times(
            1, 2, lambda: {"weight": draw.random.randint(1, 9), "preference": _node_term(draw)}
        )
    return made


# -- which pods --------------------------------------------------------------------------------------------------------


def _selector(draw: _Draw) -> Manifest:
    match draw.random.randrange(6):
        case 0:
            return {"matchExpressions": [_among("app", draw.some(APPS, 2), draw.one(("In", "NotIn")))]}
        case 1:
            return {"matchExpressions": [{"key": "rev", "operator": draw.one(("Exists", "DoesNotExist"))}]}
        case 2:
            return {"matchLabels": {"app": draw.one(APPS), "rev": "1"}}
    return {"matchLabels": {"app": draw.one(APPS)}}


def _names_revision(term: Manifest) -> bool:
    """Then it may not be named a second time."""
    return "rev" in str(term["labelSelector"])


def _pod_term(draw: _Draw) -> Manifest:
    made = {"topologyKey": draw.one((ZONE, HOST, HOST, RACK)), "labelSelector": _selector(draw)}
    match draw.random.randrange(8):
        case 0:
            made["namespaces"] = draw.some(SPACES, 2)
        case 1:
            made["namespaceSelector"] = {}
        case 2:
            made["namespaceSelector"] = {"matchLabels": {"team": draw.one(("red", "blue"))}}
        case 3:
            made["namespaceSelector"] = {"matchLabels": {"env": "test"}}
            made["namespaces"] = ["lab"]
    if draw.chance(0.1) and not _names_revision(made):
        made[draw.one(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
    return made


def _pod_affinity(draw: _Draw, share: float) -> Manifest:
    made: Manifest = {}
    if draw.chance(share):
        made[REQUIRED] = [_pod_term(draw)] if draw.chance(0.85) else [_pod_term(draw), _pod_term(draw)]
    if draw.chance(0.15):
        made[PREFERRED] = draw.times(
            1, 2, lambda: {"weight": draw.random.randint(1, 9), "podAffinityTerm": _pod_term(draw)}
        )
    return made


def _spread(draw: _Draw, key: str) -> Manifest:
    made: Manifest = {
        "topologyKey": key,
        "maxSkew": draw.one((1, 1, 2, 3)),
        "whenUnsatisfiable": draw.one(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": _selector(draw),
    }
    if made["whenUnsatisfiable"] == "DoNotSchedule" and draw.chance(0.2):
        made["minDomains"] = draw.random.randint(1, 4)
    if draw.chance(0.3):
        made["nodeTaintsPolicy"] = draw.one(("Honor", "Ignore"))
    if draw.chance(0.2):
        made["nodeAffinityPolicy"] = draw.one(("Honor", "Ignore"))
    if draw.chance(0.2) and not _names_revision(made):
        made["matchLabelKeys"] = ["rev"]
    return made
