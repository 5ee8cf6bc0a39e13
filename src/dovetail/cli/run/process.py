"""What every controller process has: its connection, metrics, probes, and an orderly end (04 §6)."""

import asyncio
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
from aiohttp import web

from dovetail import __version__
from dovetail.cli.common.process import allow_all_handles
from dovetail.cli.common.refusals import why_no_answer
from dovetail.cli.run.options import ProcessOptions
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.kube import NO_PATIENCE, connect
from dovetail.observe.metrics import Metrics
from dovetail.ports import ApiError, Clock, KubeApi, NotFound, Resource
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import space_collections, spare_collections
from dovetail.runtime.dry_run import DryRunApi
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import Failures
from dovetail.runtime.lease import Election, LeaseLost, wait_until_alone
from dovetail.runtime.manager import Controller, HealthStatus, Manager, NotStopped, PartFailed
from dovetail.web.access import REVIEWS_AT_ONCE
from dovetail.web.probes import always_well, metrics_route, probe_routes, serving
from dovetail.web.readers import is_loopback

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 60.0

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
OUTSIDE_NAMESPACE: Final = "kube-system"


# How the manager ends by itself. ApiError: it could not find out whether somebody else holds a Lease (R38).
ENDINGS: Final = (LeaseLost, PartFailed, NotStopped, ApiError)

HealthChecks = Mapping[str, Callable[[], HealthStatus]]


class ClusterUnreachable(Exception):
    """The cluster cannot be reached or read; the message says why."""


class PortTaken(Exception):
    """The port or address cannot be served."""


