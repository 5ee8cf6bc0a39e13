"""What became of the claims of a pool, one watch event after the other?

The order of events of one kind is the server's own, so that what came first does not depend on how fast anybody is.
"""

from collections.abc import Callable, Iterator

import msgspec

from dovetail.api import names
from dovetail.api.names import Condition
from dovetail.planning.disruption.records import Recorded, read_record
from dovetail.ports import NODECLAIMS
from tests.cluster.termination.history import History, Thing, Version


class Moment(msgspec.Struct, frozen=True):
    """After one event: which claims are initialized, which are in S3–S6, and which of these are deleted."""

    initialized: frozenset[str]
    disrupted: frozenset[str]
    deleted: frozenset[str]

    @property
    def serving(self) -> frozenset[str]:
        """Those that take pods or keep them: whoever goes is not deleted before its replacement is one of them."""
        return self.initialized - self.deleted


class Chronicle(History):
    """A history that knows pools."""

    def claims_of(self, pool: str) -> dict[str, list[Version]]:
        """Every claim that the pool has ever had, with all of its versions."""
        return {
            name: versions
            for (plural, _, name), versions in self._versions.items()
            if plural == NODECLAIMS.plural and _is_of(pool, versions)
        }

    def moments(self, pool: str) -> Iterator[Moment]:
        told = sorted(
            (version.number, name, version.thing)
            for name, versions in self.claims_of(pool).items()
            for version in versions
        )
        there: dict[str, Thing] = {}
        for _, name, thing in told:
            if thing is None:
                there.pop(name, None)
            else:
                there[name] = thing
            yield Moment(
                frozenset(each for each in there if is_initialized(there[each])),
                frozenset(each for each in there if is_disrupted(there[each])),
                frozenset(each for each in there if is_deleted(there[each])),
            )

    def number_when(self, claim: str, is_so: Callable[[Thing], bool]) -> int:
        """Of the first version of which it is so."""
        found = (
            each.number for each in self.versions(NODECLAIMS, claim) if each.thing is not None and is_so(each.thing)
        )
        number = next(found, None)
        assert number is not None, f"never of {claim}"
        return number

    def commands_of(self, claim: str) -> list[Recorded]:
        """Those that the claim has been in, in their order."""
        found: list[Recorded] = []
        for version in self.versions(NODECLAIMS, claim):
            text = None if version.thing is None else version.thing.metadata.annotations.get(names.DISRUPTION_COMMAND)
            record = None if text is None else read_record(text)
            if record is not None and record not in found:
                found.append(record)
        return found


def _is_of(pool: str, versions: list[Version]) -> bool:
    first = versions[0].thing
    return first is not None and first.metadata.labels.get(names.NODEPOOL_LABEL) == pool


def is_initialized(claim: Thing) -> bool:
    return claim.condition(Condition.INITIALIZED) == "True"


def is_deleted(claim: Thing) -> bool:
    return claim.metadata.deletion_timestamp is not None


def is_disrupted(claim: Thing) -> bool:
    """S3 to S6: it holds a slot of its pool's budgets (R26)."""
    return is_deleted(claim) or claim.condition(Condition.DISRUPTION_REASON) == "True"
