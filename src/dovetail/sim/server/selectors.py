"""Label and field selectors, as the API server reads them from URLs and objects."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from dovetail.ports import Resource
from dovetail.sim.server.errors import bad_request, no_such_resource
from dovetail.sim.server.kinds import Body, kind_of
from dovetail.values.selector import Selector, SelectorError, make_selector, parse_selector

ObjectTest = Callable[[Body], bool]

_FIELD = re.compile(r"([^=!,]+)(==|=|!=)([^,]*)")
_NOTHING: Mapping[str, str] = {}


def wanted(resource: Resource[Any], namespace: str | None, labels: str, fields: str) -> ObjectTest | None:
    """A predicate of objects, or None if the request selects all. Raises Invalid (400) as the server does."""
    tests: list[ObjectTest] = []
    if namespace is not None and not resource.namespaced:
        raise no_such_resource(resource, f"in namespace {namespace}")
    if namespace is not None:
        tests.append(lambda body: body["metadata"].get("namespace") == namespace)
    if fields:
        tests += _field_tests(resource, fields)
    if labels:
        matches = label_selector(labels).matches
        tests.append(lambda body: matches(body["metadata"].get("labels") or _NOTHING))
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda body: all(test(body) for test in tests)


@lru_cache(maxsize=256)
def label_selector(text: str) -> Selector:
    """As the server reads it from a URL. Raises Invalid (400)."""
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise bad_request(str(error)) from error


def object_selector(raw: Mapping[str, Any]) -> Selector:
    """The selector of a field such as `spec.selector`. Raises SelectorError."""
    expressions = raw.get("matchExpressions") or ()
    entries = [(entry["key"], entry["operator"], entry.get("values") or ()) for entry in expressions]
    return make_selector(raw.get("matchLabels"), entries)


def _field_tests(resource: Resource[Any], fields: str) -> list[ObjectTest]:
    selectable = kind_of(resource).selectable
    tests = []
    for term in fields.split(","):
        match = _FIELD.fullmatch(term)
        if match is None:
            raise bad_request(f"invalid selector: '{fields}'; can't understand '{term}'")
        path, operator, value = match.groups()
        if path not in selectable or (path == "metadata.namespace" and not resource.namespaced):
            raise bad_request(f"field label not supported: {path}")
        tests.append(_field_test(tuple(path.split(".")), value, equal=operator != "!="))
    return tests


def value_at(body: Body, path: tuple[str, ...]) -> Any:
    """The value of the field; None if it is absent."""
    here: Any = body
    for part in path:
        here = here.get(part) if isinstance(here, dict) else None
    return here


def _field_test(path: tuple[str, ...], value: str, *, equal: bool) -> ObjectTest:
    def test(body: Body) -> bool:
        here = value_at(body, path)
        text = "" if here is None else str(here).lower() if isinstance(here, bool) else str(here)
        if here is None and path[-1] in ("unschedulable", "hostNetwork"):
            text = "false"
        return (text == value) == equal

    return test
