"""The bundle of kwok: its provider, the controller that makes its Nodes, its CRD and its rights."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import click

from dovetail.api import names
from dovetail.api.crds import KWOK_FILES, crd_text
from dovetail.api.manifests.rbac import Grant
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.providers.bundle import ProviderSetup, StartedProvider
from dovetail.providers.kwok.node_creation import KwokNodes, follow_interruptions
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.manager import Controller


class KwokBundle:
    """The bundle of `--provider kwok`."""

    name = KwokProvider.name
    node_classes = KwokProvider.node_classes
    well_known_labels = names.KWOK_LABELS
    options: Sequence[click.Option] = ()

    def crds(self) -> Sequence[str]:
        return [crd_text(KWOK_FILES)]

    def rules(self) -> Sequence[Grant]:
        return (
            Grant(names.KWOK_GROUP, (names.KWOK_NODECLASS_PLURAL,), ("get", "list", "watch")),
            Grant("", ("nodes",), ("create",)),  # no kubelet does it
        )

    @asynccontextmanager
    async def started(self, setup: ProviderSetup) -> AsyncIterator[StartedProvider]:
        """It has no clients or threads of its own: machines are Nodes."""
        cloud = KwokProvider(setup.api, types=setup.instance_types, seed=setup.seed)
        yield StartedProvider(cloud, partial(kwok_controllers, cloud))


def kwok_controllers(cloud: KwokProvider, cluster: WatchedCluster) -> list[Controller]:
    """Makes the Nodes, and shows the provider all Nodes so that it finds interruptions."""
    follow_interruptions(cluster, cloud)
    return [KwokNodes(cluster)]


BUNDLE: Final = KwokBundle()
