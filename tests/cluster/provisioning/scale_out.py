"""How does a cluster without nodes get those that its pods need, on a real control plane, and what does that cost?

All controllers run in this process. What came of it is read from the API server afterwards, independently of them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.kube.client import connect
from dovetail.model.pod_records import Owner
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import Create, KubeApi
from dovetail.runtime.compute import ThreadCompute
from dovetail.sim.actors.cluster import kind_of
from dovetail.values.quantity import parse_quantity
from tests.cluster.access import Cluster as Server
from tests.cluster.provisioning.workloads import POOL
from tests.cluster.termination.program import running
from tests.harness.manifests import Manifest

NAMESPACE: Final = "default"
PATIENCE_SECONDS: Final = 600.0  # far more than it takes; a busy machine is no failure
MOST_EMPTY: Final = 0.15  # of several rounds, in which one node of five may be a spare one
LOOKS_EVERY_SECONDS: Final = 0.25
STATM: Final = Path("/proc/self/statm")
PAGE_BYTES: Final = 4096


class Figures(msgspec.Struct, frozen=True):
    """A row of the table; None where nobody has said."""

    seconds: float | None = None
    nodes: int | None = None
    cpu_share: float | None = None
    memory_share: float | None = None
    cores: float | None = None
    rss_mb: float | None = None


# 08 §2: what upstream's suites assert. 08 §11: Karpenter 1.15.0 on a machine like ours.
UPSTREAM_BASIC: Final = Figures(120, None, 0.53, 0.65, 0.50, 260)
UPSTREAM_WIDE: Final = Figures(300, None, 0.20, 0.20, 0.70, 370)
PEER_BASIC: Final = Figures(61, 154, 0.90, 0.87, 0.25, 199)
PEER_WIDE: Final = Figures(63, 160, 0.81, None, None, 219)


class Placement(msgspec.Struct, frozen=True):
    """What the server holds: pods, Nodes and claims as they are on the wire."""

    pods: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    claims: list[dict[str, Any]]
    nominations: list[dict[str, Any]]

    def share(self, resource: str) -> float:
        """Of what all nodes have, how much their pods request."""
        had = sum(_amount(node["status"]["allocatable"].get(resource, "0")) for node in self.nodes)
        asked = sum(
            _amount(container["resources"].get("requests", {}).get(resource, "0"))
            for pod in self.pods
            for container in pod["spec"]["containers"]
        )
        return asked / had

    @property
    def names(self) -> set[str]:
        """Of the Nodes."""
        return {node["metadata"]["name"] for node in self.nodes}

    def empty(self) -> list[str]:
        """Nodes without pods, but for those of DaemonSets."""
        owners = ((pod["spec"]["nodeName"], pod["metadata"]["ownerReferences"][0]["kind"]) for pod in self.pods)
        used = {node for node, owner in owners if owner != "DaemonSet"}
        return sorted(self.names - used)

    def of(self, app: str) -> list[dict[str, Any]]:
        """The pods of one workload."""
        return [pod for pod in self.pods if pod["metadata"]["labels"].get("app") == app]

    def domains(self, app: str, key: str) -> list[str]:
        """The value of the label, of the node of each of the workload's pods."""
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.nodes}
        return [labels[pod["spec"]["nodeName"]][key] for pod in self.of(app)]


class Outcome(msgspec.Struct, frozen=True):
    figures: Figures
    placement: Placement
    cpu_seconds: float
    created: int  # claims, as the controllers counted them
    passes: int

    def assert_all_have_a_place(self) -> None:
        """Every pod runs; each claim was created once and has become a Node; people were told of it.

        A plan is advice, and the scheduler may do with less; but most nodes have pods.
        """
        placement = self.placement
        assert {pod["status"]["phase"] for pod in placement.pods} == {"Running"}
        assert len(placement.claims) == len(placement.nodes) == self.created
        assert {claim["status"]["nodeName"] for claim in placement.claims} == placement.names
        assert len(placement.empty()) <= MOST_EMPTY * len(placement.nodes), placement.empty()
        assert placement.nominations, "events Nominated"


def _amount(text: str) -> float:
    return float(parse_quantity(text).nano / 1e9)


