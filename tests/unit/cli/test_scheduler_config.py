"""How `--scheduler-config` is read."""

import json
from pathlib import Path

import pytest

from dovetail.api.pod_specs import TopologySpreadConstraint
from dovetail.cli.common.scheduler_config import read_scheduler_config
from dovetail.scheduling.default_spread import SchedulerProfile, SchedulerProfiles
from tests.unit.cli.running import Program

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SEVERAL = (
    HEAD
    + """
leaderElection: {leaderElect: true}
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2}
      - {maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Honor}
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
- schedulerName: packing
  pluginConfig:
  - name: PodTopologySpread
    args: {defaultingType: List}
- schedulerName: plain
  plugins: {multiPoint: {disabled: [{name: ImageLocality}]}}
- schedulerName: system
  pluginConfig: [{name: PodTopologySpread, args: {defaultingType: System}}]
"""
)
ZONE = TopologySpreadConstraint(topology_key="topology.kubernetes.io/zone", max_skew=1, min_domains=2)
HOST = TopologySpreadConstraint(
    topology_key="kubernetes.io/hostname",
    max_skew=2,
    when_unsatisfiable="ScheduleAnyway",
    node_taints_policy="Honor",
)
PROFILES = {
    "default-scheduler": SchedulerProfile((ZONE, HOST)),
    "packing": SchedulerProfile(),
    "plain": SchedulerProfile(system=True),
    "system": SchedulerProfile(system=True),
}


def args(text: str) -> str:
    return HEAD + f"profiles: [{{pluginConfig: [{{name: Other}}, {{name: PodTopologySpread, args: {text}}}]}}]"


def test_each_profile_has_its_constraints(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(SEVERAL)
    for given in (str(file), SEVERAL):
        read = read_scheduler_config(given)
        assert (read.text, read.profiles) == (SEVERAL, SchedulerProfiles(PROFILES))


def test_pods_of_other_schedulers_have_no_profile() -> None:
    profiles = SchedulerProfiles(PROFILES)
    assert profiles.constraints("") == (ZONE, HOST)
    assert profiles.constraints("other") == ()
    assert profiles.profile("other") is None


def test_a_configuration_without_profiles_is_that_of_the_default_scheduler() -> None:
    profiles = read_scheduler_config(HEAD).profiles
    assert profiles == SchedulerProfiles({"default-scheduler": SchedulerProfile(system=True)})
    assert not profiles.any_constraints


CONSTRAINT = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule"
FIELD = "profiles[0].pluginConfig[1].args"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: b: c", "not YAML: "),
        ("- a\n- b", "want a mapping of the kind KubeSchedulerConfiguration"),
        (f"{HEAD}---\n{HEAD}", "want one KubeSchedulerConfiguration, got 2 YAML documents"),
        ("kind: KubeSchedulerConfiguration", "apiVersion: is required"),
        (HEAD.replace("v1\n", "v1beta3\n"), "apiVersion: 'kubescheduler.config.k8s.io/v1beta3' is not known; want"),
        (HEAD.replace("KubeScheduler", "Scheduler"), "kind: 'SchedulerConfiguration' is not known; want"),
        (HEAD + "profiles: {}", "profiles: expected a list, got a mapping"),
        (HEAD + "profiles: [{}, {}]", "profiles[1].schedulerName: another profile is 'default-scheduler'; give each"),
        (args("{defaultConstraint: []}"), f"{FIELD}: "),
        (args("{defaultingType: Both}"), f"{FIELD}.defaultingType: "),
        (
            args(f"{{defaultConstraints: [{{{CONSTRAINT}}}]}}"),
            f"{FIELD}.defaultConstraints: needs defaultingType: List",
        ),
        (
            args(f"{{defaultingType: List, defaultConstraints: [{{{CONSTRAINT}, labelSelector: {{}}}}]}}"),
            f"{FIELD}.defaultConstraints[0].labelSelector: remove it; the selector is deduced for each pod",
        ),
        (
            args(f"{{defaultingType: List, defaultConstraints: [{{{CONSTRAINT}}}, {{{CONSTRAINT}}}]}}"),
            f"{FIELD}.defaultConstraints[1]: there is another with this topologyKey and whenUnsatisfiable; keep one",
        ),
        (
            args("{defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: x}]}"),
            f"{FIELD}.defaultConstraints[0].maxSkew: ",
        ),
        (
            args("{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: a}]}"),
            f"{FIELD}.defaultConstraints[0].whenUnsatisfiable: is required",
        ),
        (
            HEAD + "profiles: [{pluginConfig: [{name: PodTopologySpread}, {name: PodTopologySpread}]}]",
            "profiles[0].pluginConfig[1]: PodTopologySpread is configured twice; keep one",
        ),
    ],
)
def test_a_mistake_is_named_with_file_and_field(dovetail: Program, tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    for command in (("run",), ("plan",), ("simulate", "x.yaml"), ("manifests",)):
        outcome = dovetail(*command, "--scheduler-config", str(file))
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert f"{file}: {complaint}" in outcome.err


def test_a_missing_file_is_named(dovetail: Program) -> None:
    outcome = dovetail("plan", "--scheduler-config", "/nowhere/scheduler.yaml")
    expected = "dovetail: --scheduler-config /nowhere/scheduler.yaml: No such file or directory\n"
    assert (outcome.code, outcome.out, outcome.err) == (2, "", expected)


def test_plan_and_simulate_take_it(dovetail: Program) -> None:
    """With it, the pods of the example need a node in each of the four zones of the catalogue."""
    root = Path(__file__).parents[3]
    at, config = "2026-03-06T16:20:00Z", ("--scheduler-config", str(root / "examples" / "scheduler-config.yaml"))
    outcome = dovetail("plan", "-f", str(root / "examples" / "cluster.yaml"), "--at", at, *config)
    assert (outcome.code, outcome.err) == (0, "")
    launched = []
    for options in ((), config):
        scenario = str(root / "examples" / "disruption.yaml")
        outcome = dovetail("simulate", scenario, "--for", "1h", "--at", at, "-o", "json", *options)
        report = json.loads(outcome.out)
        launched.append(report["nodes"]["launched"])
        assert report["pods"]["pending"] == 0
    assert launched[0] < launched[1] == 4
