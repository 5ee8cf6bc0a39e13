"""Drive beside a real Karpenter of its own, within its rights, while either of them dies in the middle."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from math import ceil
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.manifests.rbac import RIGHTS, rbac
from dovetail.controllers.beside.driven_cluster import DrivenCluster
from dovetail.controllers.beside.driving import DriveOptions, drive_controllers
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.kube import connect
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import Patch
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import ThreadCompute
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Manager
from dovetail.sim.actors.wire import Raw, deleting
from tests.cluster.access import eventually
from tests.cluster.plane import ControlPlane
from tests.cluster.run_process import RunProcess
from tests.cluster.test_manifests import path_of
from tests.cluster.test_run import CLAIMS, POOLS, account_kubeconfig, asked, is_account, requests_of
from tests.contract.bodies import NODECLASSES
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.provisioning import BIG, OF_FOUR
from tests.peer.process import PeerProcess, load_crds
from tests.peer.test_alone import LoneKarpenter, alone
from tests.peer.test_guard import annotations_of

__all__ = ["alone"]

TAINT, RECORD = names.BESIDE_DISRUPTED_TAINT, names.DISRUPTION_COMMAND
NODES: Final = "/api/v1/nodes"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
CLASSES: Final = f"/apis/{names.KWOK_API_VERSION}/kwoknodeclasses"
GATE_SECONDS: Final = 30
# After a lost reply, and for an event that is told again.
SELDOM: Final = {(names.GROUP, "nodeclaims", "get"), ("events.k8s.io", "events", "patch")}
ENOUGH: Final = 150  # seconds for one replacement on a busy machine


@pytest.fixture
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlPlane]:
    if not request.config.getoption("--peer", default=False):
        pytest.skip("only with --peer")
    with ControlPlane(tmp_path / "plane", audit="Metadata") as plane:
        plane.install_crds(load_crds())
        for body in rbac("dovetail-system", mode=names.DovetailMode.DRIVE):
            plane.patch(f"{path_of(body)}?fieldManager=test&force=true", body, kind="apply")
        yield plane


def listed(plane: ControlPlane, path: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in plane.get(path)["items"]}


def annotations(body: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = body["metadata"].get("annotations") or {}
    return found


def tainted(plane: ControlPlane) -> list[str]:
    return [
        name
        for name, node in listed(plane, NODES).items()
        if names.BESIDE_DISRUPTED_TAINT in [each["key"] for each in node["spec"].get("taints") or ()]
    ]


def disrupted(plane: ControlPlane) -> set[str]:
    """The Nodes that are being replaced."""
    leaving = [node for node, body in listed(plane, NODES).items() if deleting(body)]
    claims = [body["status"].get("nodeName", "") for body in listed(plane, CLAIMS).values() if deleting(body)]
    return {*tainted(plane), *leaving, *claims} - {""}


def ready(plane: ControlPlane, app: str) -> int:
    return int(plane.get(f"{DEPLOYMENTS}/{app}")["status"].get("readyReplicas", 0))


def wait(is_so: Callable[[], bool], seconds: float = ENOUGH) -> None:
    eventually(is_so, seconds=seconds, what=lambda: "it did not happen")


def new_edition(plane: ControlPlane, edition: str) -> None:
    """Let all nodes of the pool drift."""
    plane.patch(f"{POOLS}/default", {"spec": {"template": {"metadata": {"labels": {"edition": edition}}}}})


def test_karpenter_is_the_hands_of_drive(plane: ControlPlane, tmp_path: Path) -> None:
    with PeerProcess(plane, leads=True) as karpenter:
        karpenter.wait_ready()
        plane.create(CLASSES, {**node_class(), "spec": {"nodeRegistrationDelay": "5s"}})
        told = {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}
        body = node_pool(template={"requirements": [OF_FOUR]}, disruption=told)
        body["metadata"]["annotations"] = {names.OWN_BUDGETS: '[{"nodes": "1"}]'}
        plane.create(POOLS, body)
        plane.create(DEPLOYMENTS, manifests.deployment("web", replicas=2, cpu=BIG, terminationGracePeriodSeconds=1))
        wait(lambda: ready(plane, "web") == 2)
        kubeconfig = account_kubeconfig(plane, tmp_path)
        where = "--leader-election-namespace=dovetail-system"
        with RunProcess(plane, where, kubeconfig=kubeconfig, mode="drive") as replica:
            replica.wait_leading()
            replica.wait_for(lambda: all(names.HELD in annotations(each) for each in listed(plane, NODES).values()))
            old = set(listed(plane, CLAIMS))
            new_edition(plane, "2")
            replica.wait_for(lambda: not old & set(listed(plane, CLAIMS)), seconds=GATE_SECONDS + 2 * ENOUGH)
            replica.wait_for(lambda: ready(plane, "web") == 2, seconds=ENOUGH)
            assert all(names.REPLACEMENT_OF in annotations(each) for each in listed(plane, CLAIMS).values())

            # A machine that its provider is about to start when it dies never comes, so they start at once from here.
            plane.patch(f"{CLASSES}/default", {"spec": {"nodeRegistrationDelay": "0s"}})
            old = set(listed(plane, CLAIMS))
            new_edition(plane, "3")
            replica.wait_for(lambda: bool(tainted(plane)), seconds=ENOUGH)
            karpenter.process.kill()
            with PeerProcess(plane, leads=True) as again:
                again.wait_ready()
                replica.wait_for(lambda: not old & set(listed(plane, CLAIMS)), seconds=3 * ENOUGH)
                replica.wait_for(lambda: ready(plane, "web") == 2, seconds=ENOUGH)

                plane.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 1}})  # one node is empty now
                replica.wait_for(lambda: len(listed(plane, CLAIMS)) == 1, seconds=ENOUGH)
        asks = requests_of(plane, is_account)
        assert [each for each in asks if each.get("responseStatus", {}).get("code") == 403] == []
        rights = RIGHTS[names.DovetailMode.DRIVE]
        granted = {
            (grant.group, resource, verb)
            for grant in (*rights.cluster, *rights.own_namespace)
            for resource in grant.resources
            for verb in grant.verbs
        }
        assert granted - {asked(each) for each in asks} <= SELDOM


def test_budgets_a_restart_in_the_middle_expiry_and_moves(plane: ControlPlane, tmp_path: Path) -> None:
    with PeerProcess(plane, leads=True) as karpenter:
        karpenter.wait_ready()
        plane.create(CLASSES, {**node_class(), "spec": {"nodeRegistrationDelay": "5s"}})
        body = node_pool(template={"requirements": [OF_FOUR]}, disruption={"consolidateAfter": "0s"})
        body["metadata"]["annotations"] = {names.OWN_BUDGETS: '[{"nodes": "0"}]'}
        plane.create(POOLS, body)
        plane.create(DEPLOYMENTS, manifests.deployment("web", replicas=4, cpu=BIG, terminationGracePeriodSeconds=1))
        wait(lambda: ready(plane, "web") == 4)
        kubeconfig = account_kubeconfig(plane, tmp_path)
        where = "--leader-election-namespace=dovetail-system"
        with RunProcess(plane, where, kubeconfig=kubeconfig, mode="drive") as replica:
            replica.wait_leading()
            old = set(listed(plane, CLAIMS))
            new_edition(plane, "2")
            with pytest.raises(TimeoutError):  # Karpenter's own budget is 10 %, and Dovetail's is 0
                wait(lambda: bool(tainted(plane)) or set(listed(plane, CLAIMS)) != old, seconds=GATE_SECONDS + 20)
            annotate_pool(plane, {names.OWN_BUDGETS: '[{"nodes": "50%"}]'})
            replica.wait_for(lambda: len(tainted(plane)) == 2, seconds=ENOUGH)
            replica.wait_for(lambda: len(listed(plane, CLAIMS)) > len(old), seconds=ENOUGH)
            replica.process.kill()
        begun = set(listed(plane, CLAIMS)) - old
        with RunProcess(plane, where, kubeconfig=kubeconfig, mode="drive") as replica:
            counts: list[int] = []

            def all_gone() -> bool:
                going, claims = disrupted(plane), set(listed(plane, CLAIMS))
                assert len(going) <= ceil(len(claims) / 2)  # replacements count as nodes too
                counts.append(len(going))
                return not old & claims

            replica.wait_for(all_gone, seconds=3 * ENOUGH)
            assert max(counts) >= 2
            assert begun <= set(listed(plane, CLAIMS)), "the ones of before take the pods"
            replica.wait_for(lambda: ready(plane, "web") == 4, seconds=ENOUGH)

            old = set(listed(plane, CLAIMS))
            only_expired = '[{"nodes": "0"}, {"nodes": "1", "reasons": ["Expired"]}]'
            annotate_pool(plane, {names.OWN_BUDGETS: only_expired, names.GRACEFUL_EXPIRE_AFTER: "1m"})
            replica.wait_for(lambda: bool(old - set(listed(plane, CLAIMS))), seconds=2 * ENOUGH)
            annotate_pool(plane, {names.OWN_BUDGETS: '[{"nodes": "1"}]', names.GRACEFUL_EXPIRE_AFTER: "Never"})

            template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
            plane.patch(
                f"{DEPLOYMENTS}/web", {"spec": {"template": template}}, kind="strategic"
            )  # two nodes are enough
            replica.wait_for(lambda: len(listed(plane, CLAIMS)) == 2, seconds=3 * ENOUGH)
            replica.wait_for(lambda: ready(plane, "web") == 4, seconds=ENOUGH)
        refused = [each for each in requests_of(plane, is_account) if each.get("responseStatus", {}).get("code") == 403]
        assert refused == []


@asynccontextmanager
async def driving(alone: LoneKarpenter, timings: Timings) -> AsyncIterator[None]:
    """Drive in this process, with timings that users cannot choose."""
    async with connect(kubeconfig=str(alone.plane.kubeconfig)) as api, asyncio.TaskGroup() as group:
        clock, stop = SystemClock(), asyncio.Event()
        cluster, karpenter = DrivenCluster(api, clock), KarpenterWatch("1.15")
        options = DriveOptions(compute=ThreadCompute())
        manager = Manager(
            api,
            clock,
            election=None,
            recorder=EventRecorder(api, clock, instance="test"),
            reflectors=cluster.reflectors,
            controllers=drive_controllers(cluster, Metrics(CollectorRegistry()), karpenter, options, timings),
        )
        group.create_task(manager.run(stop), name="drive")
        yield
        stop.set()


async def test_a_replacement_that_never_comes_is_rolled_back(alone: LoneKarpenter) -> None:
    pool = await alone.pool(guarded=True)
    app = await alone.run(pool)
    (old,) = await alone.claims(pool)
    never = {"spec": {"nodeRegistrationDelay": "1h"}}
    await alone.cluster.api.write(Patch(NODECLASSES, pool, never))
    async with driving(alone, Timings(replacement_seconds=20.0)):
        await alone.stamp(old)
        await alone.cluster.eventually(
            lambda: marks_of(alone, old), lambda found: found == {RECORD, TAINT}, timeout=ENOUGH
        )
        (new,) = [each for each in await alone.claims(pool) if each["metadata"]["uid"] != old["metadata"]["uid"]]
        await alone.cluster.eventually(lambda: marks_of(alone, old), lambda found: not found, timeout=60)
        given = await annotations_of(alone, old)
        assert given[names.DO_NOT_DISRUPT] == "true"
        assert names.HELD in given
        await alone.until_ready(app, 1)
        await alone.until_gone(new, timeout=ENOUGH)


async def marks_of(alone: LoneKarpenter, claim: Raw) -> set[str]:
    """What shows that the claim is in a command."""
    found, node = await alone.claim(claim), await alone.node(claim)
    assert found is not None
    assert node is not None
    keys = {str(taint["key"]) for taint in node["spec"].get("taints") or ()}
    return (keys & {TAINT}) | ({*found["metadata"]["annotations"]} & {RECORD})


def annotate_pool(plane: ControlPlane, told: dict[str, str]) -> None:
    plane.patch(f"{POOLS}/default", {"metadata": {"annotations": told}})
