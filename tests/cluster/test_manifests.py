"""Does a real server take everything that `dovetail manifests` prints?"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from dovetail.api.manifests import manifests
from tests.cluster.access import Cluster

PLURALS = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "Deployment": "deployments",
    "Service": "services",
    "PodDisruptionBudget": "poddisruptionbudgets",
}
# Others use the control plane too: what would run or be shared by name is only checked.
CHECKED = {"CustomResourceDefinition", "Deployment"}


def path_of(body: dict[str, Any]) -> str:
    group, _, version = body["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    namespace = body["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{inside}/{PLURALS[body['kind']]}/{body['metadata']['name']}"


@pytest.fixture
def somewhere(control_plane: Cluster, unique_name: Callable[[str], str]) -> Iterator[str]:
    name = unique_name("dovetail")
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")
    for plural in ("clusterroles", "clusterrolebindings"):
        control_plane.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{plural}/dovetail")


def test_everything_can_be_applied_twice(cluster_with_crds: Cluster, somewhere: str) -> None:
    bodies = list(yaml.safe_load_all(manifests(namespace=somewhere, image="dovetail-k8s:test")))
    assert {body["kind"] for body in bodies} == set(PLURALS)
    for body in [*bodies, *bodies]:
        only = "&dryRun=All" if body["kind"] in CHECKED else ""
        query = f"fieldManager=test&force=true&fieldValidation=Strict{only}"
        cluster_with_crds.patch(f"{path_of(body)}?{query}", body, kind="apply")


def test_the_pod_is_let_into_a_restricted_namespace(cluster_with_crds: Cluster, somewhere: str) -> None:
    bodies = {body["kind"]: body for body in yaml.safe_load_all(manifests(namespace=somewhere, image="i:1"))}
    assert bodies["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for kind in ("Namespace", "ServiceAccount"):
        cluster_with_crds.patch(f"{path_of(bodies[kind])}?fieldManager=test", bodies[kind], kind="apply")
    template = bodies["Deployment"]["spec"]["template"]
    pods = f"/api/v1/namespaces/{somewhere}/pods?dryRun=All"
    made = cluster_with_crds.create(pods, {"metadata": {"name": "one"}, "spec": template["spec"]})
    assert made["spec"]["priority"] == 2_000_000_000
    # The namespace does refuse what is not restricted.
    loose = {"metadata": {"name": "two"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    assert cluster_with_crds.request("POST", pods, loose).status == 403
