"""Which evictions does the simulated API server allow, and what does it write?"""

from typing import Any

import pytest

from dovetail.ports import PDBS, PODS, Conflict, Create, Evict, InternalError, NotFound, Patch, TooManyRequests
from dovetail.sim.server.api_server import ApiServer
from tests.harness.stage import stage
from tests.unit.sim.test_api_server import NOW, RAW_PDBS, RAW_PODS, pod, run, running_pod

pytestmark = stage(run)

WEB = {"app": "web"}
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


async def budget(
    server: ApiServer, name: str = "guard", *, selector: Any = WEB, spec: Any = None, **status: Any
) -> None:
    """A PDB whose status says what the disruption controller would have said."""
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": selector}, **(spec or {})}}
    await server.write(Create(PDBS, body, namespace="default"))
    told = {"observedGeneration": 1, "disruptionsAllowed": 0, **status}
    await server.write(Patch(PDBS, name, {"status": told}, namespace="default", subresource="status"))


async def status_of(server: ApiServer, name: str = "guard") -> Any:
    return (await server.get(RAW_PDBS, name, namespace="default"))["status"]


async def is_deleting(server: ApiServer, name: str = "web-1") -> bool:
    return "deletionTimestamp" in (await server.get(RAW_PODS, name, namespace="default"))["metadata"]


async def test_without_a_budget_a_pod_is_deleted_with_its_grace(server: ApiServer) -> None:
    await running_pod(server)
    await server.write(Evict("web-1", namespace="default"))
    evicted = await server.get(RAW_PODS, "web-1", namespace="default")
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 30
    told = evicted["status"]["conditions"][-1]
    assert {key: told[key] for key in ("type", "status", "reason", "message", "lastTransitionTime")} == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": NOW,
    }
    with pytest.raises(NotFound):
        await server.write(Evict("web-2", namespace="default"))


async def test_a_budget_is_taken_from(server: ApiServer) -> None:
    for number in (1, 2, 3):
        await running_pod(server, f"web-{number}", labels=WEB)
    await budget(server, disruptionsAllowed=2, currentHealthy=3, desiredHealthy=1, expectedPods=3)
    await server.write(Evict("web-1", namespace="default"))
    status = await status_of(server)
    assert (status["disruptionsAllowed"], status["disruptedPods"]) == (1, {"web-1": NOW})
    assert "conditions" not in status
    await server.write(Evict("web-2", namespace="default", grace_seconds=5))
    status = await status_of(server)
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["web-1", "web-2"])
    assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [
        ("DisruptionAllowed", "False", "InsufficientPods")
    ]
    with pytest.raises(TooManyRequests) as caught:
        await server.write(Evict("web-3", namespace="default"))
    assert (caught.value.code, caught.value.retry_after) == (429, 0)
    assert caught.value.message == (f"{REFUSED} The disruption budget guard does not allow evicting pods currently")
    assert not await is_deleting(server, "web-3")
    assert (await server.get(RAW_PODS, "web-2", namespace="default"))["metadata"]["deletionGracePeriodSeconds"] == 5


