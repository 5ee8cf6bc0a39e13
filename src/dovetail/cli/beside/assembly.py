"""Assembles guard and drive from their parts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from dovetail.cli.beside.options import BesideOptions, DriveRunOptions, GuardRunOptions
from dovetail.cli.run.process import (
    ClusterConnection,
    ControllerProcess,
    connection,
    crd_names,
    make_manager,
    missing_kinds,
    prepare_process,
    run_until_stopped,
    serving_probes,
    still_missing,
)
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers
from dovetail.controllers.beside.driven_cluster import DrivenCluster
from dovetail.controllers.beside.driving import DriveOptions, drive_controllers
from dovetail.controllers.beside.held_nodes import HeldNodes
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODEPOOLS, KubeApi, Resource
from dovetail.runtime.compute import ThreadCompute
from dovetail.runtime.failures import Failures
from dovetail.runtime.manager import Controller, HealthStatus
from dovetail.scheduling.placement import SchedulingOptions

log = logging.getLogger(__name__)

C = TypeVar("C", bound=WatchedCluster)

NO_KARPENTER: Final = (
    "the cluster does not know {}: Karpenter is not installed, or is older than 1.0; install Karpenter first "
    "(https://karpenter.sh), or use `dovetail run` if Dovetail is to be the controller"
)
OTHER_FIELDS: Final = (
    "{} {} cannot be read: the CRDs differ from those of karpenter.sh/v1; install those of your version of Karpenter "
    "(helm upgrade --install karpenter-crd …), and restart Dovetail"
)


class BesideProcess(ControllerProcess, frozen=True, kw_only=True, eq=False):
    """All parts, before they run."""

    api: KubeApi
    karpenter: KarpenterWatch
    missing: tuple[Resource[Any], ...]  # of Karpenter's kinds, at the start


async def run_guard(options: GuardRunOptions) -> None:
    """Run until SIGTERM or SIGINT.

    Raises KubeConfigError, ClusterUnreachable, PortTaken, and the errors of ENDINGS.
    """
    guarding = GuardOptions(lead=options.lead, pools=options.nodepool_selector, hold_pods=options.hold_pods)

    def controllers_of(cluster: WatchedCluster, metrics: Metrics, karpenter: KarpenterWatch) -> Sequence[Controller]:
        return guard_controllers(cluster, metrics, karpenter, guarding)

    await run_beside(options, _watched, controllers_of)


async def run_drive(options: DriveRunOptions) -> None:
    """Run until SIGTERM or SIGINT. Raises the same."""
    driving = DriveOptions(
        compute=ThreadCompute(),
        scheduling=SchedulingOptions(
            respect_preferences=options.preference_policy == "Respect",
            strict_min_values=options.min_values_policy == "Strict",
        ),
        types=options.instance_types,
        gated=not options.dry_run,
        hold_pods=options.hold_pods,
    )

    def cluster_of(connected: ClusterConnection, failures: Failures) -> DrivenCluster:
        return DrivenCluster(
            connected.api,
            connected.clock,
            pools=options.nodepool_selector,
            budgets=options.budget_reading,
            seed=connected.seed,
            failures=failures,
            scheduler_profiles=options.scheduler_config.profiles,
        )

    await run_beside(
        options,
        cluster_of,
        lambda cluster, metrics, karpenter: drive_controllers(cluster, metrics, karpenter, driving, Timings()),
    )


def _watched(connected: ClusterConnection, failures: Failures) -> WatchedCluster:
    return WatchedCluster(connected.api, connected.clock, seed=connected.seed, failures=failures)


async def run_beside(
    options: BesideOptions,
    cluster_of: Callable[[ClusterConnection, Failures], C],
    controllers_of: Callable[[C, Metrics, KarpenterWatch], Sequence[Controller]],
) -> None:
    """Run these controllers beside Karpenter, with metrics and probes, until the process is told to stop."""
    prepare_process()
    async with _process(options, cluster_of, controllers_of) as process:
        checks = {"karpenter": lambda: _karpenter_found(process)}
        async with serving_probes(options, process, checks):
            watching = [
                asyncio.create_task(process.karpenter.run(process.api, process.cluster.clock), name="karpenter"),
                asyncio.create_task(_report_other_fields(process.cluster), name="fields"),
            ]
            try:
                await run_until_stopped(process, dry_run=options.dry_run)
            finally:
                for task in watching:
                    task.cancel()


@asynccontextmanager
async def _process(
    options: BesideOptions,
    cluster_of: Callable[[ClusterConnection, Failures], C],
    controllers_of: Callable[[C, Metrics, KarpenterWatch], Sequence[Controller]],
) -> AsyncIterator[BesideProcess]:
    async with connection(options, reviews=False) as connected:
        missing = await missing_kinds(connected.api, [NODEPOOLS, NODECLAIMS])
        if missing:
            log.error("Karpenter not found: %s", NO_KARPENTER.format(crd_names(missing)))
        metrics = Metrics(CollectorRegistry())
        failures = Failures(tolerated=True, seed=connected.seed)
        cluster = cluster_of(connected, failures)
        karpenter = KarpenterWatch(options.karpenter_version)
        await karpenter.look(connected.lease_api, connected.clock)
        controllers = controllers_of(cluster, metrics, karpenter)
        manager = make_manager(options, connected, cluster, controllers, failures=failures, metrics=metrics)
        metrics.registry.register(HeldNodes(cluster, leads=lambda: manager.is_leader))
        yield BesideProcess(
            manager=manager,
            cluster=cluster,
            metrics=metrics,
            api=connected.lease_api,
            karpenter=karpenter,
            missing=missing,
        )


async def _report_other_fields(cluster: WatchedCluster) -> None:
    """Logs once, at the start, that NodePools and NodeClaims cannot be read."""
    for reflector in cluster.reflectors:
        if reflector.name in (cluster.pools.name, cluster.claims.name):
            await reflector.wait_synced()
            if reflector.undecodable:
                log.error("%s", OTHER_FIELDS.format(reflector.undecodable, reflector.name))


def _karpenter_found(process: BesideProcess) -> HealthStatus:
    """Whether Karpenter is there, is not too old, and has the kinds and fields that we know."""
    still = still_missing(process.cluster, process.missing)
    problems = [NO_KARPENTER.format(crd_names(still))] if still else []
    problems += [
        OTHER_FIELDS.format(cache.undecodable, cache.name)
        for cache in (process.cluster.pools, process.cluster.claims)
        if cache.undecodable
    ]
    problems += [process.karpenter.problem] if process.karpenter.problem else []
    return HealthStatus(not problems, tuple(problems))
