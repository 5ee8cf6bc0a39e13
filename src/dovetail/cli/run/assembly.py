"""Assembles `dovetail run` from its parts (04 §6)."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.cli.common.providers import provider_named
from dovetail.cli.run.observed_cloud import ObservedCloud
from dovetail.cli.run.options import RunOptions
from dovetail.cli.run.process import (
    ClusterConnection,
    ControllerProcess,
    PortTaken,
    asks_for_tokens,
    connection,
    crd_names,
    make_manager,
    metrics_address,
    missing_kinds,
    prepare_process,
    run_until_stopped,
    serving_probes,
    still_missing,
)
from dovetail.controllers.assembly import all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.controllers.metrics.pool_costs import PoolCosts
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.model.rule_settings import RuleSettings
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODEPOOLS, Resource
from dovetail.providers.bundle import ProviderSetup, StartedProvider
from dovetail.runtime.compute import ThreadCompute
from dovetail.runtime.failures import Failures
from dovetail.runtime.manager import HealthStatus
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.web.access import Authorizer, ReviewAuthorizer
from dovetail.web.app import board_served
from dovetail.web.debug import decisions_route, profiling_routes
from dovetail.web.readers import Readers
from dovetail.web.sources import ControllerSource

log = logging.getLogger(__name__)

INSTALL: Final = "dovetail manifests | kubectl apply -f -"


class Program(ControllerProcess, frozen=True, kw_only=True, eq=False):
    """All parts of `dovetail run`, before they run."""

    disruption: DisruptionController
    access: Authorizer | None  # for all listeners; None: no reader needs a token
    missing: tuple[Resource[Any], ...]  # at the start


async def run(options: RunOptions) -> None:
    """Run until SIGTERM or SIGINT.

    Raises KubeConfigError, ClusterUnreachable, PortTaken, and the errors of ENDINGS.
    """
    prepare_process()
    async with program(options) as process, serving_all(options, process):
        await run_until_stopped(process, dry_run=options.dry_run)


# -- the parts ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def program(options: RunOptions) -> AsyncIterator[Program]:
    """All parts, connected. Raises KubeConfigError and ClusterUnreachable."""
    reviews = any(asks_for_tokens(options, address) for address in _read_at(options))
    async with connection(options, reviews=reviews) as connected:
        bundle = provider_named(options.provider)
        missing = await missing_kinds(connected.api, [NODEPOOLS, NODECLAIMS, bundle.node_classes])
        if missing:
            log.error("CRDs missing", extra={"crds": crd_names(missing), "install": INSTALL})
        metrics = Metrics(CollectorRegistry())
        setup = ProviderSetup(
            api=connected.api,
            clock=connected.clock,
            metrics=metrics,
            settings=options.provider_settings,
            instance_types=options.instance_types,
        )
        async with bundle.started(setup) as started:
            yield _assembled(
                options, connected, started, labels=bundle.well_known_labels, metrics=metrics, missing=missing
            )


def _assembled(
    options: RunOptions,
    connection: ClusterConnection,
    started: StartedProvider,
    *,
    labels: frozenset[str],
    metrics: Metrics,
    missing: tuple[Resource[Any], ...],
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
        settings=RuleSettings(budgets=options.budget_reading),
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
            disrupting=True,
            types=types,
            of_provider=started.controllers(cluster),
        ),
        prices,
    ]
    (disruption,) = (controller for controller in controllers if isinstance(controller, DisruptionController))
    manager = make_manager(options, connection, cluster, controllers, failures=failures, metrics=metrics)
    state = ClusterMetrics(
        cluster,
        clock,
        leads=lambda: manager.is_leader,
        objects_too=not options.disable_cluster_state_observability,
        prices=prices,
        not_replaced=lambda: disruption.not_replaced,
    )
    metrics.registry.register(state)
    access = None if connection.reviews is None else ReviewAuthorizer(connection.reviews, clock)
    return Program(
        manager=manager, cluster=cluster, metrics=metrics, disruption=disruption, access=access, missing=missing
    )


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


def _read_at(options: RunOptions) -> list[str | None]:
    """The addresses of listeners that have readers."""
    return [metrics_address(options), *([options.dashboard_address] if options.dashboard_port else [])]


# -- HTTP --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving_all(options: RunOptions, process: Program) -> AsyncIterator[None]:
    """Serve probes, metrics, `/debug/*` and the dashboard meanwhile. Raises PortTaken."""
    checks = {"crd": lambda: crds_found(process.cluster, process.missing)}
    routes = _debug_routes(options, process, metrics_address(options))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving_probes(options, process, checks, routes))
        if options.dashboard_port:
            await stack.enter_async_context(_dashboard(options, process))
        yield


def _access_at(options: RunOptions, process: Program, address: str | None) -> Authorizer | None:
    if not asks_for_tokens(options, address):
        return None
    assert process.access is not None
    return process.access


def _debug_routes(options: RunOptions, process: Program, address: str | None) -> list[web.RouteDef]:
    """`/debug/*`, for those who may read the dashboard (R49)."""

    async def namespaces() -> frozenset[str]:
        return frozenset(pod.namespace for pod in process.cluster.pods.values())

    readers = Readers(_access_at(options, process, address), namespaces)
    return [
        decisions_route(readers, process.disruption),
        *(profiling_routes(readers) if options.enable_profiling else []),
    ]


@asynccontextmanager
async def _dashboard(options: RunOptions, process: Program) -> AsyncIterator[None]:
    """Serve the board meanwhile. It is made only while somebody reads it. Raises PortTaken."""
    address, port = options.dashboard_address, options.dashboard_port
    source = ControllerSource(process.cluster, process.disruption, title="dovetail run")
    serving_it = board_served(
        source,
        address=address,
        port=port,
        access=_access_at(options, process, address),
        routes=_debug_routes(options, process, address),
        beforehand=False,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(serving_it)
        except OSError as error:
            raise PortTaken(f"cannot serve the dashboard on {address}:{port}: {error.strerror}") from error
        log.info("serving", extra={"what": "dashboard", "address": address, "port": port})
        yield


def crds_found(cluster: WatchedCluster, missing: Sequence[Resource[Any]]) -> HealthStatus:
    """Whether the CRDs exist."""
    still = still_missing(cluster, missing)
    return HealthStatus(not still, (f"missing: {crd_names(still)}; install them: {INSTALL}",) if still else ())
