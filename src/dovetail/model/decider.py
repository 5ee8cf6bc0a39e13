"""Who decides in a cluster which nodes are disrupted: Karpenter or Dovetail (R56)."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.api.names import DovetailMode

_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,6})?(?:[-+][0-9A-Za-z.+-]{1,64})?")


class DecidingController(StrEnum):
    """The two controllers whose rules differ."""

    KARPENTER = "karpenter"
    DOVETAIL = "dovetail"


_NAME, _CONTAINER = "karpenter", "controller"  # as its own chart has them
_NAMES: Final = {DecidingController.KARPENTER: "Karpenter", DecidingController.DOVETAIL: "Dovetail"}
_GUARD_LIMITS: Final = (
    "Guard holds a node or not, for all graceful reasons. It cannot stop a command that Karpenter has begun, nor "
    "expireAfter, interruptions and deletions"
)


class Decider(msgspec.Struct, frozen=True, rename="camel"):
    """Who decides, and how that is known."""

    controller: DecidingController
    version: str | None = None
    """Of Karpenter, without the `v`. None: it is not known, or Dovetail runs alone."""
    mode: DovetailMode | None = None
    """Of Dovetail."""
    reason: str = ""
    """What shows it, for people."""

    @property
    def text(self) -> str:
        """What `parse_decider` reads."""
        version = f"@{self.version}" if self.version else ""
        mode = "" if self.mode in (None, DovetailMode.RUN) else f":{self.mode}"
        return f"{self.controller}{mode}{version}"

    @property
    def name(self) -> str:
        """`Karpenter 1.15`, `Dovetail (guard)`."""
        shown = self.mode is not None and self.mode is not DovetailMode.RUN
        more = f" ({self.mode})" if shown else f" {self.version}" if self.version else ""
        return f"{_NAMES[self.controller]}{more}"

    @property
    def sentence(self) -> str:
        """For heads: `Karpenter 1.15 decides: it holds the Lease karpenter/karpenter-leader-election`."""
        who = "Karpenter decides, and Dovetail guards" if self.mode is DovetailMode.GUARD else f"{self.name} decides"
        return f"{who}: {self.reason}" if self.reason else who

    @property
    def limits(self) -> str:
        """What the mode cannot do, for people who ask why a node goes all the same."""
        return _GUARD_LIMITS if self.mode is DovetailMode.GUARD else ""

    @property
    def own_budgets(self) -> bool:
        """Whether Dovetail spends the budgets; in guard Karpenter does."""
        return self.controller is DecidingController.DOVETAIL and self.mode is not DovetailMode.GUARD

    @property
    def release(self) -> tuple[int, int] | None:
        """Major and minor version of Karpenter, if they are known."""
        match = None if self.version is None else _VERSION.fullmatch(self.version)
        return None if match is None else (int(match[1]), int(match[2]))


DOVETAIL: Final = Decider(DecidingController.DOVETAIL, mode=DovetailMode.RUN)
KARPENTER: Final = Decider(DecidingController.KARPENTER)


def parse_decider(text: str) -> Decider:
    """Reads `karpenter`, `karpenter@1.15`, `dovetail` or `dovetail:guard`. Raises ValueError."""
    name, version_mark, version = text.partition("@")
    name, mode_mark, mode = name.partition(":")
    if name == DecidingController.KARPENTER and not mode_mark:
        if not version_mark:
            return KARPENTER
        if _VERSION.fullmatch(version):
            return Decider(DecidingController.KARPENTER, version=version.removeprefix("v"))
    if name == DecidingController.DOVETAIL and not version_mark:
        if not mode_mark:
            return DOVETAIL
        if mode in set(DovetailMode):
            return Decider(DecidingController.DOVETAIL, mode=DovetailMode(mode))
    modes = "|".join(DovetailMode)
    raise ValueError(f"want karpenter, karpenter@1.15, dovetail or dovetail:{modes}, not {text[:40]!r}")


MODES: Final = (
    str(DecidingController.KARPENTER),
    *map(str, (DovetailMode.GUARD, DovetailMode.DRIVE, DovetailMode.RUN)),
)


def in_mode(mode: str, found: Decider, reason: str) -> Decider:
    """Whoever decides if this one of MODES does, on the cluster of `found`; itself if that is so already."""
    if mode == (found.controller if found.mode is None else found.mode):
        return found
    if mode == DecidingController.KARPENTER:
        return Decider(DecidingController.KARPENTER, version=found.version, reason=reason)
    return Decider(DecidingController.DOVETAIL, version=found.version, mode=DovetailMode(mode), reason=reason)


def version_in(image: str) -> str | None:
    """The version in the tag of an image, such as `public.ecr.aws/karpenter/controller:1.15.0@sha256:…`."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return tag.removeprefix("v") if _VERSION.fullmatch(tag) else None


def version_of(images: Mapping[str, str]) -> str | None:
    """The version of the Karpenter whose pod runs these images, by the names of the containers.

    Sidecars have versions, too: one of theirs must not be taken for it.
    """
    own = [image for name, image in images.items() if name == _CONTAINER or _NAME in image]
    judged = own or (list(images.values()) if len(images) == 1 else [])
    return next(filter(None, map(version_in, judged)), None)