@pytest.mark.parametrize(
    ("reason", "why"),
    [("SyncFailed", "because it failed sync: broken"), ("InsufficientPods", "(InsufficientPods): broken")],
)
async def test_a_budget_says_what_its_controller_said(server: ApiServer, reason: str, why: str) -> None:
    await running_pod(server, labels=WEB)
    told = {"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "broken"}
    condition = {**told, "lastTransitionTime": NOW}
    await budget(server, currentHealthy=2, desiredHealthy=1, conditions=[condition])
    with pytest.raises(TooManyRequests) as caught:
        await server.write(Evict("web-1", namespace="default"))
    assert caught.value.message == (
        f"{REFUSED} The disruption budget guard does not allow evicting pods currently {why}"
    )


async def test_a_spent_budget_says_how_many_it_needs(server: ApiServer) -> None:
    await running_pod(server, labels=WEB)
    await budget(server, currentHealthy=2, desiredHealthy=2, expectedPods=2)
    with pytest.raises(TooManyRequests) as caught:
        await server.write(Evict("web-1", namespace="default"))
    assert caught.value.message == f"{REFUSED} The disruption budget guard needs 2 healthy pods and has 2 currently"


async def test_evicting_again_what_is_deleting_takes_nothing(server: ApiServer) -> None:
    await running_pod(server, labels=WEB)
    await budget(server, disruptionsAllowed=1)
    await server.write(Evict("web-1", namespace="default"))
    await server.write(Evict("web-1", namespace="default"))
    assert (await status_of(server))["disruptionsAllowed"] == 0


async def test_a_budget_not_yet_looked_at_refuses_for_ten_seconds(server: ApiServer) -> None:
    await running_pod(server, labels=WEB)
    body = {"metadata": {"name": "guard"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": WEB}}}
    await server.write(Create(PDBS, body, namespace="default"))
    with pytest.raises(TooManyRequests) as caught:
        await server.write(Evict("web-1", namespace="default"))
    assert caught.value.message == f"{REFUSED} The disruption budget guard is still being processed by the server."
    assert caught.value.retry_after == 10


async def test_two_budgets_are_an_internal_error(server: ApiServer) -> None:
    await running_pod(server, labels=WEB)
    await budget(server, "one", disruptionsAllowed=1)
    await budget(server, "two", disruptionsAllowed=1)
    with pytest.raises(InternalError) as caught:
        await server.write(Evict("web-1", namespace="default"))
    assert caught.value.code == 500
    assert caught.value.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


@pytest.mark.parametrize(
    ("spec", "healthy", "desired", "evicted"),
    [
        ({}, 2, 2, True),  # IfHealthyBudget: the application is not disrupted now
        ({}, 1, 2, False),
        ({}, 0, 0, False),  # nothing is desired, so nothing says that it is healthy
        ({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}, 2, 2, True),
        ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, 1, 2, True),
    ],
)
async def test_pods_that_are_not_ready(
    server: ApiServer, spec: dict[str, Any], healthy: int, desired: int, evicted: bool
) -> None:
    await running_pod(server, labels=WEB, ready=False)
    await budget(server, spec=spec, currentHealthy=healthy, desiredHealthy=desired)
    if evicted:
        await server.write(Evict("web-1", namespace="default"))
        assert "disruptedPods" not in await status_of(server)  # it does not count
    else:
        with pytest.raises(TooManyRequests):
            await server.write(Evict("web-1", namespace="default"))


async def test_pending_and_finished_pods_pass_by_the_budget(server: ApiServer) -> None:
    await budget(server)
    await server.write(Create(PODS, pod("pending", labels=WEB), namespace="default"))
    await running_pod(server, "failed", labels=WEB)
    await server.write(
        Patch(PODS, "failed", {"status": {"phase": "Failed"}}, namespace="default", subresource="status")
    )
    for name in ("pending", "failed"):
        await server.write(Evict(name, namespace="default"))
        with pytest.raises(NotFound):
            await server.get(PODS, name, namespace="default")


async def test_another_pod_of_the_same_name_is_not_evicted(server: ApiServer) -> None:
    await running_pod(server)
    with pytest.raises(Conflict, match="the UID in the precondition"):
        await server.write(Evict("web-1", namespace="default", uid="other"))
    assert not await is_deleting(server)


async def test_selectors_of_budgets(server: ApiServer) -> None:
    await running_pod(server, labels=WEB)
    await budget(server, "other", selector={"app": "db"})
    await server.write(Create(PDBS, {"metadata": {"name": "none"}, "spec": {"maxUnavailable": 0}}, namespace="default"))
    await server.write(Evict("web-1", namespace="default"))
    await running_pod(server, "web-2", labels=WEB)
    everything = {"metadata": {"name": "all"}, "spec": {"maxUnavailable": 0, "selector": {}}}
    await server.write(Create(PDBS, everything, namespace="default"))
    with pytest.raises(TooManyRequests):
        await server.write(Evict("web-2", namespace="default"))
