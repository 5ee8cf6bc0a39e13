"""Which objects does a list or watch ask for? Label and field selectors as the API server reads them from the URL."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from dovetail.ports import Resource
from dovetail.sim.server.errors import bad_request, no_such_resource
from dovetail.sim.server.kinds import kind_of
from dovetail.values.selector import Selector, make_selector

Body = dict[str, Any]
Wanted = Callable[[Body], bool]

_KEY = r"[A-Za-z0-9][-A-Za-z0-9_./]*"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")
_FIELD = re.compile(r"([^=!,]+)(==|=|!=)([^,]*)")
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn"}
_NOTHING: Mapping[str, str] = {}


def wanted(resource: Resource[Any], namespace: str | None, labels: str, fields: str) -> Wanted | None:
    """A test of objects, or None if all of the kind are wanted. Raises Invalid (400) for what the server refuses."""
    tests: list[Wanted] = []
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
    """The selector of `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    return make_selector(None, [_label_term(term.strip()) for term in _COMMA_OUTSIDE.split(text)])


def _label_term(term: str) -> tuple[str, str, list[str]]:
    if found := _SET.fullmatch(term):
        key, operator, values = found.groups()
        return key, _OPERATORS[operator], [value.strip() for value in values.split(",")]
    if found := _EQUAL.fullmatch(term):
        key, operator, value = found.groups()
        return key, _OPERATORS[operator], [value]
    if found := _EXISTS.fullmatch(term):
        return found[2], "DoesNotExist" if found[1] else "Exists", []
    raise bad_request(f"unable to parse requirement: {term!r}")


def _field_tests(resource: Resource[Any], fields: str) -> list[Wanted]:
    known = kind_of(resource).selectable
    tests = []
    for term in fields.split(","):
        found = _FIELD.fullmatch(term)
        if found is None:
            raise bad_request(f"invalid selector: '{fields}'; can't understand '{term}'")
        path, operator, value = found.groups()
        if path not in known or (path == "metadata.namespace" and not resource.namespaced):
            raise bad_request(f"field label not supported: {path}")
        tests.append(_field_test(tuple(path.split(".")), value, equal=operator != "!="))
    return tests


def _field_test(path: tuple[str, ...], value: str, *, equal: bool) -> Wanted:
    def test(body: Body) -> bool:
        here: Any = body
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        text = "" if here is None else str(here).lower() if isinstance(here, bool) else str(here)
        if here is None and path[-1] in ("unschedulable", "hostNetwork"):
            text = "false"
        return (text == value) == equal

    return test
