"""What a provider brings to the program, and how the program finds it.

A package offers a provider by an entry point of the group `dovetail.providers`: its name is the value of `--provider`,
and its object a `ProviderBundle`. `kwok` is one of them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol

import click
import msgspec

from dovetail.api import objects
from dovetail.api.manifests.rbac import Grant
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.instance_types import InstanceType
from dovetail.observe.metrics import Metrics
from dovetail.ports import Clock, CloudProvider, KubeApi, Resource
from dovetail.runtime.manager import Controller

GROUP: Final = "dovetail.providers"
DEFAULT: Final = "kwok"

# Known without installed metadata too, as in a checkout.
_BUILT_IN: Final = (EntryPoint(DEFAULT, "dovetail.providers.kwok.bundle:BUNDLE", GROUP),)


class ProviderSetup(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a bundle works with. `api` refuses writes while this replica does not lead, and in a dry run."""

    api: KubeApi
    clock: Clock
    metrics: Metrics
    seed: int = 0
    settings: Mapping[str, Any] = {}
    """The values of the bundle's own options, by name of the parameter."""
    instance_types: tuple[InstanceType, ...] | None = None
    """The types of `--instance-types-file-path`; None: the provider's own."""


class StartedProvider(msgspec.Struct, frozen=True, eq=False):
    """A provider that can be called, and the controllers that it needs beside those of every provider."""

    cloud: CloudProvider
    controllers: Callable[[WatchedCluster], Sequence[Controller]] = lambda _: ()
    """Called once, before the reflectors run: the controllers subscribe to the stores."""


class ProviderBundle(Protocol):
    """A provider, before it is started."""

    name: str
    node_classes: Resource[objects.NodeClass]
    """Only NodePools and NodeClaims whose nodeClassRef is of this kind are the provider's."""
    well_known_labels: frozenset[str]
    """Labels of its instance types that pods and NodePools may ask for."""
    options: Sequence[click.Option]
    """Its own options of `dovetail run`. Each needs an environment variable: its flag in capitals."""

    def crds(self) -> Sequence[str]:
        """Its CustomResourceDefinitions, each as YAML."""

    def rules(self) -> Sequence[Grant]:
        """Its rights in the cluster, beside those of every provider."""

    def started(self, setup: ProviderSetup) -> AbstractAsyncContextManager[StartedProvider]:
        """Start clients and threads, and stop them at the end."""


class UnknownProvider(Exception):
    """No usable bundle has this name; the message says why."""


class ProviderBundles(msgspec.Struct, frozen=True, eq=False):
    """The bundles that are installed, and why others cannot be used."""

    usable: Mapping[str, ProviderBundle]
    broken: Mapping[str, str]

    def named(self, name: str) -> ProviderBundle:
        """Raises UnknownProvider."""
        if name in self.usable:
            return self.usable[name]
        if name in self.broken:
            raise UnknownProvider(f"provider {name} cannot be used: {self.broken[name]}")
        raise UnknownProvider(f"there is no provider {name!r}; installed: {', '.join(sorted(self.usable))}")


def installed() -> ProviderBundles:
    """Imports every installed bundle. One that fails does not hide the others."""
    usable: dict[str, ProviderBundle] = {}
    broken: dict[str, str] = {}
    flags: dict[str, str] = {}
    for entry in _entry_points():
        try:
            bundle = _checked(entry, entry.load())
            clash = next((flag for flag in _flags(bundle) if flag in flags), None)
            if clash is not None:
                raise TypeError(f"its option {clash} is already one of provider {flags[clash]}")
        except Exception as error:  # noqa: BLE001  whatever the code of others raises
            broken[entry.name] = f"{entry.value}: {type(error).__name__}: {error}"
            continue
        usable[entry.name] = bundle
        flags.update(dict.fromkeys(_flags(bundle), entry.name))
    return ProviderBundles(usable, broken)


def _entry_points() -> list[EntryPoint]:
    by_name = {entry.name: entry for entry in _BUILT_IN}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        by_name.setdefault(entry.name, entry)
    return list(by_name.values())


_PARTS: Final = (
    *("name", "node_classes", "well_known_labels", "options"),
    *("crds", "rules", "started"),
)


def _checked(entry: EntryPoint, loaded: Any) -> ProviderBundle:
    """Raises TypeError if the object is not a bundle."""
    missing = [part for part in _PARTS if not hasattr(loaded, part)]
    if missing:
        raise TypeError(f"not a ProviderBundle, it lacks {', '.join(missing)}")
    if loaded.name != entry.name:
        raise TypeError(f"its name is {loaded.name!r}, but its entry point is {entry.name!r}")
    bundle: ProviderBundle = loaded
    return bundle


def _flags(bundle: ProviderBundle) -> list[str]:
    return [flag for option in bundle.options for flag in option.opts]
