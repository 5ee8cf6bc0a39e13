"""Converts NodePools and NodeClaims of `karpenter.sh/v1beta1` to v1, as the conversion of an API server does.

Older kinds cannot be converted, because no API server ever did; `REMOVED_KINDS` says what follows them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.documents import Document, InputError, plain_value

OLD_VERSION: Final = f"{names.GROUP}/v1beta1"
# Kinds that no API server of today has, and what they are called now.
REMOVED_KINDS: Final = MappingProxyType(
    {
        (names.GROUP, "Provisioner"): "NodePool of karpenter.sh/v1",
        (names.GROUP, "Machine"): "NodeClaim of karpenter.sh/v1, which only the controller creates",
        ("karpenter.k8s.aws", "AWSNodeTemplate"): "EC2NodeClass of karpenter.k8s.aws/v1",
        **{("extensions", kind): f"{kind} of apps/v1" for kind in ("Deployment", "DaemonSet", "ReplicaSet")},
    }
)
_KINDS: Final = frozenset({names.NODEPOOL_KIND, names.NODECLAIM_KIND})
_DEFAULT_EXPIRY: Final = "720h"
_FORMER_POLICY: Final = "WhenUnderutilized"
_KUBELET: Final = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"
# In v1beta1 a reference could be a name only: each cloud provider knew its one kind.
_GROUPS: Final = MappingProxyType({"EC2NodeClass": "karpenter.k8s.aws", "AKSNodeClass": "karpenter.azure.com"})
_DEFAULT_CLASS: Final = "EC2NodeClass"
_GROUP: Final = re.compile(r"^([^/]+)/")


def converted(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents, with objects of the old version as v1.

    NodeClaims of the old version come last, because their `expireAfter` is that of their NodePool.
    """
    claims: list[Document] = []
    expiries: dict[str, str] = {}
    for document in documents:
        if document.api_version != OLD_VERSION or document.kind not in _KINDS:
            yield document
        elif document.kind == names.NODECLAIM_KIND:
            claims.append(document)
        else:
            pool = to_v1(document)
            expiries |= _expiry_of_pool(pool)
            yield pool
    yield from (to_v1(claim, expiries) for claim in claims)


def to_v1(document: Document, expiries: Mapping[str, str] = MappingProxyType({})) -> Document:
    """The object as v1; as it is if it is of another version or cannot be read. `expiries`: of NodePools, by name."""
    if document.api_version != OLD_VERSION or document.kind not in _KINDS:
        return document
    try:
        value = _mapping(plain_value(document))
    except InputError:
        return document  # whoever reads it reports it
    meta, spec = _mapping(value.get("metadata")), _mapping(value.get("spec"))
    template = _mapping(spec.get("template"))
    parts = (value.get("metadata"), value.get("spec"), *map(spec.get, ("disruption", "template", "nodeClassRef")))
    if not all(part is None or isinstance(part, dict) for part in (*parts, *map(template.get, ("metadata", "spec")))):
        return document
    if document.kind == names.NODEPOOL_KIND:
        meta, spec = _pool(meta, spec)
    else:
        meta, spec = _without_kubelet(meta, _with_group(spec))
        pool = _mapping(meta.get("labels")).get(names.NODEPOOL_LABEL, "")
        spec.setdefault("expireAfter", expiries.get(pool, names.NEVER))
    whole = {**value, "apiVersion": names.API_VERSION, "metadata": meta, "spec": spec}
    return msgspec.structs.replace(
        document, api_version=names.API_VERSION, raw=None, value=whole, converted_from=document.api_version
    )


def _pool(meta: dict[str, Any], spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    disruption, template = dict(_mapping(spec.get("disruption"))), dict(_mapping(spec.get("template")))
    if disruption.get("consolidationPolicy", _FORMER_POLICY) == _FORMER_POLICY:
        disruption["consolidationPolicy"] = names.ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED.value
    disruption.setdefault("consolidateAfter", "0s")
    meta, node = _without_kubelet(meta, _with_group(_mapping(template.get("spec"))))
    node["expireAfter"] = disruption.pop("expireAfter", node.get("expireAfter", _DEFAULT_EXPIRY))
    return meta, {**spec, "disruption": disruption, "template": {**template, "spec": node}}


def _with_group(spec: dict[str, Any]) -> dict[str, Any]:
    """A reference to a node class names its group, not its version."""
    reference = dict(_mapping(spec.get("nodeClassRef")))
    if not reference:
        return dict(spec)
    kind = reference.setdefault("kind", _DEFAULT_CLASS)
    group = _GROUP.match(str(reference.pop("apiVersion", "")))
    reference.setdefault("group", group[1] if group else _GROUPS.get(kind, ""))
    return {**spec, "nodeClassRef": reference}


def _without_kubelet(meta: dict[str, Any], spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """v1 has these settings in the node class; an annotation keeps them until somebody moves them there."""
    if "kubelet" not in spec:
        return meta, spec
    text = msgspec.json.encode(spec["kubelet"]).decode()
    kept = {key: part for key, part in spec.items() if key != "kubelet"}
    return {**meta, "annotations": {**_mapping(meta.get("annotations")), _KUBELET: text}}, kept


def _expiry_of_pool(pool: Document) -> dict[str, str]:
    value = pool.value or {}
    spec = _mapping(_mapping(_mapping(value.get("spec")).get("template")).get("spec"))
    name = _mapping(value.get("metadata")).get("name")
    return {name: spec["expireAfter"]} if isinstance(name, str) and "expireAfter" in spec else {}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
