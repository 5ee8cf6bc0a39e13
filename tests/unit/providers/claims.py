"""Claims for the tests of providers, as the API server hands them out."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.api import names
from dovetail.api.objects import NodeClaim, NodeSelectorRequirement, Quantities
from tests.harness import claims as manifests

Manifest = dict[str, Any]

SMALL, OTHER = "c-1x-amd64-linux", "s-1x-amd64-linux"


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))


def types_requirement(*types: str) -> NodeSelectorRequirement:
    return requirement(names.INSTANCE_TYPE_LABEL, "In", *types)


def claim_manifest(
    name: str = "web-1",
    *requirements: NodeSelectorRequirement,
    types: tuple[str, ...] = (SMALL,),
    requests: Quantities | None = None,
    **options: Any,
) -> Manifest:
    """A claim that lists these types, if any, and has these requirements."""
    listed = [types_requirement(*types)] if types else []
    return manifests.node_claim(
        name,
        requirements=[msgspec.to_builtins(each) for each in (*listed, *requirements)],
        resources={"requests": dict(requests or {})},
        labels={names.KWOK_NODECLASS_LABEL: "default"},
        **options,
    )


def claim(name: str = "web-1", *requirements: NodeSelectorRequirement, uid: str = "uid-1", **options: Any) -> NodeClaim:
    """The same, read."""
    body = claim_manifest(name, *requirements, **options)
    body["metadata"]["uid"] = uid
    return msgspec.convert(body, NodeClaim)


def labels_of(requirements: tuple[NodeSelectorRequirement, ...]) -> Mapping[str, list[str]]:
    return {each.key: each.values for each in requirements}
