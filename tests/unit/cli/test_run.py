"""The options of `dovetail run`, and how it refuses to start."""

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dovetail.api import names
from dovetail.api.pod_specs import TopologySpreadConstraint
from dovetail.cli.run.options import RunOptions, run_options
from dovetail.controllers.assembly import FeatureGates
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.observe.logs import LogFormat
from tests.unit.cli.running import Program


def told(*arguments: str, **environment: str) -> RunOptions:
    """What the program would run with."""
    seen: list[RunOptions] = []

    @click.command()
    @run_options
    def command(options: RunOptions) -> None:
        seen.append(options)

    result = CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_defaults() -> None:
    options = told()
    assert (options.metrics_port, options.health_probe_port, options.metrics_bind_address) == (8080, 8081, "")
    assert (options.kube_client_qps, options.kube_client_burst) == (200, 300)
    assert options.leader_election_name == names.LEADER_ELECTION_LEASE
    assert not options.dry_run
    assert not options.disable_leader_election
    assert not options.disable_cluster_state_observability
    assert (options.log_level, options.log_format) == ("info", LogFormat.JSON)
    assert (options.log_output_paths, options.log_error_output_paths) == (("stdout",), ("stderr",))
    assert (options.batch_max_seconds, options.batch_idle_seconds) == (10, 1)
    assert (options.preference_policy, options.min_values_policy) == ("Respect", "Strict")
    assert options.budget_reading is BudgetSemantics.SEED
    assert options.gates == FeatureGates(node_repair=True, static_capacity=True, spot_to_spot_consolidation=False)
    assert options.instance_types is None


def test_a_flag_beats_the_environment() -> None:
    assert told(METRICS_PORT="1").metrics_port == 1
    assert told("--metrics-port=2", METRICS_PORT="1").metrics_port == 2


def test_an_empty_variable_is_none() -> None:
    assert told(METRICS_PORT="", LOG_LEVEL="", FEATURE_GATES="").metrics_port == 8080


@pytest.mark.parametrize(
    ("arguments", "environment", "disabled"),
    [
        (["--disable-leader-election"], {}, True),
        (["--disable-leader-election=true"], {}, True),
        (["--disable-leader-election=false"], {"DISABLE_LEADER_ELECTION": "true"}, False),
        ([], {"DISABLE_LEADER_ELECTION": "true"}, True),
        ([], {"DISABLE_LEADER_ELECTION": "false"}, False),
    ],
)
def test_booleans(arguments: list[str], environment: dict[str, str], disabled: bool) -> None:
    assert told(*arguments, **environment).disable_leader_election is disabled


def test_gates_that_are_not_named_keep_their_defaults() -> None:
    options = told(
        "--feature-gates=NodeRepair=false, SpotToSpotConsolidation=true ,Unheard=true,"
        "NodeOverlay=true,CapacityBuffer=false,ReservedCapacity=true"
    )
    assert options.gates == FeatureGates(node_repair=False, static_capacity=True, spot_to_spot_consolidation=True)
    assert options.unsupported_gates == ("Unheard", "NodeOverlay")


def test_durations_and_lists() -> None:
    options = told("--batch-max-duration=1m30s", "--batch-idle-duration=500ms", "--log-output-paths=stdout, /dev/null")
    assert (options.batch_max_seconds, options.batch_idle_seconds) == (90, 0.5)
    assert options.log_output_paths == ("stdout", "/dev/null")


def test_the_configuration_of_the_scheduler() -> None:
    written = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}"
    text = f"podTopologySpread:\n  defaultConstraints:\n  - {written}"
    profiles = told(SCHEDULER_CONFIG=text).scheduler_config.profiles
    assert profiles is not None
    constraint = TopologySpreadConstraint(topology_key="zone", max_skew=1, when_unsatisfiable="ScheduleAnyway")
    assert profiles.constraints("any-scheduler") == (constraint,)
    assert told().scheduler_config.profiles is None


