"""The options of `dovetail guard`, and how it refuses to start."""

from datetime import timedelta

import click
import pytest
import yaml
from click.testing import CliRunner

from dovetail.api import names
from dovetail.cli.beside.options import GuardRunOptions, guard_options
from dovetail.values.selector import make_selector
from tests.unit.cli.running import Program


def told(*arguments: str) -> GuardRunOptions:
    """What guard would run with."""
    seen: list[GuardRunOptions] = []

    @click.command()
    @guard_options
    def command(options: GuardRunOptions) -> None:
        seen.append(options)

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_defaults() -> None:
    options = told()
    assert options.lead == timedelta(minutes=10)
    assert options.leader_election_name == names.BESIDE_LEASE
    assert options.nodepool_selector.matches({})
    assert (options.metrics_port, options.health_probe_port) == (8080, 8081)
    assert not options.dry_run


def test_values() -> None:
    options = told("--lead=2m30s", "--nodepool-selector=team in (a, b),!old", "--dry-run")
    assert options.lead == timedelta(seconds=150)
    assert options.nodepool_selector == make_selector(None, [("team", "In", ["a", "b"]), ("old", "DoesNotExist", [])])
    assert options.dry_run


@pytest.mark.parametrize(
    ("argument", "flaw"),
    [
        ("--lead=soon", "soon"),
        ("--lead=-1s", "is not between 0s and 24h"),
        ("--lead=25h", "is not between 0s and 24h"),
        ("--karpenter-version=new", "is not a version"),
        ("--leader-election-name=own", "No such option"),
        ("--nodepool-selector=a in", "unable to parse requirement"),
        ("--nodepool-selector=a in ()x", "unable to parse requirement"),
    ],
)
def test_a_value_that_cannot_be_read_ends_it(dovetail: Program, argument: str, flaw: str) -> None:
    outcome = dovetail("guard", argument)
    assert (outcome.code, outcome.out) == (2, "")
    assert flaw in outcome.err
    assert outcome.err.count("\n") == 1


def test_manifests_of_guard(dovetail: Program) -> None:
    outcome = dovetail("manifests", "--mode", "guard")
    assert (outcome.code, outcome.err) == (0, "")
    found = list(yaml.safe_load_all(outcome.out))
    assert "CustomResourceDefinition" not in {each["kind"] for each in found}, "Karpenter's own stay"
    (deployment,) = (each for each in found if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["guard"]
    assert "DASHBOARD_PORT" not in {each["name"] for each in container["env"]}
    verbs = {
        (resource, verb)
        for each in found
        if each["kind"] in ("ClusterRole", "Role")
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    writes = {(resource, verb) for resource, verb in verbs if verb not in ("get", "list", "watch")}
    assert writes == {
        ("nodes", "patch"),
        ("nodeclaims", "patch"),
        ("events", "create"),
        ("events", "patch"),
        ("leases", "create"),
        ("leases", "patch"),
    }


def test_only_with_hold_pods_there_is_a_right_to_write_to_pods(dovetail: Program) -> None:
    with_it = dovetail("manifests", "--mode", "guard", "--hold-pods").out
    assert "- --hold-pods" in with_it
    (role,) = (each for each in yaml.safe_load_all(with_it) if each["kind"] == "ClusterRole")
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]} in role["rules"]
    refused = dovetail("manifests", "--hold-pods")
    assert refused.code == 2
    assert "--mode guard" in refused.err