async def scaled_out(server: Server, workloads: Sequence[Manifest], pool: Sequence[Manifest], pods: int) -> Outcome:
    """Once so many pods run, and those of DaemonSets; raises TimeoutError if they never do."""
    provisioning = ProvisioningOptions(compute=ThreadCompute())
    async with (
        connect(kubeconfig=str(server.kubeconfig), qps=None) as admin,
        running(server, timings=Timings(), provisioning=provisioning) as program,
    ):
        cluster, metrics = program.cluster, program.metrics
        await _apply(admin, pool)
        await _until(lambda: _pool_is_ready(cluster), "the pool is ready")
        resident: list[float] = []

        def all_run() -> bool:
            resident.append(int(STATM.read_text().split()[1]) * PAGE_BYTES / 1e6)
            found = list(cluster.pods.values())
            counted = sum(not pod.owner & Owner.DAEMONSET for pod in found)
            return counted == pods and all(pod.phase == "Running" for pod in found)

        started, cpu = time.perf_counter(), time.process_time()
        await _apply(admin, workloads)
        await _until(all_run, f"{pods} pods run")
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        created = _sample(metrics, "karpenter_nodeclaims_created_total")
        passes = _sample(metrics, "karpenter_scheduler_scheduling_duration_seconds_count")
    placement = _placement(server)
    figures = Figures(
        seconds,
        len(placement.nodes),
        placement.share("cpu"),
        placement.share("memory"),
        cpu / seconds,
        sorted(resident)[int(0.95 * (len(resident) - 1))],
    )
    return Outcome(figures, placement, cpu, int(created), int(passes))


async def _apply(api: KubeApi, bodies: Sequence[Manifest]) -> None:
    for body in bodies:
        kind = kind_of(body)
        await api.write(Create(kind, body, namespace=NAMESPACE if kind.namespaced else None))


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_SECONDS} s: {what}")
        await asyncio.sleep(LOOKS_EVERY_SECONDS)


def _pool_is_ready(cluster: WatchedCluster) -> bool:
    kept = cluster.pools.get(("", POOL))
    return kept is not None and any(
        each.type == "Ready" and each.status == "True" for each in kept.value.status.conditions
    )


def _sample(metrics: Metrics, name: str) -> float:
    """The sum over all labels."""
    samples = (sample for family in metrics.registry.collect() for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == name)


def _placement(server: Server) -> Placement:
    def items(path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.get(path)["items"]
        return found

    events = items(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")
    return Placement(
        items(f"/api/v1/namespaces/{NAMESPACE}/pods"),
        items("/api/v1/nodes"),
        items("/apis/karpenter.sh/v1/nodeclaims"),
        [
            event
            for event in events
            if (event["reason"], event.get("reportingController")) == ("Nominated", names.COMPONENT)
        ],
    )


# -- the table ---------------------------------------------------------------------------------------------------------

_COLUMNS: Final = (
    ("seconds", "seconds", "{:.0f}"),
    ("nodes", "nodes", "{}"),
    ("cpu_share", "cpu", "{:.0%}"),
    ("memory_share", "memory", "{:.0%}"),
    ("cores", "cores", "{:.2f}"),
    ("rss_mb", "RSS", "{:.0f} MB"),
)


def table(title: str, outcome: Outcome, *, peer: Figures | None = None, upstream: Figures | None = None) -> str:
    """The rows beside each other, and what is known of ours alone."""
    others = (("Karpenter 1.15.0, 2 cores", peer), ("upstream asks for", upstream))
    rows = [("here", outcome.figures), *((name, figures) for name, figures in others if figures is not None)]
    lines = [f"{title:<42}" + "".join(f"{head:>9}" for _, head, _ in _COLUMNS)]
    for name, figures in rows:
        values = [(getattr(figures, field), form) for field, _, form in _COLUMNS]
        lines.append(
            f"  {name:<40}" + "".join(f"{'' if value is None else form.format(value):>9}" for value, form in values)
        )
    used = (
        f"{outcome.cpu_seconds:.1f} s of CPU time, {outcome.created} claims created in {outcome.passes} passes, "
        f"{len(outcome.placement.empty())} nodes without pods"
    )
    return "\n".join([*lines, f"  {used}"])
