"""Finds the objects that `KIND/NAME` on the command line names."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from dovetail.cli.common.process import fail
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.views.explain.verdicts import NodeView
from dovetail.views.forecast.data import NodeForecast

T = TypeVar("T")


def refs_of(node: NodeView | NodeForecast) -> tuple[Ref, Ref]:
    """The Node and its NodeClaim."""
    return Ref("Node", "", node.name), Ref("NodeClaim", "", node.node_claim or "")


NODE_KINDS = {
    **dict.fromkeys(["node", "nodes", "no"], "node"),
    **dict.fromkeys(["nodeclaim", "nodeclaims", "nc"], "nodeclaim"),
    **dict.fromkeys(["nodepool", "nodepools", "np"], "nodepool"),
}
KINDS = {**dict.fromkeys(["pod", "pods", "po"], "pod"), **NODE_KINDS}
_WORKLOADS = {
    **dict.fromkeys(["deployment", "deployments", "deploy"], "deployment"),
    **dict.fromkeys(["statefulset", "statefulsets", "sts"], "statefulset"),
    **dict.fromkeys(["daemonset", "daemonsets", "ds"], "daemonset"),
    **dict.fromkeys(["replicaset", "replicasets", "rs"], "replicaset"),
    **dict.fromkeys(["job", "jobs"], "job"),
}
KINDS_AND_WORKLOADS = {**KINDS, **_WORKLOADS}
_NAMESPACED = {"pod", *_WORKLOADS.values()}


def named_workloads(texts: Iterable[str]) -> set[str]:
    """The kinds of workloads that the texts name, in lower case."""
    kinds = (text.partition("/")[0].lower() for text in texts if "/" in text)
    return {_WORKLOADS[kind] for kind in kinds if kind in _WORKLOADS}


def named_objects(
    objects: Mapping[str, T],
    texts: Iterable[str],
    namespace: str,
    *,
    kinds: Mapping[str, str] = KINDS,
    place: str = "input",
) -> list[T]:
    """Those of the known objects, by `kind/name`, that the texts name. Ends the program if there is no such object.

    A name alone is enough if only one object has it, and so is the name of a Node's host without its domain, such as
    ip-10-0-18-63 on EC2. `kinds`: those that may be named. `place`: where they are sought.
    """
    named = []
    for text in texts:
        key = _object_key(objects, text, namespace, kinds)
        if key not in objects:
            key = next(iter(_hosts(objects, key.removeprefix("node/"))), key) if key.startswith("node/") else key
        if key not in objects:
            fail(f"{key} is not in the {place}{_suggestion(objects, key)}")
        named.append(objects[key])
    return named


def _object_key(objects: Mapping[str, T], text: str, namespace: str, kinds: Mapping[str, str]) -> str:
    kind, _, name = text.partition("/")
    kind_ = kinds.get(kind.lower())
    *first, last = dict.fromkeys(kinds.values())
    wanted = f"{text}: want KIND/NAME with a kind of {', '.join(first)} or {last}"
    if kind_ is None and not name:
        keys = [key for key in objects if key.rpartition("/")[2] == text] or _hosts(objects, text)
        # A node and its NodeClaim are one object here.
        if keys and all(objects[key] is objects[keys[0]] for key in keys):
            return keys[0]
        which = f", one of {', '.join(sorted(keys)[:5])}" if keys else _example(kinds)
        close = "" if keys else _suggestion(objects, text)
        fail(f"{wanted}{close or which}")
    if kind_ is None or not name:
        fail(f"{wanted}{_example(kinds)}")
    return f"{kind_}/{namespace}/{name}" if kind_ in _NAMESPACED and "/" not in name else f"{kind_}/{name}"


def _example(kinds: Mapping[str, str]) -> str:
    return ", such as pod/shop/cart-0" if "pod" in kinds else ", such as node/n1"


def node_names(snapshot: Snapshot, texts: Iterable[str]) -> tuple[str, ...]:
    """The texts, with the names of nodes in place of the names of their hosts."""
    objects = {f"node/{member.name}": member for member in snapshot.nodes}
    hosts = ((text, [] if f"node/{text}" in objects else _hosts(objects, text)) for text in texts)
    return tuple(matches[0].removeprefix("node/") if matches else text for text, matches in hosts)


def _hosts(objects: Mapping[str, T], host: str) -> list[str]:
    """The Node whose name begins with the name of this host; nothing if there are several."""
    keys = [key for key in objects if key.startswith(f"node/{host}.")]
    return keys if len(keys) == 1 else []


def _suggestion(objects: Mapping[str, T], key: str) -> str:
    """Objects of this name elsewhere, or of a similar name; else those whose names begin with it, as pods' do."""
    name = key.rpartition("/")[2]
    names: dict[str, list[str]] = {}
    for other in objects:
        names.setdefault(other.rpartition("/")[2], []).append(other)
    close = [other for similar in get_close_matches(name, names, n=3, cutoff=0.75) for other in names[similar]]
    if name not in names:
        close = [other for other in objects if other.rpartition("/")[2].startswith(f"{name}-")] or close
    alike = [other for other in close if other.partition("/")[0] == key.partition("/")[0]]
    close = alike or close
    return f"; did you mean {' or '.join(sorted(close)[:3])}?" if close else ""
