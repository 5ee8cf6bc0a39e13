"""Finds the objects that `KIND/NAME` on the command line names."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from dovetail.cli.common.process import fail
from dovetail.model.refs import Ref
from dovetail.views.explain.verdicts import NodeView
from dovetail.views.forecast.data import NodeForecast

T = TypeVar("T")


def refs_of(node: NodeView | NodeForecast) -> tuple[Ref, Ref]:
    """The Node and its NodeClaim."""
    return Ref("Node", "", node.name), Ref("NodeClaim", "", node.node_claim or "")


_KINDS = {
    **dict.fromkeys(["pod", "pods", "po"], "pod"),
    **dict.fromkeys(["node", "nodes", "no"], "node"),
    **dict.fromkeys(["nodeclaim", "nodeclaims"], "nodeclaim"),
    **dict.fromkeys(["nodepool", "nodepools"], "nodepool"),
}


def named_objects(known: Mapping[str, T], texts: Iterable[str], namespace: str) -> list[T]:
    """Those of the known objects, by `kind/name`, that the texts name. Ends the program if there is no such object."""
    named = []
    for text in texts:
        key = _object_key(text, namespace)
        if key not in known:
            fail(f"{text}: not found in the input, which holds no {key}")
        named.append(known[key])
    return named


def _object_key(text: str, namespace: str) -> str:
    kind, _, name = text.partition("/")
    known = _KINDS.get(kind.lower())
    if known is None or not name:
        fail(f"{text}: want KIND/NAME with a kind of pod, node, nodeclaim or nodepool, such as pod/shop/cart-0")
    return f"{known}/{namespace}/{name}" if known == "pod" and "/" not in name else f"{known}/{name}"
