"""Applies JSON merge patches (RFC 7386) and Kubernetes' strategic merge patches.

Neither object nor patch is changed; the result shares the untouched parts of the object.
"""

from typing import Any

from dovetail.ports import InternalError
from dovetail.sim.server.kinds import MERGE_KEYS, Body

_DIRECTIVE = "$patch"
_DELETE_STRINGS = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: merges maps, deletes fields with null, and replaces everything else."""
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


def strategically_merged(target: Any, patch: Body) -> Body:
    """As `merged`, but merges lists that have a merge key item by item."""
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
            result[key] = strategically_merged(result.get(key), value)
        elif isinstance(value, list) and key in MERGE_KEYS:
            result[key] = _merge_list(result.get(key) or [], value, MERGE_KEYS[key])
        else:
            result[key] = value
    return result


def _merge_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
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
            result.append(strategically_merged({}, item))
        else:
            result[index] = strategically_merged(result[index], item)
    return result
