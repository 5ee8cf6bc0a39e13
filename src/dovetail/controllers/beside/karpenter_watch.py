"""Watches whether Karpenter is there, and which version: by its Lease, and the image of the pod that holds it."""

import logging
from collections.abc import Callable
from typing import Final

from dovetail.api import names, objects
from dovetail.model.decider import Decider, DecidingController, version_of
from dovetail.ports import LEASES, PODS, ApiError, Clock, Forbidden, KubeApi
from dovetail.runtime.lease import ObservedLease, sighted

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 20.0  # above the duration of a Lease: what has not changed since the last look is dead
FIRST_LOOKS_SECONDS: Final = 5.0  # until a Lease is seen renewed: Karpenter renews its own every 2 seconds
OLDEST: Final = (1, 0)
READS_DURATIONS: Final = (1, 12)


class _ImageContainer(objects.Wire, frozen=True):
    name: str = ""
    image: str = ""


class _ImageSpec(objects.Wire, frozen=True):
    containers: tuple[_ImageContainer, ...] = ()


class _ImagePod(objects.ApiObject, frozen=True):
    spec: _ImageSpec = _ImageSpec()


class KarpenterWatch:
    """The watch. Every replica runs it: it only reads. `version`: what the user says it is; then nobody looks."""

    def __init__(self, version: str = "") -> None:
        self._given = version
        self._version: str | None = version or None
        self._seen: dict[str, ObservedLease] = {}  # by UID
        self._asked = ""  # the holder whose version was looked up
        self.problem = ""
        """What is wrong, with the remedy; empty: nothing, or it is not known yet."""
        self.is_certain = bool(version)
        """Whether Karpenter runs: its Lease was renewed since the first look. A dead one may look live before."""
        self.observers: list[Callable[[], None]] = []
        """Called when that has changed."""

    @property
    def runs(self) -> bool:
        """Whether it runs for certain."""
        return self.is_certain and not self.problem

    @property
    def reads_durations(self) -> bool:
        """Whether it reads durations of do-not-disrupt on pods. A version that is not known counts as old."""
        release = self._release
        return release is not None and release >= READS_DURATIONS

    @property
    def _release(self) -> tuple[int, int] | None:
        return Decider(DecidingController.KARPENTER, version=self._version).release

    async def run(self, api: KubeApi, clock: Clock) -> None:
        """Looks again and again."""
        while True:
            await clock.sleep(LOOK_SECONDS if self.is_certain or self.problem else FIRST_LOOKS_SECONDS)
            await self.look(api, clock)

    async def look(self, api: KubeApi, clock: Clock) -> None:
        """Looks once, and logs what has changed.

        A look that fails leaves what is known. Without the right to look, nothing is.
        """
        before, version = (self.problem, self.is_certain), self._version
        try:
            absent = "" if self._given else await self._look(api, clock)
        except ApiError as error:
            log.warning("cannot see whether Karpenter runs", extra={"error": str(error)})
            if not isinstance(error, Forbidden):
                return
            self.is_certain = False
            absent = (
                f"cannot see whether Karpenter runs: {error}; let this account list Leases "
                f"{names.LEADER_ELECTION_LEASE}, or give Karpenter's version with --karpenter-version"
            )
        self.problem = absent or self._too_old()
        if self.problem and self.problem != before[0]:
            log.error("%s", self.problem)
        elif before[0] and not self.problem:
            log.info("Karpenter is running")
        if (self.problem, self.is_certain) != before:
            for notify in self.observers:
                notify()
        if self._version != version:
            log.info("found Karpenter", extra={"version": self._version, "reads-durations": self.reads_durations})

    async def _look(self, api: KubeApi, clock: Clock) -> str:
        """Why no Karpenter is there; empty: one is."""
        listed = await api.list(LEASES, fields=f"metadata.name={names.LEADER_ELECTION_LEASE}")
        leases = [lease for lease in listed.items if lease.metadata.name == names.LEADER_ELECTION_LEASE]
        now, before = clock.monotonic(), self._seen
        self._seen = {lease.metadata.uid: sighted(before.get(lease.metadata.uid), lease, at=now) for lease in leases}
        live = [sighting.lease for sighting in self._seen.values() if now < sighting.live_until]
        renewed = any(self._seen[uid] is not old for uid, old in before.items() if uid in self._seen)
        self.is_certain = bool(live) and (self.is_certain or renewed)
        if not live:
            return (
                f"no running Karpenter: no live Lease {names.LEADER_ELECTION_LEASE} in any namespace; start Karpenter, "
                "or, if it runs without leader election, give its version with --karpenter-version"
            )
        holder = live[0].spec.holder_identity or ""
        if holder != self._asked:
            self._version = await _version_of(api, live[0])
            self._asked = holder
        return ""

    def _too_old(self) -> str:
        release = self._release
        if release is None or release >= OLDEST:
            return ""
        return f"Karpenter {self._version} is too old: update it to 1.0 or later, which serves {names.API_VERSION}"


async def _version_of(api: KubeApi, lease: objects.Lease) -> str | None:
    """By the tag of the image of the holder."""
    name, namespace = lease.holder_pod, lease.metadata.namespace
    if not name:
        return None
    pods = await api.list(PODS.read_as(_ImagePod), namespace=namespace, fields=f"metadata.name={name}")
    return version_of({container.name: container.image for pod in pods.items for container in pod.spec.containers})
