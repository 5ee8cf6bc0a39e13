"""Is each difference from the kube-scheduler that docs/scheduling-agreement.md lists still there, and as it says?"""

from pathlib import Path
from typing import Any, Final

import msgspec

from tests.cluster.scheduling.differences import DIFFERENCES
from tests.cluster.scheduling.plane import SchedulingPlane, any_of_them
from tests.cluster.scheduling.scenarios import HOST, PREFERRED, RACK, REQUIRED, ZONE, node, pod
from tests.cluster.scheduling.world import HELD, Manifest, Scenario, World, volume, world
from tests.harness.stage import real_time, stage
from tests.scheduling import inspection

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "scheduling-agreement.md"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
WEB: Final = {"app": "web"}


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest scenario in which the two differ, and the nodes that each would take."""

    name: str
    nodes: tuple[Manifest, ...]
    present: tuple[Manifest, ...] = ()
    volumes: tuple[Manifest, ...] = ()
    pod: Manifest
    ours: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()


def in_zones(*names: str) -> tuple[Manifest, ...]:
    """Nodes in the zones of their first letters."""
    return tuple(node(name, {ZONE: name[0]}) for name in names)


def web(name: str, on: str, **metadata: Any) -> Manifest:
    made = pod(name, WEB, nodeName=on)
    return {**made, "metadata": {**made["metadata"], **metadata}}


def spread(key: str, **more: Any) -> Manifest:
    of = {"labelSelector": {"matchLabels": WEB}, **more}
    return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **of}


def to_web(kind: str, key: str) -> Manifest:
    return {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": WEB}}]}}


def like(*terms: Manifest, preferred: Manifest) -> Manifest:
    """Nodes with one of these labels, and rather with the preferred ones."""

    def expressing(labels: Manifest) -> Manifest:
        return {"matchExpressions": [{"key": key, "operator": "In", "values": [labels[key]]} for key in labels]}

    weighted = [{"weight": 1, "preference": expressing(preferred)}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*map(expressing, terms)]}, PREFERRED: weighted}}


def without_host(name: str) -> Manifest:
    made = node(name)
    return {**made, "metadata": {"name": name}}


def with_port(made: Manifest, address: str = "") -> Manifest:
    port = {"containerPort": 80, "hostPort": 80, "hostIP": address}
    container = {"name": "ports", "image": "none", "ports": [port]}
    return {**made, "spec": {**made["spec"], "containers": [*made["spec"]["containers"], container]}}


def using(claim: str) -> Manifest:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def on_host(name: str) -> Manifest:
    expression = {"key": HOST, "operator": "In", "values": [name]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


ONCE: Final = volume("once", "shop", accessModes=["ReadWriteOncePod"])

WITNESSES: Final = (
    Witness(
        name="another host is always possible",
        nodes=(node("n1"), node("n2")),
        present=(web("w1", "n1"), web("w2", "n2")),
        pod=pod("new", WEB, topologySpreadConstraints=[spread(HOST)]),
        theirs=("n1", "n2"),
    ),
    Witness(
        name="a node without the label of an anti-affinity",
        nodes=(node("n1"), *in_zones("a1")),
        pod=pod("new", affinity=to_web("podAntiAffinity", ZONE)),
        ours=("a1",),
        theirs=("a1", "n1"),
    ),
    Witness(
        name="an overcommitted node takes no pods",
        nodes=(node("n1", cpu="1"),),
        present=(pod("large", cpu="2", nodeName="n1"),),
        pod=pod("new", cpu="0"),
        theirs=("n1",),
    ),
    Witness(
        name="required terms before preferences",
        nodes=in_zones("a1"),
        pod=pod("new", affinity=like({ZONE: "a"}, {ZONE: "b"}, preferred={RACK: "r1"})),
        theirs=("a1",),
    ),
    Witness(
        name="domains that the pod selects",
        nodes=in_zones("a1", "b1"),
        present=(web("w1", "a1"),),
        pod=pod("new", WEB, nodeSelector={ZONE: "b"}, affinity=to_web("podAffinity", ZONE)),
        ours=("b1",),
    ),
    Witness(
        name="domains that the pod selects",
        nodes=in_zones("a1", "b1"),
        present=(web("w1", "a1"),),
        pod=pod(
            "new",
            WEB,
            nodeSelector={ZONE: "a"},
            topologySpreadConstraints=[spread(ZONE, nodeAffinityPolicy="Ignore")],
        ),
        ours=("a1",),
    ),
    Witness(
        name="terminating pods do not count",
        nodes=in_zones("a1", "b1"),
        present=(web("w1", "a1", finalizers=[HELD]),),
        pod=pod("new", affinity=to_web("podAntiAffinity", ZONE)),
        ours=("a1", "b1"),
        theirs=("b1",),
    ),
    Witness(
        name="terminating pods do not count",
        nodes=in_zones("a1", "b1"),
        present=(web("w1", "a1", finalizers=[HELD]),),
        pod=pod("new", affinity=to_web("podAffinity", ZONE)),
        theirs=("a1",),
    ),
    Witness(
        name="each spread considers only its own label",
        nodes=(node("n1", {ZONE: "a"}), node("n2", {ZONE: "b", RACK: "r1"}), node("n3", {ZONE: "a", RACK: "r2"})),
        present=(web("w1", "n1"),),
        pod=pod("new", WEB, topologySpreadConstraints=[spread(ZONE), spread(RACK)]),
        ours=("n2",),
        theirs=("n2", "n3"),
    ),
    # -- what the random scenarios leave out
    Witness(
        name="a spread without a selector",
        nodes=(node("n1"), *in_zones("a1")),
        pod=pod("new", WEB, topologySpreadConstraints=[spread(ZONE, labelSelector=None)]),
        ours=("a1", "n1"),
        theirs=("a1",),
    ),
    Witness(
        name="a node without a hostname label is its own host",
        nodes=(without_host("n1"),),
        pod=pod("new", WEB, topologySpreadConstraints=[spread(HOST)]),
        ours=("n1",),
    ),
    Witness(
        name="old names of labels",
        nodes=in_zones("a1"),
        pod=pod("new", nodeSelector={BETA_ZONE: "a"}),
        ours=("a1",),
    ),
    Witness(
        name="old names of labels",
        nodes=(node("n1", {BETA_ZONE: "a"}),),
        pod=pod("new", nodeSelector={BETA_ZONE: "a"}),
        theirs=("n1",),
    ),
    Witness(
        name="local volumes",
        nodes=in_zones("a1", "b1"),
        volumes=(volume("local", "shop", local={"path": "/data"}, nodeAffinity=on_host("a1")),),
        pod=pod("new", **using("local")),
        ours=("a1", "b1"),
        theirs=("a1",),
    ),
    Witness(
        name="volumes for one pod",
        nodes=(node("n1"),),
        present=(pod("old", nodeName="n1", **using("once")),),
        volumes=(ONCE,),
        pod=pod("new", **using("once")),
        ours=("n1",),
    ),
    Witness(
        name="all addresses of IPv6",
        nodes=(node("n1"),),
        present=(with_port(pod("old", nodeName="n1"), "::"),),
        pod=with_port(pod("new"), "10.0.0.1"),
        theirs=("n1",),
    ),
    Witness(
        name="a cordon without its taint",
        nodes=({**node("n1"), "spec": {"unschedulable": True}},),
        pod=pod("new"),
        ours=("n1",),
    ),
    Witness(
        name="fields of nodes",
        nodes=(node("n1"), node("n2")),
        pod=pod(
            "new",
            affinity={
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                        ]
                    }
                }
            },
        ),
        ours=("n1", "n2"),
        theirs=("n1",),
    ),
)


@stage(real_time)
async def test_the_two_differ_as_it_is_written(plane: SchedulingPlane) -> None:
    plane.extender.choose = any_of_them
    async with world(plane) as cluster:
        seen = [await _seen(cluster, witness) for witness in WITNESSES]
    assert seen == [*WITNESSES]


async def _seen(made: World, witness: Witness) -> Witness:
    """The same with what the two say."""
    async with made.scenario(Scenario(witness.nodes, witness.present, (witness.pod,), witness.volumes)):
        others = made.bound()
        key = await made.come(witness.pod)
        theirs = tuple(sorted(await made.decided(key)))
        question = made.question(made.pods[key], others)
    ours = inspection.fitting(question.problem, question.pod)
    return msgspec.structs.replace(witness, ours=ours, theirs=theirs)


def test_every_difference_is_documented_and_seen() -> None:
    listed = {line.split("|")[1].strip() for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")}
    assert {witness.name for witness in WITNESSES} <= listed
    assert {difference.name for difference in DIFFERENCES} <= {witness.name for witness in WITNESSES}
