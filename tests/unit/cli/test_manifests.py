"""What `dovetail manifests` prints."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from dovetail import __version__
from dovetail.api.manifests.admission import CRON, DURATION
from dovetail.values.duration import DurationError, parse_duration
from dovetail.values.schedule.cron import CronError, parse_cron
from tests.unit.cli.running import Program

GOLDEN = Path(__file__).parents[2] / "golden"


def printed(dovetail: Program, *arguments: str) -> list[dict[str, Any]]:
    outcome = dovetail("manifests", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return list(yaml.safe_load_all(outcome.out))


def test_everything_is_there_in_order(dovetail: Program) -> None:
    assert [(found["kind"], found["metadata"].get("namespace")) for found in printed(dovetail)] == [
        ("CustomResourceDefinition", None),
        ("CustomResourceDefinition", None),
        ("CustomResourceDefinition", None),
        ("Namespace", None),
        ("ServiceAccount", "dovetail-system"),
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "dovetail-system"),
        ("RoleBinding", "dovetail-system"),
        ("ValidatingAdmissionPolicy", None),
        ("ValidatingAdmissionPolicyBinding", None),
        ("Deployment", "dovetail-system"),
        ("Service", "dovetail-system"),
        ("PodDisruptionBudget", "dovetail-system"),
    ]


def test_nothing_is_updated_and_nothing_is_everything(dovetail: Program) -> None:
    for role in printed(dovetail, "--only", "rbac"):
        for rule in role.get("rules", []):
            assert "update" not in rule["verbs"]
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_the_deployment(dovetail: Program) -> None:
    deployment, service, budget = printed(
        dovetail, "--only", "deployment", "--image", "example.test/d:1", "-n", "infra"
    )
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["metadata"]["namespace"] == "infra"
    assert container["image"] == "example.test/d:1"
    assert container["args"] == ["run"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pod["priorityClassName"] == "system-cluster-critical"
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}


def test_default_spread_constraints_come_with_their_rights(dovetail: Program) -> None:
    file = str(Path(__file__).parents[3] / "examples" / "scheduler-config.yaml")
    needed = {"services", "replicasets", "statefulsets", "replicationcontrollers"}

    def parts(*arguments: str) -> tuple[set[str], dict[str, str]]:
        (role,) = (found for found in printed(dovetail, *arguments) if found["kind"] == "ClusterRole")
        (deployment,) = (found for found in printed(dovetail, *arguments) if found["kind"] == "Deployment")
        env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        resources = {resource for rule in role["rules"] for resource in rule["resources"]}
        return resources & needed, {each["name"]: each.get("value", "") for each in env}

    rights, variables = parts("--scheduler-config", file)
    assert rights == needed
    assert variables["SCHEDULER_CONFIG"] == Path(file).read_text()
    rights, variables = parts()
    assert not rights
    assert "SCHEDULER_CONFIG" not in variables
    system = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}"
    assert parts("--scheduler-config", system)[0] == set()


def test_the_image_is_of_this_version(dovetail: Program) -> None:
    deployment = printed(dovetail, "--only", "deployment")[0]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"dovetail-k8s:{__version__}"


def test_a_namespace_of_the_system_is_left_as_it_is(dovetail: Program) -> None:
    kinds = [found["kind"] for found in printed(dovetail, "--namespace", "kube-system")]
    assert "Namespace" not in kinds


def test_parts_can_be_combined(dovetail: Program) -> None:
    kinds = {found["kind"] for found in printed(dovetail, "--only", "crds", "--only", "admission")}
    assert kinds == {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert dovetail("manifests", "--only", "everything").code == 2


def test_the_policy_warns_and_refuses_nothing(dovetail: Program) -> None:
    policy, binding = printed(dovetail, "--only", "admission")
    assert policy["spec"]["failurePolicy"] == "Ignore"
    assert binding["spec"]["validationActions"] == ["Warn", "Audit"]
    # The server cuts warnings off, so that the point must come early.
    assert all(len(validation["message"]) < 170 for validation in policy["spec"]["validations"])


# -- the forms that the policy goes by ---------------------------------------------------------------------------------


def test_no_schedule_that_we_can_read_is_warned_of() -> None:
    readable = 0
    for case in json.loads((GOLDEN / "cron.json").read_text()):
        text = case["text"].strip()
        try:
            parse_cron(text)
        except CronError:
            continue
        readable += 1
        # White space that only Go and we know is let down.
        assert re.fullmatch(CRON, text, re.ASCII) or not text.isascii() or "\v" in text, text
    assert readable > 100


def test_exactly_gos_positive_durations_have_the_form() -> None:
    for text, _ in json.loads((GOLDEN / "duration.json").read_text()):
        try:
            expected = parse_duration(text) >= 0 and text not in ("0", "+0", "-0") and not text.startswith("-")
        except DurationError as error:
            if "too long" in str(error) or "characters" in str(error):  # which the form does not tell
                continue
            expected = False
        assert (re.fullmatch(DURATION, text, re.ASCII) is not None) == expected, text
