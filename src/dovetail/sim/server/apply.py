"""Who owns which field, and what does a server-side apply make of an object?

A leaf of an object belongs to whoever last set it; a manager's applies and its other writes count as two managers, as
on the real server. Fields without an entry belong to the manager that created the object. The real server also shows
this as metadata.managedFields; here it stays inside.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.api.schema import Schema
from dovetail.ports import Conflict, Resource
from dovetail.sim.server.kinds import POD_MERGE_KEYS, Kind

Body = dict[str, Any]
Path = tuple[str, ...]
Manager = tuple[str, str, str]  # name, operation, subresource: with each of them another manager

_NOBODY: Manager = ("", "", "")
_IDENTITY = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"))
_NOT_OWNED = (
    *_IDENTITY,
    ("metadata", "resourceVersion"),
    ("metadata", "generation"),
    ("metadata", "creationTimestamp"),
)


class _Fields:
    """The owners of one object's fields."""

    def __init__(self, creator: Manager) -> None:
        self.creator = creator
        self.owners: dict[Path, tuple[Manager, ...]] = {}

    def of(self, path: Path) -> tuple[Manager, ...]:
        return self.owners.get(path, () if self.creator == _NOBODY else (self.creator,))


class FieldOwners:
    """The owners of all objects' fields, by the objects' UIDs."""

    def __init__(self) -> None:
        self._fields: dict[str, _Fields] = {}

    def created(self, body: Body, manager: str) -> None:
        self._fields[body["metadata"]["uid"]] = _Fields((manager, "Update", ""))

    def created_by_apply(self, kind: Kind, body: Body, applied: Body, manager: str) -> None:
        fields = self._fields[body["metadata"]["uid"]] = _Fields(_NOBODY)
        for path in _leaves(applied, kind.schema):
            fields.owners[path] = ((manager, "Apply", ""),)

    def forget(self, body: Body) -> None:
        self._fields.pop(body["metadata"]["uid"], None)

    def updated(self, kind: Kind, old: Body, new: Body, manager: str, subresource: str) -> None:
        """What was changed otherwise than by an apply belongs to the manager alone."""
        fields = self._fields.get(new["metadata"]["uid"])
        if fields is None:
            return
        me = (manager, "Update", subresource)
        for path in _changed(old, new, kind.schema):
            if me == fields.creator:
                fields.owners.pop(path, None)
            else:
                fields.owners[path] = (me,)

    def applied(
        self,
        resource: Resource[Any],
        kind: Kind,
        live: Body,
        patch: Body,
        manager: str,
        *,
        subresource: str,
        force: bool,
    ) -> Body:
        """What becomes of the live object. Raises Conflict if others own what it would change, unless forced."""
        me: Manager = (manager, "Apply", subresource)
        fields = self._fields.setdefault(live["metadata"]["uid"], _Fields(_NOBODY))
        reset = {"status"} if kind.has_status and not subresource else {"spec"} if subresource else set()
        asked = _leaves({key: value for key, value in patch.items() if key not in reset}, kind.schema)
        present = _leaves(live, kind.schema)
        changed = [path for path, value in asked.items() if path not in present or present[path] != value]
        others = [(path, owner) for path in changed if path in present for owner in fields.of(path) if owner != me]
        if others and not force:
            raise _conflict(resource, others)
        given_up = [path for path, owners in fields.owners.items() if me in owners and path not in asked]
        body: Body = _merged(live, {key: value for key, value in patch.items() if key not in reset}, kind.schema)
        gone: set[Path] = set()
        for path in given_up:
            left = tuple(owner for owner in fields.owners[path] if owner != me)
            fields.owners[path] = left
            if not left:
                del fields.owners[path]
                gone.add(path)
        body = _without(body, gone, kind.schema)
        for path in asked:
            fields.owners[path] = (me,) if path in changed else (*(o for o in fields.of(path) if o != me), me)
        return body


def _conflict(resource: Resource[Any], others: list[tuple[Path, Manager]]) -> Conflict:
    if len(others) == 1:
        told = f"1 conflict: conflict with {_named(resource, others[0][1])}: {_shown(others[0][0])}"
    else:
        lines = []
        for manager in sorted({manager for _, manager in others}):
            lines.append(f"conflicts with {_named(resource, manager)}:")
            lines += [f"- {_shown(path)}" for path, owner in others if owner == manager]
        told = f"{len(others)} conflicts: " + "\n".join(lines)
    return Conflict(f"Apply failed with {told}", code=409, reason="Conflict")


