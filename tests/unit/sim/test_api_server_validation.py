"""Which objects does the simulated API server refuse? The table of the CRDs, and the rules of built-in kinds."""

from typing import Any

import pytest

from dovetail.api.crds import load_crds
from dovetail.api.schema import crd_schema
from dovetail.ports import (
    EVENTS,
    KWOK_NODECLASSES,
    LEASES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    Create,
    Invalid,
    Patch,
    Resource,
)
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.cel import KNOWN_RULES, rule_texts
from tests.harness.stage import stage
from tests.unit.api.crd_cases import CASES, Case, nodeclaim, nodeclass, nodepool
from tests.unit.sim.test_api_server import NOW, RAW, RAW_NODES, pod, run

pytestmark = stage(run)

OURS: dict[str, Resource[Any]] = {
    resource.kind: resource.read_as(RAW) for resource in (NODEPOOLS, NODECLAIMS, KWOK_NODECLASSES)
}


# -- custom resources -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_table_of_the_crds(server: ApiServer, case: Case) -> None:
    resource = OURS[case.new["kind"]]

    async def write(server: ApiServer) -> None:
        if case.old is None:
            await server.write(Create(resource, case.new))  # a status has no effect here, whatever it is
        else:
            await server.write(Create(resource, case.old))
            dropped = {key: None for key in case.old["spec"] if key not in case.new["spec"]}
            await server.write(Patch(resource, "example", {"spec": {**case.new["spec"], **dropped}}))
        if "status" in case.new:
            await server.write(Patch(resource, "example", {"status": case.new["status"]}, subresource="status"))

    if case.error is None:
        await write(server)
        return
    with pytest.raises(Invalid) as caught:
        await write(server)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.message.startswith(f'{resource.kind}.{resource.group} "example" is invalid: ')
    assert case.error in caught.value.message


def test_every_cel_rule_has_its_counterpart_and_none_is_left_over() -> None:
    kinds = [crd["spec"]["names"]["kind"] for crd in load_crds()]
    texts = {text for kind in kinds for text in rule_texts(crd_schema(kind) or {})}
    assert texts == KNOWN_RULES.keys()


async def test_unknown_fields_are_pruned_and_defaults_filled_in(server: ApiServer) -> None:
    pool = nodepool({"wieght": 5, "disruption": {"budgets": [{"nodez": "1"}]}})
    made = await server.write(Create(OURS["NodePool"], pool))
    assert "wieght" not in made["spec"]
    assert made["spec"]["disruption"] == {
        "budgets": [{"nodes": "10%"}],
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
        "gracefulExpireAfter": "Never",
    }
    changed = await server.write(Patch(OURS["NodePool"], "example", {"spec": {"nonsense": 1}}))
    assert changed["metadata"] == made["metadata"]  # nothing of it is left, so nothing was written


async def test_a_node_class_is_ready_from_the_start(server: ApiServer) -> None:
    made = await server.write(Create(OURS["KWOKNodeClass"], nodeclass() | {"status": {"conditions": []}}))
    assert [(c["type"], c["status"]) for c in made["status"]["conditions"]] == [("Ready", "True")]


async def test_all_faults_are_told(server: ApiServer) -> None:
    with pytest.raises(Invalid) as caught:
        await server.write(Create(OURS["NodePool"], nodepool({"weight": 0, "replicas": -1})))
    assert "spec.weight" in caught.value.message
    assert "spec.replicas" in caught.value.message


async def test_custom_resources_take_any_finalizer_and_no_unknown_metadata(server: ApiServer) -> None:
    body = nodeclaim() | {"metadata": {"name": "example", "finalizers": ["plain"], "unknown": 1}}
    meta = (await server.write(Create(OURS["NodeClaim"], body)))["metadata"]
    assert (meta["finalizers"], "unknown" in meta) == (["plain"], False)


async def test_an_immutable_spec_takes_the_same_spec(server: ApiServer) -> None:
    await server.write(Create(OURS["NodeClaim"], nodeclaim()))
    patch = {"spec": nodeclaim()["spec"], "metadata": {"labels": {"a": "b"}}}
    assert (await server.write(Patch(OURS["NodeClaim"], "example", patch)))["metadata"]["generation"] == 1
    body = {"spec": {"expireAfter": "1h"}}
    with pytest.raises(Invalid, match="spec is immutable"):
        await server.write(Patch(OURS["NodeClaim"], "example", body))


