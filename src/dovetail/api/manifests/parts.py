"""Common parts of the manifests."""

from typing import Any, Final, TypeAlias

Manifest: TypeAlias = dict[str, Any]

NAME: Final = "dovetail"
SELECTED: Final = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}


def manifest(api_version: str, kind: str, name: str, *, namespace: str | None = None, **content: Any) -> Manifest:
    metadata: Manifest = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = dict(SELECTED)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
