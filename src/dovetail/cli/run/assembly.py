"""Assembles the controller from its parts, starts and stops it (04 §6)."""

import asyncio
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from dovetail import __version__
from dovetail.api import names
from dovetail.cli.common.process import allow_all_handles
from dovetail.cli.common.providers import provider_named
from dovetail.cli.common.refusals import why_no_answer
from dovetail.cli.run.observed_cloud import ObservedCloud
from dovetail.cli.run.options import RunOptions
from dovetail.controllers.assembly import DisruptionOptions, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.controllers.metrics.pool_costs import PoolCosts
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.kube import NO_PATIENCE, connect
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODEPOOLS, ApiError, Clock, KubeApi, NotFound, Resource
from dovetail.providers.bundle import ProviderSetup, StartedProvider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import ThreadCompute, space_collections, spare_collections
from dovetail.runtime.dry_run import DryRunApi
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import Failures
from dovetail.runtime.lease import Election, LeaseLost, wait_until_alone
from dovetail.runtime.manager import HealthStatus, Manager, NotStopped, PartFailed
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.web.access import REVIEWS_AT_ONCE, Authorizer, ReviewAuthorizer
from dovetail.web.app import board_served
from dovetail.web.debug import decisions_route, profiling_routes
from dovetail.web.probes import always_well, metrics_route, probe_routes, serving
from dovetail.web.readers import Readers, is_loopback
from dovetail.web.sources import ControllerSource

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 60.0

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
OUTSIDE_NAMESPACE: Final = "kube-system"
INSTALL: Final = "dovetail manifests | kubectl apply -f -"


# How the manager ends by itself. ApiError: it could not find out whether somebody else holds a Lease (R38).
ENDINGS: Final = (LeaseLost, PartFailed, NotStopped, ApiError)


class ClusterUnreachable(Exception):
    """The cluster cannot be reached or read; the message says why."""


class PortTaken(Exception):
    """The port or address cannot be served."""


class Program(msgspec.Struct, frozen=True, eq=False):
    """All parts, before they run."""

    manager: Manager
    cluster: WatchedCluster
    metrics: Metrics
    disruption: DisruptionController
    access: Authorizer | None  # for all listeners; None: no reader needs a token
    missing: tuple[str, ...]  # the CRDs that were missing at the start


async def run(options: RunOptions) -> None:
    """Run until SIGTERM or SIGINT.

    Raises KubeConfigError, Unreachable, PortTaken, and the errors of ENDINGS.
    """
    space_collections()
    allow_all_handles()
    async with program(options) as made, serving_all(options, made):
        stop = asyncio.Event()
        _stop_on_signals(stop)
        log.info("starting", extra={"version": __version__, "dry-run": options.dry_run})
        settling = asyncio.create_task(_settle(made.cluster), name="settle")
        try:
            await made.manager.run(stop)
        finally:
            settling.cancel()
        log.info("stopped")


async def _settle(cluster: WatchedCluster) -> None:
    for reflector in cluster.reflectors:
        await reflector.wait_synced()
    spare_collections()
    while True:  # a replica that does not lead settles nowhere else, and a scrape would settle everything at once
        await cluster.settled()
        await cluster.clock.sleep(SETTLE_SECONDS)


# -- the parts ---------------------------------------------------------------------------------------------------------


