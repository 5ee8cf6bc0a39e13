"""Watches whether a Karpenter is alive, by its Lease in any namespace (10 §I.2)."""

import logging
from collections.abc import Callable
from typing import Final

from dovetail.api import names
from dovetail.ports import LEASES, ApiError, Clock
from dovetail.runtime.lease import ObservedLease, sighted
from dovetail.runtime.manager import Context
from dovetail.runtime.tasks import within

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
_NOT_LOOKED: Final = "whether Karpenter is running is not known yet"
_NOT_LIVE: Final = (
    f"no Karpenter holds the Lease {names.LEADER_ELECTION_LEASE}, so nobody would launch or drain nodes; "
    "start it, or look at its log"
)


class KarpenterLease:
    """A controller: it looks every few seconds. `changed` is called when the answer changes."""

    name = "beside.karpenter"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, ObservedLease] = {}  # by UID
        self._flaw = _NOT_LOOKED
        self._said: str | None = _NOT_LOOKED
        self.observers: list[Callable[[], None]] = []

    def why_not_live(self) -> str | None:
        """None: a Karpenter is alive."""
        now = self._clock.monotonic()
        if any(now < each.live_until for each in self._seen.values()):
            return None
        return self._flaw or _NOT_LIVE

    @property
    def holder(self) -> str:
        """Who holds the Lease, if somebody does."""
        held = sorted(each.lease.spec.holder_identity or "" for each in self._seen.values())
        return next(filter(None, held), "")

    async def run(self, context: Context) -> None:
        while not context.stopping.is_set():
            await self._look(context)
            if (said := self.why_not_live()) != self._said:
                self._said = said
                if said is None:
                    log.info("Karpenter is alive", extra={"holder": self.holder})
                else:
                    log.warning("no command begins: %s", said)
                for notify in self.observers:
                    notify()
            try:
                await within(context.clock, LOOK_SECONDS, context.stopping.wait())
            except TimeoutError:
                continue

    async def _look(self, context: Context) -> None:
        """A look that fails leaves what was seen, which ends with its time."""
        try:
            fields = f"metadata.name={names.LEADER_ELECTION_LEASE}"
            found = (await context.api.list(LEASES, fields=fields)).items
        except ApiError as error:
            self._flaw = f"Leases cannot be listed, so whether Karpenter is running is not known: {error}"
            return
        self._flaw, now = "", context.clock.monotonic()
        self._seen = {
            lease.metadata.uid: sighted(self._seen.get(lease.metadata.uid), lease, at=now)
            for lease in found
            if lease.metadata.name == names.LEADER_ELECTION_LEASE
        }
