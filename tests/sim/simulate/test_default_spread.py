"""Planning and the simulated scheduler apply the same default spread constraints of a configuration."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from dovetail.api.documents import read_documents
from dovetail.api.names import ZONE_LABEL
from dovetail.cli.common.scheduler_config import read_scheduler_config
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.sim.actors import wire
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario

START = datetime(2026, 3, 2, tzinfo=UTC)
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
- schedulerName: packing
  pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List}}]
"""
POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["8"]}
      - {key: topology.kubernetes.io/zone, operator: In, values: [test-zone-a, test-zone-b, test-zone-c]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  disruption: {consolidateAfter: 1m, budgets: [{nodes: 100%}]}
"""
SCENARIO = "apiVersion: dovetail.dev/v1alpha1\nkind: Scenario\nstart: 2026-03-02T00:00:00Z\nfor: 2h\n"


def web(scheduler: str = "default-scheduler", replicas: int = 6) -> str:
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      schedulerName: {scheduler}
      containers: [{{name: web, image: web, resources: {{requests: {{cpu: "1"}}}}}}]
"""


class Outcome:
    """Where the pods run after two hours."""

    def __init__(self, *texts: str, profiles: SchedulerProfiles | None) -> None:
        data = "\n---\n".join((POOL, SCENARIO, *texts)).encode()
        found = read_scenario(read_documents(data, "test.yaml"), now=START, seed=1)
        with Play(found, scheduler_profiles=profiles) as playing:
            playing.advance(START + timedelta(minutes=5))
            self.launched = len(playing.sim.objects(wire.NODES))
            playing.advance(found.end)
            nodes = {wire.name_of(node): wire.labels_of(node)[ZONE_LABEL] for node in playing.sim.objects(wire.NODES)}
            on = [wire.node_of(pod) for pod in playing.sim.pods()]
            self.pending = on.count("")
            self.zones = sorted(Counter(nodes[name] for name in on if name).values())
            self.nodes = len(nodes)
            self.violations = playing.report().violations


def test_one_round_of_nodes_takes_all_pods_and_consolidation_keeps_the_spread() -> None:
    outcome = Outcome(web(), profiles=read_scheduler_config(CONFIG).profiles)
    assert (outcome.launched, outcome.nodes, outcome.zones, outcome.pending) == (3, 3, [2, 2, 2], 0)
    assert outcome.violations == ()


def test_without_a_configuration_pods_share_a_node() -> None:
    outcome = Outcome(web(), profiles=None)
    assert (outcome.nodes, outcome.zones, outcome.pending) == (1, [6], 0)


def test_each_pod_has_the_constraints_of_its_scheduler() -> None:
    profiles = read_scheduler_config(CONFIG).profiles
    assert Outcome(web("packing"), profiles=profiles).zones == [6]
    unknown = Outcome(web("unknown"), profiles=profiles)
    assert (unknown.nodes, unknown.pending) == (0, 6)


def test_a_service_spreads_pods_without_an_owner() -> None:
    pods = [
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, labels: {{app: web}}}}\n"
        "spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}\n"
        for number in range(3)
    ]
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}}\n"
    profiles = read_scheduler_config(CONFIG).profiles
    assert Outcome(*pods, profiles=profiles).zones == [3]
    assert Outcome(*pods, service, profiles=profiles).zones == [1, 1, 1]