def test_instance_types_of_a_file(tmp_path: Path) -> None:
    requirements = [
        {"key": names.ZONE_LABEL, "operator": "In", "values": ["a"]},
        {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]},
    ]
    type_ = {
        "name": "tiny",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "1", "memory": "1Gi"},
        "offerings": [{"requirements": requirements, "price": 1.0, "available": True}],
    }
    file = tmp_path / "types.json"
    file.write_text(json.dumps([type_]))
    options = told(f"--instance-types-file-path={file}")
    assert options.instance_types is not None
    assert [found.name for found in options.instance_types] == ["tiny"]


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--metrics-port=http", "not a valid integer"),
        ("--metrics-port=70000", "70000 is not in the range"),
        ("--kube-client-qps=0", "0 is not in the range"),
        ("--log-level=loud", "'loud' is not one of"),
        ("--preference-policy=Maybe", "'Maybe' is not one of"),
        ("--disable-leader-election=yes", "'yes' is neither true nor false"),
        ("--feature-gates=NodeRepair", "'NodeRepair' is not of the form Gate=true or Gate=false"),
        ("--feature-gates=NodeRepair=on", "'NodeRepair=on' is not of the form"),
        ("--batch-max-duration=10", "'10' is not a duration"),
        ("--batch-max-duration=0s", "'0s' is not a positive duration"),
        ("--scheduler-config={x: 1}", "unknown field"),
        ("--scheduler-config=/nowhere/scheduler.yaml", "/nowhere/scheduler.yaml: No such file or directory"),
        ("--scheduler-config={", "not YAML"),
        ("--scheduler-config={podTopologySpread: {defaultConstraints: [{maxSkew: 1}]}}", "is required"),
        ("--instance-types-file-path=/nowhere/types.json", "/nowhere/types.json: No such file or directory"),
        ("--log-output-paths=stdout,,x", "holds an empty path"),
        ("--budget-reading=none", "'none' is not one of"),
        ("--no-such-option", "No such option"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(dovetail: Program, argument: str, complaint: str) -> None:
    outcome = dovetail("run", argument)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert complaint in outcome.err


def test_a_bad_variable_is_named(dovetail: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICS_PORT", "http")
    outcome = dovetail("run")
    assert outcome.code == 2
    assert "METRICS_PORT" in outcome.err


def test_a_log_that_cannot_be_opened(dovetail: Program) -> None:
    outcome = dovetail("run", "--log-output-paths=/nowhere/log")
    assert (outcome.code, outcome.err) == (2, "dovetail: cannot log to /nowhere/log: No such file or directory\n")


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def kubeconfig(server: str) -> str:
    return f"""
        current-context: c
        contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
        clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
        users: [{{name: u, user: {{token: secret}}}}]
    """


@pytest.mark.usefixtures("logging_as_before")
def test_a_cluster_that_cannot_be_reached_is_exit_code_3(dovetail: Program) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        file = dovetail.file(kubeconfig(f"http://127.0.0.1:{taken.getsockname()[1]}"))
        outcome = dovetail("run", "--kubeconfig", file)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (3, "", 1)
    assert outcome.err.startswith("dovetail: the cluster cannot be reached: ")


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("arguments", [["--kubeconfig", "/nowhere/config"], ["--context", "other"]])
def test_a_configuration_that_cannot_be_used_is_exit_code_2(dovetail: Program, arguments: list[str]) -> None:
    file = dovetail.file(kubeconfig("http://127.0.0.1:1"))
    outcome = dovetail("run", *(arguments if "--kubeconfig" in arguments else ["--kubeconfig", file, *arguments]))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)


def test_the_help_says_where_it_listens(dovetail: Program) -> None:
    outcome = dovetail("run", "--help")
    assert outcome.code == 0
    assert "127.0.0.1 elsewhere" in " ".join(outcome.out.split())
