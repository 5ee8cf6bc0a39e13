"""What does a patch make of an object? JSON merge patches (RFC 7386) and Kubernetes' strategic merge patches.

The result shares with the object what the patch does not touch; neither is changed.
"""

from collections.abc import Mapping
from typing import Any

from dovetail.ports import InternalError, Resource
from dovetail.sim.server.kinds import POD_MERGE_KEYS, SERVICE_MERGE_KEYS

Body = dict[str, Any]
_DIRECTIVE = "$patch"
_DELETE_STRINGS = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: maps are merged, null deletes, everything else is replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key), value)
        else:
            result[key] = value
    return result


def strategically_merged(resource: Resource[Any], target: Body, patch: Body) -> Body:
    """As `merged`, but lists that have a merge key are merged item by item."""
    keys = SERVICE_MERGE_KEYS if resource.plural == "services" else POD_MERGE_KEYS
    return _merge_map(target, patch, keys)


def _merge_map(target: Any, patch: Body, keys: Mapping[str, str]) -> Body:
    if patch.get(_DIRECTIVE) == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        result = {key: value for key, value in result.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN) or key.startswith(_ORDER):
            continue  # the order of items is not kept
        if key.startswith(_DELETE_STRINGS):
            field = key.removeprefix(_DELETE_STRINGS)
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif value is None:
            result.pop(key, None)
        elif key == "selector":  # patchStrategy: replace, in a PodDisruptionBudget
            result[key] = value
        elif isinstance(value, dict):
            result[key] = _merge_map(result.get(key), value, keys)
        elif isinstance(value, list) and key in keys:
            result[key] = _merge_list(result.get(key) or [], value, keys[key], keys)
        else:
            result[key] = value
    return result


def _merge_list(target: list[Any], patch: list[Any], merge_key: str, keys: Mapping[str, str]) -> list[Any]:
    if not merge_key:
        return [*target, *(item for item in dict.fromkeys(patch) if item not in target)]
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if _DIRECTIVE not in item]
    result = list(target)
    for item in patch:
        if merge_key not in item:
            raise InternalError(f"map: {item} does not contain declared merge key: {merge_key}", code=500)
        index = next((i for i, old in enumerate(result) if old.get(merge_key) == item[merge_key]), None)
        if item.get(_DIRECTIVE) == "delete":
            if index is not None:
                del result[index]
        elif index is None:
            result.append(_merge_map({}, item, keys))
        else:
            result[index] = _merge_map(result[index], item, keys)
    return result
