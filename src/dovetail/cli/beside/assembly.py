"""Assembles guard from its parts."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry

from dovetail.cli.beside.options import BesideOptions, GuardRunOptions
from dovetail.cli.run.process import (
    ControllerProcess,
    connection,
    make_manager,
    missing_crds,
    prepare_process,
    run_until_stopped,
    serving_probes,
)
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers
from dovetail.controllers.beside.held_nodes import HeldNodes
from dovetail.observe.metrics import Metrics
from dovetail.ports import NODECLAIMS, NODEPOOLS
from dovetail.runtime.failures import Failures
from dovetail.runtime.manager import Controller, HealthStatus

log = logging.getLogger(__name__)

ControllersOf = Callable[[WatchedCluster, Metrics], Sequence[Controller]]

NO_KARPENTER: Final = (
    "the cluster does not know {}: Karpenter is not installed, or is older than 1.0; install Karpenter first "
    "(https://karpenter.sh), or use `dovetail run` if Dovetail is to be the controller"
)


class BesideProcess(ControllerProcess, frozen=True, kw_only=True, eq=False):
    """All parts, before they run."""

    missing: tuple[str, ...]  # the kinds of Karpenter that were missing at the start


async def run_guard(options: GuardRunOptions) -> None:
    """Run until SIGTERM or SIGINT.

    Raises KubeConfigError, ClusterUnreachable, PortTaken, and the errors of ENDINGS.
    """
    guarding = GuardOptions(lead=options.lead, pools=options.nodepool_selector)
    await run_beside(options, lambda cluster, metrics: guard_controllers(cluster, metrics, guarding))


async def run_beside(options: BesideOptions, controllers_of: ControllersOf) -> None:
    """Run these controllers beside Karpenter, with metrics and probes, until the process is told to stop."""
    prepare_process()
    async with _process(options, controllers_of) as made:
        checks = {"karpenter": lambda: _karpenter_found(made)}
        async with serving_probes(options, made, checks):
            await run_until_stopped(made, dry_run=options.dry_run)


@asynccontextmanager
async def _process(options: BesideOptions, controllers_of: ControllersOf) -> AsyncIterator[BesideProcess]:
    async with connection(options, reviews=False) as connected:
        missing = await missing_crds(connected.api, [NODEPOOLS, NODECLAIMS])
        if missing:
            log.error("Karpenter not found: %s", NO_KARPENTER.format(", ".join(missing)))
        metrics = Metrics(CollectorRegistry())
        failures = Failures(tolerated=True, seed=connected.seed)
        cluster = WatchedCluster(connected.api, connected.clock, seed=connected.seed, failures=failures)
        controllers = controllers_of(cluster, metrics)
        manager = make_manager(options, connected, cluster, controllers, failures=failures, metrics=metrics)
        metrics.registry.register(HeldNodes(cluster, leads=lambda: manager.is_leader))
        yield BesideProcess(manager=manager, cluster=cluster, metrics=metrics, missing=missing)


def _karpenter_found(made: BesideProcess) -> HealthStatus:
    """Whether Karpenter's kinds exist. One that was missing at the start exists once its cache is synced."""
    caches = {cache.name: cache for cache in (made.cluster.pools, made.cluster.claims)}
    still = [name for name in made.missing if not caches[name.partition(".")[0]].synced]
    return HealthStatus(not still, (NO_KARPENTER.format(", ".join(still)),) if still else ())
