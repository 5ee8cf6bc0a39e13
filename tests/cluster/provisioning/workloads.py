"""What is to be placed: a pool, and workloads of the kinds and sizes that upstream measures (08 §2)."""

from typing import Any, Final

from dovetail.api import names
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.manifests import Manifest

POOL: Final = "default"
# Nothing is moved afterwards: it is the placing that is looked at.
_AT_REST: Final = {"consolidateAfter": "Never"}


def pool(*, below_cpus: int = 32) -> tuple[Manifest, Manifest]:
    """On-demand machines, linux on amd64, smaller than this; with their node class."""
    wanted = {
        names.CAPACITY_TYPE_LABEL: ("In", ["on-demand"]),
        names.OS_LABEL: ("In", ["linux"]),
        names.ARCH_LABEL: ("In", ["amd64"]),
        names.KWOK_INSTANCE_CPU_LABEL: ("Lt", [str(below_cpus)]),
    }
    requirements = [{"key": key, "operator": how, "values": values} for key, (how, values) in wanted.items()]
    return node_class(), node_pool(POOL, template={"requirements": requirements}, disruption=_AT_REST)


def spread(app: str, key: str, *, skew: int = 1, **fields: Any) -> Manifest:
    """No more than so many more of the app's pods in one domain than in another."""
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **fields,
    }


def term(app: str, key: str) -> Manifest:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def apart(app: str, key: str = names.HOSTNAME_LABEL) -> Manifest:
    """No two of the app's pods in one domain."""
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}}


def together(app: str, key: str) -> Manifest:
    """All pods that say so in a domain with a pod of the app."""
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}}


def deployment(name: str, replicas: int, cpu: str, memory: str, **spec: Any) -> Manifest:
    """Of pods that end at once when they are asked to."""
    quick = {"terminationGracePeriodSeconds": 1, **spec}
    return manifests.deployment(name, replicas=replicas, cpu=cpu, memory=memory, **quick)


def basic(of_each: int = 500) -> list[Manifest]:
    """As many small pods as large ones."""
    return [deployment("small", of_each, "900m", "3100Mi"), deployment("large", of_each, "3500m", "28Gi")]


def wide() -> list[Manifest]:
    """1,000 pods of 30 deployments, from 225m to 3800m and from 300Mi to 64Gi, all spread over zones.

    Three are anti-affine and three spread over nodes besides. Upstream's sizes between the ends are not known: these
    grow evenly, and the most memory does not come with the most cpu.
    """
    made = []
    for number in range(30):
        name, replicas = f"wide-{number:02}", 34 if number < 10 else 33
        cpu_milli = round(225 * (3800 / 225) ** (number / 29))
        memory_mebi = round(300 * (64 * 1024 / 300) ** (number * 7 % 30 / 29) ** 2)
        spreads, more = [spread(name, names.ZONE_LABEL)], {}
        if number % 10 == 3:
            more = {"affinity": apart(name)}
        elif number % 10 == 6:
            spreads.append(spread(name, names.HOSTNAME_LABEL))
        made.append(
            deployment(name, replicas, f"{cpu_milli}m", f"{memory_mebi}Mi", topologySpreadConstraints=spreads, **more)
        )
    return made


# -- every kind of rule ------------------------------------------------------------------------------------------------

ZONES: Final = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
TEAM: Final = "example.com/team"
_BLUE: Final = {"key": TEAM, "value": "blue", "effect": "NoSchedule"}


def pools_of_two_teams() -> tuple[Manifest, ...]:
    """One for everybody, and one whose label and taint are a team's own."""
    shared, requirements = pool(), pool()[1]["spec"]["template"]["spec"]["requirements"]
    template = {"requirements": requirements, "taints": [_BLUE]}
    return (*shared, node_pool("blue", labels={TEAM: "blue"}, template=template, disruption=_AT_REST))


def _agent() -> Manifest:
    """On each node. It comes after the pods that the node was made for, and may push some away."""
    spec: Manifest = {"priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}]}
    return manifests.workload("DaemonSet", "agent", cpu="100m", memory="128Mi", **spec)


def mixed() -> list[Manifest]:
    """200 pods of deployments with a rule each, and a DaemonSet.

    Which domains there are is said to the scheduler (minDomains): by itself it counts those that have nodes already,
    and what it does before all have cannot be told from where pods are in the end.
    """
    zonal = spread("zonal", names.ZONE_LABEL, minDomains=len(ZONES))
    hosts = spread("hosts", names.HOSTNAME_LABEL, skew=2, minDomains=500)
    both = [
        spread("both", names.ZONE_LABEL, minDomains=len(ZONES)),
        spread("both", names.HOSTNAME_LABEL, minDomains=500),
    ]
    not_there = {"key": names.ZONE_LABEL, "operator": "NotIn", "values": list(ZONES[:2])}
    elsewhere = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [not_there]}]}
    }
    picky = {names.ZONE_LABEL: ZONES[1], names.KWOK_INSTANCE_FAMILY_LABEL: "s"}
    return [
        _agent(),
        deployment("plain", 50, "500m", "1Gi"),
        deployment("large", 10, "6", "12Gi"),
        deployment("zonal", 30, "700m", "1Gi", topologySpreadConstraints=[zonal]),
        deployment("hosts", 20, "250m", "512Mi", topologySpreadConstraints=[hosts]),
        deployment("both", 12, "300m", "512Mi", topologySpreadConstraints=both),
        deployment("apart", 12, "400m", "1Gi", affinity=apart("apart")),
        deployment("one-each", 4, "300m", "1Gi", affinity=apart("one-each", names.ZONE_LABEL)),
        deployment("flock", 16, "1", "2Gi", affinity=together("flock", names.ZONE_LABEL)),
        deployment("followers", 10, "600m", "1Gi", affinity=together("flock", names.ZONE_LABEL)),
        deployment("shy", 6, "300m", "1Gi", affinity=apart("plain")),
        deployment("picky", 10, "800m", "2Gi", nodeSelector=picky),
        deployment("elsewhere", 10, "700m", "1Gi", affinity={"nodeAffinity": elsewhere}),
        deployment("team", 10, "500m", "1Gi", nodeSelector={TEAM: "blue"}, tolerations=[_BLUE]),
    ]
