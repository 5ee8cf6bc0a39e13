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
    objects: Mapping[Ref, T],
    texts: Iterable[str],
    namespace: str,
    *,
    kinds: Mapping[str, str] = KINDS,
    place: str = "input",
) -> list[T]:
    """Those of the known objects that the texts name. Ends the program if there is no such object.

    A name alone is enough if only one object has it, and so is the name of a Node's host without its domain, such as
    ip-10-0-18-63 on EC2. `kinds`: those that may be named; the objects have them in lower case, too. `place`: where
    they are sought.
    """
    named = []
    for text in texts:
        ref = _ref(objects, text, namespace, kinds)
        if ref not in objects and ref.kind == "node":
            ref = next(iter(_hosts(objects, ref.name)), ref)
        if ref not in objects:
            fail(f"{ref} is not in the {place}{_suggestion(objects, ref.name, ref.kind)}")
        named.append(objects[ref])
    return named


def _ref(objects: Mapping[Ref, T], text: str, namespace: str, kinds: Mapping[str, str]) -> Ref:
    kind, _, name = text.partition("/")
    kind_ = kinds.get(kind.lower())
    *first, last = dict.fromkeys(kinds.values())
    wanted = f"{text}: want KIND/NAME with a kind of {', '.join(first)} or {last}"
    if kind_ is None and not name:
        refs = [ref for ref in objects if ref.name == text] or _hosts(objects, text)
        # A node and its NodeClaim are one object here.
        if refs and all(objects[ref] is objects[refs[0]] for ref in refs):
            return refs[0]
        which = f", one of {', '.join(map(str, sorted(refs)[:5]))}" if refs else _example(kinds)
        close = "" if refs else _suggestion(objects, text)
        fail(f"{wanted}{close or which}")
    if kind_ is None or not name:
        fail(f"{wanted}{_example(kinds)}")
    if kind_ in _NAMESPACED:
        given, _, name = name.rpartition("/")
        return Ref(kind_, given or namespace, name)
    return Ref(kind_, "", name)


def _example(kinds: Mapping[str, str]) -> str:
    return ", such as pod/shop/cart-0" if "pod" in kinds else ", such as node/n1"


def node_names(snapshot: Snapshot, texts: Iterable[str]) -> tuple[str, ...]:
    """The texts, with the names of nodes in place of the names of their hosts."""
    nodes = {Ref("node", "", member.name): member for member in snapshot.nodes}
    hosts = ((text, [] if Ref("node", "", text) in nodes else _hosts(nodes, text)) for text in texts)
    return tuple(refs[0].name if refs else text for text, refs in hosts)


def _hosts(objects: Iterable[Ref], host: str) -> list[Ref]:
    """The Node whose name begins with the name of this host; nothing if there are several."""
    refs = [ref for ref in objects if ref.kind == "node" and ref.name.startswith(f"{host}.")]
    return refs if len(refs) == 1 else []


def _suggestion(objects: Iterable[Ref], name: str, kind: str = "") -> str:
    """Objects of this name elsewhere, or of a similar name; else those whose names begin with it, as pods' do."""
    refs: dict[str, list[Ref]] = {}
    for ref in objects:
        refs.setdefault(ref.name, []).append(ref)
    close = [ref for similar in get_close_matches(name, refs, n=3, cutoff=0.75) for ref in refs[similar]]
    if name not in refs:
        close = [ref for ref in objects if ref.name.startswith(f"{name}-")] or close
    close = [ref for ref in close if ref.kind == kind] or close
    return f"; did you mean {' or '.join(map(str, sorted(close)[:3]))}?" if close else ""