def _named(resource: Resource[Any], manager: Manager) -> str:
    name, operation, subresource = manager
    through = f' with subresource "{subresource}"' if subresource else ""
    return f'"{name}"{through}' + (f" using {resource.api_version}" if operation == "Update" else "")


def _shown(path: Path) -> str:
    return "".join(part if part.startswith("[") else f".{part}" for part in path)


# -- leaves -----------------------------------------------------------------------------------------------------------


def _leaves(body: Body, schema: Schema | None) -> dict[Path, Any]:
    return {path: value for path, value in _walk(body, (), schema) if path not in _NOT_OWNED}


def _walk(value: Any, path: Path, schema: Schema | None) -> Iterator[tuple[Path, Any]]:
    keys = _list_keys(path, schema) if isinstance(value, list) else None
    if isinstance(value, dict) and value and not _atomic(schema):
        for key, inner in value.items():
            yield from _walk(inner, (*path, key), _inner(schema, key))
    elif keys is not None:
        for item in value:
            yield from _walk(item, (*path, _item(item, keys)), _inner(schema, None))
    else:
        yield path, value


def _changed(old: Any, new: Any, schema: Schema | None, path: Path = ()) -> Iterator[Path]:
    """The leaves that differ; what both share is not looked at."""
    if old is new or path in _NOT_OWNED:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _changed(old.get(key), new.get(key), _inner(schema, key), (*path, key))
    elif old != new:
        before, after = dict(_walk(old, path, schema)), dict(_walk(new, path, schema))
        yield from (leaf for leaf in {**before, **after} if before.get(leaf) != after.get(leaf))


def _item(item: Any, keys: tuple[str, ...]) -> str:
    if not keys:
        return f'[="{item}"]'
    return "[" + ",".join(f'{key}="{item.get(key)}"' for key in keys) + "]"


def _list_keys(path: Path, schema: Schema | None) -> tuple[str, ...] | None:
    """By what the list's items are told apart: keys, or only their values (a set); None if the list is one leaf."""
    if schema is not None and path[0] != "metadata":
        kind = schema.get("x-kubernetes-list-type")
        return tuple(schema["x-kubernetes-list-map-keys"]) if kind == "map" else () if kind == "set" else None
    key = POD_MERGE_KEYS.get(path[-1])
    return None if key is None else (key,) if key else ()


def _atomic(schema: Schema | None) -> bool:
    return schema is not None and schema.get("x-kubernetes-map-type") == "atomic"


def _inner(schema: Schema | None, key: str | None) -> Schema | None:
    if schema is None:
        return None
    found: Mapping[str, Any] | None = schema.get("items") if key is None else schema.get("properties", {}).get(key)
    return found


# -- merging ----------------------------------------------------------------------------------------------------------


def _merged(live: Any, patch: Any, schema: Schema | None, path: Path = ()) -> Any:
    if isinstance(patch, dict) and isinstance(live, dict) and not _atomic(schema):
        inner = {k: _merged(live.get(k), v, _inner(schema, k), (*path, k)) for k, v in patch.items()}
        return {**live, **inner}
    keys = _list_keys(path, schema) if isinstance(patch, list) and isinstance(live, list) else None
    if keys is None:
        return patch
    result = {_item(item, keys): item for item in live}
    for item in patch:
        name = _item(item, keys)
        result[name] = _merged(result.get(name), item, _inner(schema, None), (*path, name))
    return list(result.values())


_GONE: Any = object()


def _without(value: Any, gone: set[Path], schema: Schema | None, path: Path = ()) -> Any:
    """The value without these leaves, and without maps and items that are empty then; _GONE if nothing is left."""
    if path in gone:
        return _GONE
    keys = _list_keys(path, schema) if isinstance(value, list) else None
    if isinstance(value, dict) and value and not _atomic(schema):
        inner = {k: _without(v, gone, _inner(schema, k), (*path, k)) for k, v in value.items()}
        return {k: v for k, v in inner.items() if v is not _GONE} or _GONE
    if keys is None or not value:
        return value
    items = []
    for item in value:
        left = _without(item, gone, _inner(schema, None), (*path, _item(item, keys)))
        if left is not _GONE:
            # Somebody else has a field of it, so it stays, and with it what tells it from the others.
            items.append({**{key: item[key] for key in keys}, **left} if keys else left)
    return items or _GONE