# -- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"name": "a/b"}, "metadata.name"),
        ({"name": "x" * 254}, "metadata.name"),
        ({"labels": {"-a": "b"}}, "metadata.labels"),
        ({"labels": {"a": "b c"}}, "metadata.labels"),
        ({"labels": {"a": "x" * 64}}, "metadata.labels"),
        ({"labels": {"Example.com/a": "b"}}, "metadata.labels"),
        ({"labels": {"a": 1}}, "cannot unmarshal"),
        ({"annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"annotations": {"a": True}}, "cannot unmarshal"),
        ({"annotations": {"a": "x" * 262_144}}, "Too long"),
        ({"finalizers": ["plain"]}, "metadata.finalizers[0]"),
        ({"finalizers": ["a b/c"]}, "metadata.finalizers"),
        ({"ownerReferences": [{"kind": "Pod"}]}, 'metadata.ownerReferences.uid: Invalid value: "": must not be empty'),
        (
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": "a", "uid": u, "controller": True} for u in "12"
                ]
            },
            "Only one reference can have Controller set to true",
        ),
    ],
)
async def test_metadata_that_is_refused(server: ApiServer, metadata: dict[str, Any], problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        await server.write(Create(NODES, {"metadata": {"name": "n", **metadata}}))
    assert problem in caught.value.message


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"Example": "", "example.com/A.b_c-d": "X.y_z-1"}},
        {"annotations": {"Example.Com/a": "any thing"}},
        {"finalizers": ["orphan", "example.com/x"]},
        {"name": "a.b-c.1"},
    ],
)
async def test_metadata_that_is_accepted(server: ApiServer, metadata: dict[str, Any]) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n", **metadata}}))


# -- built-in kinds ---------------------------------------------------------------------------------------------------


def spec(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": fields}


@pytest.mark.parametrize(
    ("resource", "body", "problem"),
    [
        (PODS, spec(), "spec.containers: Required value"),
        (PODS, spec(containers=[{"name": "a"}]), "spec.containers[0].image: Required value"),
        (PDBS, spec(minAvailable=1, maxUnavailable=1), "minAvailable and maxUnavailable cannot be both set"),
        (PDBS, spec(minAvailable="ten"), "spec.minAvailable"),
        (PDBS, spec(maxUnavailable="101%"), "must not be greater than 100%"),
        (PDBS, spec(maxUnavailable=-1), "must be greater than or equal to 0"),
        (PDBS, spec(unhealthyPodEvictionPolicy="Never"), "spec.unhealthyPodEvictionPolicy"),
        (LEASES, spec(leaseDurationSeconds=0), "spec.leaseDurationSeconds"),
        (LEASES, spec(leaseTransitions=-1), "spec.leaseTransitions"),
        (EVENTS, {"metadata": {"name": "e"}, "eventTime": NOW}, "cannot parse"),
        (EVENTS, {"metadata": {"name": "e"}}, "eventTime: Required value"),
    ],
)
async def test_namespaced_objects_that_are_refused(
    server: ApiServer, resource: Resource[Any], body: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await server.write(Create(resource, body, namespace="default"))
    assert problem in caught.value.message


@pytest.mark.parametrize(
    ("taints", "problem"),
    [
        ([{"key": "a", "effect": "Never"}], "Unsupported value"),
        ([{"key": "a"}], "effect: Required value"),
        ([{"key": "a b", "effect": "NoSchedule"}], "key: Invalid value"),
        ([{"key": "a", "value": "b c", "effect": "NoSchedule"}], "value: Invalid value"),
        ([{"key": "a", "effect": "NoSchedule"}] * 2, "taints must be unique by key and effect pair"),
    ],
)
async def test_taints_that_are_refused(server: ApiServer, taints: list[Any], problem: str) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    with pytest.raises(Invalid, match=problem):
        await server.write(Patch(NODES, "n", {"spec": {"taints": taints}}))


async def test_the_provider_id_of_a_node_is_set_once(server: ApiServer) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    assert (await server.write(Patch(RAW_NODES, "n", {"spec": {"providerID": "kwok://n"}})))["spec"]["providerID"]
    for value in ("kwok://m", None):
        with pytest.raises(Invalid, match="node updates may not change providerID"):
            await server.write(Patch(NODES, "n", {"spec": {"providerID": value}}))


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({"nodeName": "node-1"}, False),  # only a binding does this
        ({"priority": 5}, False),
        ({"terminationGracePeriodSeconds": 5}, False),
        ({"tolerations": []}, True),  # those that every pod has are put back
        ({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}, False),
        ({"activeDeadlineSeconds": 60}, True),
        ({"containers": [{"name": "main", "image": "web:2"}]}, True),
        ({"containers": [{"name": "other", "image": "web"}]}, False),
    ],
)
async def test_what_can_change_in_a_pod(server: ApiServer, change: dict[str, Any], accepted: bool) -> None:
    await server.write(Create(PODS, pod(), namespace="default"))
    if accepted:
        await server.write(Patch(PODS, "web-1", {"spec": change}, namespace="default"))
        return
    with pytest.raises(Invalid, match="Forbidden"):
        await server.write(Patch(PODS, "web-1", {"spec": change}, namespace="default"))