class ControllerProcess(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The parts of any controller process, before they run."""

    manager: Manager
    cluster: WatchedCluster
    metrics: Metrics


async def run_until_stopped(process: ControllerProcess, *, dry_run: bool) -> None:
    """Run until SIGTERM or SIGINT. Raises the errors of ENDINGS."""
    stop = asyncio.Event()
    _stop_on_signals(stop)
    log.info("starting", extra={"version": __version__, "dry-run": dry_run})
    settling = asyncio.create_task(_settle(process.cluster), name="settle")
    try:
        await process.manager.run(stop)
    finally:
        settling.cancel()
    log.info("stopped")


def prepare_process() -> None:
    """Call it once, before everything else."""
    space_collections()
    allow_all_handles()


async def _settle(cluster: WatchedCluster) -> None:
    for reflector in cluster.reflectors:
        await reflector.wait_synced()
    spare_collections()
    while True:  # a replica that does not lead settles nowhere else, and a scrape would settle everything at once
        await cluster.settled()
        await cluster.clock.sleep(SETTLE_SECONDS)


# -- the connection ----------------------------------------------------------------------------------------------------


class ClusterConnection(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The clients of a controller process, and its identity."""

    clock: Clock
    identity: str
    seed: int
    namespace: str
    api: KubeApi
    lease_api: KubeApi
    reviews: KubeApi | None  # to review tokens of readers, also in a dry run; None: no reader needs one
    election: Election | None
    requests: Callable[[], Mapping[tuple[str, ...], float]]
    """The number of requests to the API server, for metrics."""


@asynccontextmanager
async def connection(options: ProcessOptions, *, reviews: bool) -> AsyncIterator[ClusterConnection]:
    """Connected clients. `reviews`: tokens of readers have to be reviewed. Raises KubeConfigError."""
    clock, uuid, namespace = SystemClock(), uuid4(), own_namespace(options)
    # As Karpenter, a pod takes its name; elsewhere nothing but this says whose Lease it is.
    identity = f"{'' if in_pod(options) else 'dovetail-'}{socket.gethostname()}_{uuid}"
    connected = partial(connect, kubeconfig=options.kubeconfig, context=options.context)
    async with AsyncExitStack() as stack:
        # Leader election has a separate client: nothing else may use up its connections or the last file handle.
        lease_api = await stack.enter_async_context(connected(qps=None, patience=NO_PATIENCE, keep_handle=True))
        election = None
        if not (options.dry_run or options.disable_leader_election):
            name = options.leader_election_name
            election = Election(lease_api, clock, namespace=namespace, name=name, identity=identity)
        api = await stack.enter_async_context(
            connected(
                qps=options.kube_client_qps,
                burst=options.kube_client_burst,
                before_write=None if election is None else election.fence.check,
            )
        )
        clients, review_api = [api, lease_api], None
        if reviews:
            review_api = await stack.enter_async_context(connected(patience=NO_PATIENCE, connections=REVIEWS_AT_ONCE))
            clients.append(review_api)
        yield ClusterConnection(
            clock=clock,
            identity=identity,
            seed=uuid.int,
            namespace=namespace,
            api=DryRunApi(api) if options.dry_run else api,
            lease_api=lease_api,
            reviews=review_api,
            election=election,
            requests=lambda: sum((Counter(client.requests) for client in clients), Counter()),
        )


def make_manager(
    options: ProcessOptions,
    connection: ClusterConnection,
    cluster: WatchedCluster,
    controllers: Iterable[Controller],
    *,
    failures: Failures,
    metrics: Metrics,
) -> Manager:
    """The manager of these controllers, and the metrics of the process."""
    recorder = EventRecorder(connection.api, connection.clock, instance=connection.identity, seed=connection.seed)
    clearance = partial(
        wait_until_alone,
        connection.lease_api,
        connection.clock,
        namespace=connection.namespace,
        name=options.leader_election_name,
    )
    manager = Manager(
        connection.api,
        connection.clock,
        election=connection.election,
        recorder=recorder,
        reflectors=cluster.reflectors,
        controllers=list(controllers),
        clearance=None if options.dry_run else clearance,
        failures=failures,
    )
    metrics.leader.labels(options.leader_election_name).set_function(lambda: float(manager.is_leader))
    metrics.event_loop_late_seconds.set_function(lambda: manager.slowest_beat_seconds)
    metrics.read_requests(connection.requests)
    metrics.read_events(lambda: msgspec.structs.asdict(recorder.counts))
    metrics.read_failures(lambda: failures.counts)
    metrics.read_undecodable(lambda: {cache.name: cache.undecodable for cache in cluster.reflectors})
    return manager


async def missing_kinds(api: KubeApi, kinds: list[Resource[Any]]) -> tuple[Resource[Any], ...]:
    """The kinds that the server does not know. Raises ClusterUnreachable."""
    missing = []
    for kind in kinds:
        try:
            await api.list(kind, limit=1)
        except NotFound:
            missing.append(kind)
        except ApiError as error:
            raise ClusterUnreachable(why_no_answer(error)) from error
    return tuple(missing)


def crd_names(kinds: Iterable[Resource[Any]]) -> str:
    """`nodepools.karpenter.sh/v1, nodeclaims.karpenter.sh/v1`."""
    return ", ".join(f"{kind.plural}.{kind.group}/{kind.version}" for kind in kinds)


def still_missing(cluster: WatchedCluster, missing: Iterable[Resource[Any]]) -> list[Resource[Any]]:
    """A kind that was missing at the start exists once its cache is synced."""
    synced = {reflector.name for reflector in cluster.reflectors if reflector.synced}
    return [kind for kind in missing if kind.plural not in synced]


def in_pod(options: ProcessOptions) -> bool:
    """Whether this process runs in the cluster that it controls."""
    return not options.kubeconfig and not options.context and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def metrics_address(options: ProcessOptions) -> str | None:
    """The address of metrics, `/debug/*` and probes; None: all addresses."""
    return options.metrics_bind_address or (None if in_pod(options) else "127.0.0.1")


def asks_for_tokens(options: ProcessOptions, address: str | None) -> bool:
    """Whether others than users of this machine can reach the address; None: all addresses."""
    return in_pod(options) or address is None or not is_loopback(address)


def own_namespace(options: ProcessOptions) -> str:
    """The namespace of the Lease."""
    if given := options.leader_election_namespace or os.environ.get("SYSTEM_NAMESPACE", ""):
        return given
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or OUTSIDE_NAMESPACE
    except OSError:
        return OUTSIDE_NAMESPACE


# -- HTTP --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving_probes(
    options: ProcessOptions, process: ControllerProcess, checks: HealthChecks, routes: Iterable[web.RouteDef] = ()
) -> AsyncIterator[None]:
    """Serve probes and metrics meanwhile. Raises PortTaken.

    `checks`: those of readyz besides the manager's. `routes`: served beside the metrics.
    """
    manager, address = process.manager, metrics_address(options)
    ready = {"readyz": always_well, "manager": manager.readiness, **checks}
    probes = [*probe_routes("healthz", {"healthz": manager.liveness}), *probe_routes("readyz", ready)]
    metrics = [metrics_route(process.metrics.registry), *routes]
    async with AsyncExitStack() as stack:
        if options.metrics_port and options.metrics_port == options.health_probe_port:
            metrics += probes
            probes = []
        for what, served_routes, port in (
            ("metrics", metrics, options.metrics_port),
            ("probes", probes, options.health_probe_port),
        ):
            if served_routes:
                try:
                    served = await stack.enter_async_context(serving(served_routes, address=address, port=port))
                except OSError as error:
                    option = "metrics-port" if what == "metrics" else "health-probe-port"
                    flaw = f"cannot serve {what} on {address or '*'}:{port}: {error.strerror}"
                    raise PortTaken(f"{flaw}; give --{option} 0 for a free one") from error
                log.info("serving", extra={"what": what, "address": address or "*", "port": served})
        yield


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Stop gracefully; a second Ctrl-C ends the process at once."""

    def stopping(by: signal.Signals) -> None:
        if by is signal.SIGINT:
            # Before the log line, after which a user may press again. A second signal that the loop already has ends
            # here too.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if stop.is_set():
                signal.raise_signal(signal.SIGINT)
        stop.set()
        log.info("stopping", extra={"signal": by.name})

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping, number)
