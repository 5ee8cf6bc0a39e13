"""The options of `dovetail drive`, its manifests, and how it refuses to start."""

import click
import pytest
import yaml
from click.testing import CliRunner

from dovetail.api import names
from dovetail.cli.beside.options import DriveRunOptions, drive_options
from dovetail.model.rule_settings import BudgetSemantics
from tests.unit.cli.running import Program


def told(*arguments: str) -> DriveRunOptions:
    """What drive would run with."""
    seen: list[DriveRunOptions] = []

    @click.command()
    @drive_options
    def command(options: DriveRunOptions) -> None:
        seen.append(options)

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_defaults() -> None:
    options = told()
    assert options.leader_election_name == names.BESIDE_LEASE
    assert options.budget_reading == BudgetSemantics.SEED
    assert options.instance_types is None
    assert options.nodepool_selector.matches({})
    assert not options.dry_run


@pytest.mark.parametrize(
    ("argument", "flaw"),
    [("--nodepool-selector=a in", "unable to parse requirement"), ("--instance-types-file-path=/nowhere", "/nowhere")],
)
def test_a_value_that_cannot_be_read_ends_it(dovetail: Program, argument: str, flaw: str) -> None:
    outcome = dovetail("drive", argument)
    assert (outcome.code, outcome.out) == (2, "")
    assert flaw in outcome.err
    assert outcome.err.count("\n") == 1


def test_manifests_of_drive(dovetail: Program) -> None:
    """No right to evict or delete pods, to create or delete Nodes, or to edit NodePools (10 §I.6)."""
    outcome = dovetail("manifests", "--mode", "drive")
    assert (outcome.code, outcome.err) == (0, "")
    documents = list(yaml.safe_load_all(outcome.out))
    (role,) = [each for each in documents if each["kind"] == "ClusterRole"]
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert {verb for resource, verb in granted if resource == "pods"} == {"list", "watch"}
    assert {verb for resource, verb in granted if resource == "nodes"} == {"list", "watch", "patch"}
    assert {verb for resource, verb in granted if resource == "nodepools"} == {"list", "watch"}
    assert not [resource for resource, _ in granted if resource in ("pods/eviction", "nodepools/status")]
    assert ("nodeclaims/status", "patch") in granted
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"] == ["drive"]
    assert not [each for each in documents if each["kind"] == "CustomResourceDefinition"]
