"""What became of the claims of a pool, one watch event after the other?

The order of events of one kind is the server's own, so that what came first does not depend on how fast anybody is.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.planning.disruption.records import CommandRecord, read_record
from dovetail.ports import EVENTS, NODECLAIMS, NODEPOOLS, KubeApi, Resource
from dovetail.state.store import Added, Change, Deleted, Updated
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
    """A history that knows pools, and in which many can look without looking through all of it."""

    def __init__(self, api: KubeApi) -> None:
        super().__init__(api)
        self._reflectors.append(self._followed(api, NODEPOOLS))
        self._places: dict[tuple[str, str], dict[str, list[Version]]] = {}  # by plural and namespace, by name
        self._told_about: dict[tuple[str, str], list[Thing]] = {}  # events by namespace and name of the object

    def _note(self, plural: str, change: Change[Thing]) -> None:
        super()._note(plural, change)
        if not isinstance(change, Added | Updated | Deleted):
            return
        namespace, name = change.key
        versions = self._versions[(plural, namespace, name)]
        self._places.setdefault((plural, namespace), {})[name] = versions
        first = versions[0].thing
        if plural == EVENTS.plural and len(versions) == 1 and first is not None:
            self._told_about.setdefault((namespace, first.regarding.get("name", "")), []).append(first)

    def all(self, kind: Resource[Any], namespace: str = "") -> list[Thing]:
        found = (versions[-1].thing for versions in self._places.get((kind.plural, namespace), {}).values())
        return [thing for thing in found if thing is not None]

    def events(self, reason: str, about: str, namespace: str = "default") -> list[Thing]:
        return [event for event in self._told_about.get((namespace, about), ()) if event.reason == reason]

    def claims_of(self, pool: str) -> dict[str, list[Version]]:
        """Every claim that the pool has ever had, with all of its versions."""
        return {
            name: versions
            for name, versions in self._places.get((NODECLAIMS.plural, ""), {}).items()
            if _is_of(pool, versions)
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

    def things(self, claim: str) -> list[Thing]:
        """All of its versions, but for its end."""
        return [each.thing for each in self.versions(NODECLAIMS, claim) if each.thing is not None]

    def taken_at(self, claim: str) -> datetime:
        """At which whole second it went into S3 or, without it, into S4."""
        first = next((each for each in self.things(claim) if is_disrupted(each)), None)
        assert first is not None, f"{claim} was never taken"
        marked_at = since(first, ConditionType.DISRUPTION_REASON)
        ended_at = [at for each in self.things(claim) if (at := each.metadata.deletion_timestamp) is not None]
        return min(([] if marked_at is None else [marked_at]) + ended_at)

    def states(self, claim: str) -> list[str]:
        """S1 to S6 as it said of itself, one after the other."""
        said = [reason_of(each, ConditionType.DISRUPTION_STATE) for each in self.things(claim)]
        return [state for state, before in zip(said, ["", *said], strict=False) if state not in ("", before)]

    def commands_of(self, claim: str) -> list[CommandRecord]:
        """Those that the claim has been in, in their order."""
        found: list[CommandRecord] = []
        for version in self.versions(NODECLAIMS, claim):
            text = None if version.thing is None else version.thing.metadata.annotations.get(names.DISRUPTION_COMMAND)
            record = None if text is None else read_record(text)
            if record is not None and record not in found:
                found.append(record)
        return found


def _is_of(pool: str, versions: list[Version]) -> bool:
    first = versions[0].thing
    return first is not None and first.metadata.labels.get(names.NODEPOOL_LABEL) == pool


def reason_of(claim: Thing, type_: str) -> str:
    """Of a condition; empty if there is none."""
    conditions = claim.status.get("conditions") or ()
    return next((str(each["reason"]) for each in conditions if each["type"] == type_), "")


def since(claim: Thing, type_: str) -> datetime | None:
    """When the condition turned to what it is; None if there is none."""
    conditions = claim.status.get("conditions") or ()
    turned = (each["lastTransitionTime"] for each in conditions if each["type"] == type_)
    return next((msgspec.convert(at, datetime) for at in turned), None)


def is_initialized(claim: Thing) -> bool:
    return claim.condition(ConditionType.INITIALIZED) == "True"


def is_deleted(claim: Thing) -> bool:
    return claim.metadata.deletion_timestamp is not None


def is_disrupted(claim: Thing) -> bool:
    """S3 to S6: it holds a slot of its pool's budgets (R26)."""
    return is_deleted(claim) or claim.condition(ConditionType.DISRUPTION_REASON) == "True"