class _ClusterConnection(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Our identity and our clients."""

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
async def program(options: RunOptions) -> AsyncIterator[Program]:
    """All parts, connected. Raises KubeConfigError and Unreachable."""
    async with _connection(options) as connection:
        bundle = provider_named(options.provider)
        missing = await missing_crds(connection.api, [NODEPOOLS, NODECLAIMS, bundle.node_classes])
        if missing:
            log.error("CRDs missing", extra={"crds": ", ".join(missing), "install": INSTALL})
        metrics = Metrics(CollectorRegistry())
        setup = ProviderSetup(
            api=connection.api,
            clock=connection.clock,
            metrics=metrics,
            settings=options.provider_settings,
            instance_types=options.instance_types,
        )
        async with bundle.started(setup) as started:
            yield _assembled(
                options, connection, started, labels=bundle.well_known_labels, metrics=metrics, missing=missing
            )


@asynccontextmanager
async def _connection(options: RunOptions) -> AsyncIterator[_ClusterConnection]:
    clock, uuid, namespace = SystemClock(), uuid4(), own_namespace(options)
    identity = f"{socket.gethostname()}_{uuid}"
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
        clients, reviews = [api, lease_api], None
        if any(asks_for_tokens(options, address) for address in _read_at(options)):
            reviews = await stack.enter_async_context(connected(patience=NO_PATIENCE, connections=REVIEWS_AT_ONCE))
            clients.append(reviews)
        yield _ClusterConnection(
            clock=clock,
            identity=identity,
            seed=uuid.int,
            namespace=namespace,
            api=DryRunApi(api) if options.dry_run else api,
            lease_api=lease_api,
            reviews=reviews,
            election=election,
            requests=lambda: sum((Counter(client.requests) for client in clients), Counter()),
        )


def _assembled(
    options: RunOptions,
    connection: _ClusterConnection,
    started: StartedProvider,
    *,
    labels: frozenset[str],
    metrics: Metrics,
    missing: tuple[str, ...],
) -> Program:
    """`labels`: those that the provider knows."""
    api, clock, seed = connection.api, connection.clock, connection.seed
    provider = ObservedCloud(started.cloud, clock, metrics)
    failures = Failures(tolerated=True, seed=seed)
    cluster = WatchedCluster(
        api,
        clock,
        provider.node_classes,
        seed=seed,
        failures=failures,
        scheduler_profiles=options.scheduler_config.profiles,
        well_known_labels=names.WELL_KNOWN_LABELS | labels,
    )
    recorder = EventRecorder(api, clock, instance=connection.identity, seed=seed)
    clearance = partial(
        wait_until_alone,
        connection.lease_api,
        clock,
        namespace=connection.namespace,
        name=options.leader_election_name,
    )
    timings = Timings()
    types = InstanceTypeSource(cluster, provider, keep_seconds=timings.instance_types_seconds)
    prices = PoolCosts(cluster, types, metrics)
    prices.measure(metrics)
    controllers = [
        *all_controllers(
            cluster,
            provider,
            metrics,
            timings,
            options.gates,
            provisioning=provisioning(options, cluster.well_known_labels),
            disrupting=DisruptionOptions(reading=options.budget_reading),
            types=types,
            of_provider=started.controllers(cluster),
        ),
        prices,
    ]
    (disruption,) = (each for each in controllers if isinstance(each, DisruptionController))
    manager = Manager(
        api,
        clock,
        election=connection.election,
        recorder=recorder,
        reflectors=cluster.reflectors,
        controllers=controllers,
        clearance=None if options.dry_run else clearance,
        failures=failures,
    )
    state = ClusterMetrics(
        cluster,
        clock,
        leads=lambda: manager.is_leader,
        reading=options.budget_reading,
        objects_too=not options.disable_cluster_state_observability,
        prices=prices,
        not_replaced=lambda: disruption.not_replaced,
    )
    metrics.registry.register(state)
    metrics.leader.labels(options.leader_election_name).set_function(lambda: float(manager.is_leader))
    metrics.event_loop_late_seconds.set_function(lambda: manager.slowest_beat_seconds)
    metrics.read_requests(connection.requests)
    metrics.read_events(lambda: msgspec.structs.asdict(recorder.counts))
    metrics.read_failures(lambda: failures.counts)
    metrics.read_undecodable(lambda: {cache.name: cache.undecodable for cache in cluster.reflectors})
    access = None if connection.reviews is None else ReviewAuthorizer(connection.reviews, clock)
    return Program(manager, cluster, metrics, disruption, access, missing)


def provisioning(
    options: RunOptions, well_known_labels: frozenset[str] = names.WELL_KNOWN_LABELS
) -> ProvisioningOptions:
    """The options about planning nodes for pods."""
    return ProvisioningOptions(
        compute=ThreadCompute(),
        options=SchedulingOptions(
            respect_preferences=options.preference_policy == "Respect",
            strict_min_values=options.min_values_policy == "Strict",
            well_known=well_known_labels,
        ),
        batch_idle=timedelta(seconds=options.batch_idle_seconds),
        batch_longest=timedelta(seconds=options.batch_max_seconds),
    )


async def missing_crds(api: KubeApi, kinds: list[Resource[Any]]) -> tuple[str, ...]:
    """The kinds that the server does not know. Raises Unreachable."""
    missing = []
    for kind in kinds:
        try:
            await api.list(kind, limit=1)
        except NotFound:
            missing.append(f"{kind.plural}.{kind.group}/{kind.version}")
        except ApiError as error:
            raise ClusterUnreachable(why_no_answer(error)) from error
    return tuple(missing)


def in_pod(options: RunOptions) -> bool:
    """Whether this process runs in the cluster that it controls."""
    return not options.kubeconfig and not options.context and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def metrics_address(options: RunOptions) -> str | None:
    """The address of metrics, `/debug/*` and probes; None: all addresses."""
    return options.metrics_bind_address or (None if in_pod(options) else "127.0.0.1")


def _read_at(options: RunOptions) -> list[str | None]:
    """The addresses of listeners that have readers."""
    return [metrics_address(options), *([options.dashboard_address] if options.dashboard_port else [])]


def asks_for_tokens(options: RunOptions, address: str | None) -> bool:
    """Whether others than users of this machine can reach the address; None: all addresses."""
    return in_pod(options) or address is None or not is_loopback(address)


def own_namespace(options: RunOptions) -> str:
    """The namespace of the Lease."""
    if given := options.leader_election_namespace or os.environ.get("SYSTEM_NAMESPACE", ""):
        return given
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or OUTSIDE_NAMESPACE
    except OSError:
        return OUTSIDE_NAMESPACE


# -- HTTP --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving_all(options: RunOptions, made: Program) -> AsyncIterator[None]:
    """Serve probes, metrics, `/debug/*` and the dashboard meanwhile. Raises PortTaken."""
    manager, cluster = made.manager, made.cluster
    address = metrics_address(options)
    ready = {"readyz": always_well, "manager": manager.readiness, "crd": lambda: crds_found(cluster, made.missing)}
    probes = [*probe_routes("healthz", {"healthz": manager.liveness}), *probe_routes("readyz", ready)]
    metrics = [metrics_route(made.metrics.registry), *_debug_routes(options, made, address)]
    async with AsyncExitStack() as stack:
        if options.metrics_port and options.metrics_port == options.health_probe_port:
            metrics += probes
            probes = []
        for what, routes, port in (
            ("metrics", metrics, options.metrics_port),
            ("probes", probes, options.health_probe_port),
        ):
            if routes:
                try:
                    served = await stack.enter_async_context(serving(routes, address=address, port=port))
                except OSError as error:
                    option = "metrics-port" if what == "metrics" else "health-probe-port"
                    flaw = f"cannot serve {what} on {address or '*'}:{port}: {error.strerror}"
                    raise PortTaken(f"{flaw}; give --{option} 0 for a free one") from error
                log.info("serving", extra={"what": what, "address": address or "*", "port": served})
        if options.dashboard_port:
            await stack.enter_async_context(_dashboard(options, made))
        yield


def _access_at(options: RunOptions, made: Program, address: str | None) -> Authorizer | None:
    if not asks_for_tokens(options, address):
        return None
    assert made.access is not None
    return made.access


def _debug_routes(options: RunOptions, made: Program, address: str | None) -> list[web.RouteDef]:
    """`/debug/*`, for those who may read the dashboard (R49)."""

    async def namespaces() -> frozenset[str]:
        return frozenset(pod.namespace for pod in made.cluster.pods.values())

    readers = Readers(_access_at(options, made, address), namespaces)
    return [
        decisions_route(readers, made.disruption),
        *(profiling_routes(readers) if options.enable_profiling else []),
    ]


@asynccontextmanager
async def _dashboard(options: RunOptions, made: Program) -> AsyncIterator[None]:
    """Serve the board meanwhile. It is made only while somebody reads it. Raises PortTaken."""
    address, port = options.dashboard_address, options.dashboard_port
    source = ControllerSource(made.cluster, made.disruption, title="dovetail run")
    serving_it = board_served(
        source,
        address=address,
        port=port,
        access=_access_at(options, made, address),
        routes=_debug_routes(options, made, address),
        reading=options.budget_reading,
        beforehand=False,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(serving_it)
        except OSError as error:
            raise PortTaken(f"cannot serve the dashboard on {address}:{port}: {error.strerror}") from error
        log.info("serving", extra={"what": "dashboard", "address": address, "port": port})
        yield


def crds_found(cluster: WatchedCluster, missing: tuple[str, ...]) -> HealthStatus:
    """Whether the CRDs exist. One that was missing at the start exists once its cache is synced."""
    caches = {cache.name: cache for cache in (cluster.pools, cluster.claims, cluster.node_classes)}
    still = [name for name in missing if not caches[name.partition(".")[0]].synced]
    return HealthStatus(not still, (f"missing: {', '.join(still)}; install them: {INSTALL}",) if still else ())


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
