"""Proofs for people that nodes cannot be removed."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from dovetail.model.refs import Redactable, Ref, Sentence
from dovetail.scheduling.fast.rows import NodeQuery
from dovetail.scheduling.placement import NodeInfo, PodInfo, price_text
from dovetail.scheduling.resources import Resources, amount_text


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """What the other nodes lack: a resource for all pods together, or places for like pods."""

    needed: int
    there: int
    resource: str = ""
    pods: tuple[str, ...] = ()
    like: Ref | None = None  # the first of the pods
    each: Resources = Resources()

    @property
    def sentence(self) -> Sentence:
        if self.like is None:
            has, needs = amount_text(self.resource, self.there), amount_text(self.resource, self.needed)
            return Sentence(
                f"its pods need {needs} {self.resource}, and all other nodes that could take any have {has} left"
            )
        size = " and ".join(f"{amount_text(name, self.each[name])} {name}" for name in self.each if name != "pods")
        path = self.like.path
        who: tuple[str | Redactable, ...] = (f"{self.needed} pods like ", Redactable(self.like, path), " need")
        if self.needed == 1:
            who = (Redactable(self.like, f"pod {path}"), " needs")
        room = {
            0: f"{'it fits' if self.needed == 1 else 'they fit'} on no other node",
            1: "only one fits on another node",
        }
        per_pod = f"{size or 'a place'}{' each' if self.needed > 1 else ''}"
        return Sentence(*who, f" {per_pod}; {room.get(self.there, f'only {self.there} fit on other nodes')}")


class PriceBound(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest new node for what the other nodes cannot take; without a price there is none."""

    type: str = ""
    price: int | None = None
    limit: int = 0

    def __str__(self) -> str:
        if self.price is None:
            return "no instance type would take what is left over"
        cost, limit = price_text(self.price), price_text(self.limit)
        cheapest = f"the cheapest new node for the rest ({self.type}, ${cost}/h)"
        return f"{cheapest} is no cheaper than what it replaces (${limit}/h)"


class Witness(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Proves that nodes cannot be removed without a new one and, with `dearer`, not even for a cheaper one."""

    shortage: Shortage
    dearer: PriceBound | None = None

    def __str__(self) -> str:
        return str(self.sentence)

    @cached_property
    def sentence(self) -> Sentence:
        """Cached: it is shown often."""
        shortage = self.shortage.sentence
        return Sentence(shortage, f"; {self.dearer}") if self.dearer else shortage


class CachedWitness(NamedTuple):
    """A proof for some pods. It holds as long as the nodes that can take one of them are the same.

    `read` has the labels by which the pods were told apart.
    """

    pods: Sequence[PodInfo]
    read: frozenset[str]
    price: int
    asked: tuple[NodeQuery, ...]  # by all pods at all steps of relaxation
    takers: tuple[NodeInfo, ...]
    witness: Witness | None
