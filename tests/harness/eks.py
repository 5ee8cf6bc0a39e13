"""A dump of a cluster that Karpenter runs on EC2, as `kubectl get -o json` prints it, and its parts.

Among its nodes are those that Karpenter does not own: a managed node group and Fargate. Others are cordoned, NotReady,
draining with a deadline, or not registered yet.
"""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.harness.dumps import Printed, printed

DUMP = Path(__file__).parents[2] / "examples" / "eks.json.gz"
AT = "2026-11-17T10:00:00Z"


@cache
def _content() -> bytes:
    return gzip.decompress(DUMP.read_bytes())


def objects() -> list[dict[str, Any]]:
    """The objects, for the caller to change."""
    items: list[dict[str, Any]] = msgspec.json.decode(_content())["items"]
    return items


def named(items: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The object of this kind whose name begins so: `named(items, "Node", "ip-10-0-18-63")`."""
    return next(item for item in items if item["kind"] == kind and item["metadata"]["name"].startswith(name))


def asked_of(items: list[dict[str, Any]], *arguments: str) -> Printed:
    """What a command says of these objects: `asked_of(objects(), "explain", "node/ip-10-0-18-63")`."""
    command, *rest = arguments
    return printed(
        [command, "-f", "-", *(() if command == "record" else ("--at", AT)), *rest],
        msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}),
    )
