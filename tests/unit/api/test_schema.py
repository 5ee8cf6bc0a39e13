"""Does the schema check refuse what the API server refuses, and nothing else?"""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.schema import MAX_VIOLATIONS, SchemaViolation, crd_schema, defaulted, describe, matches, violations
from tests.unit.api.crd_cases import CASES, Case, nodeclaim, nodeclass, nodepool

KINDS = ("NodePool", "NodeClaim", "KWOKNodeClass")


def check(document: dict[str, Any]) -> list[SchemaViolation]:
    schema = crd_schema(document["kind"])
    assert schema is not None
    return violations(defaulted(document, schema), schema)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_answers_as_the_api_server(case: Case) -> None:
    found = check(case.new)
    if case.by == "schema":
        assert case.error is not None
        assert any(case.error in violation.field for violation in found)
    else:
        assert found == []


def test_only_our_kinds_have_a_schema() -> None:
    assert [kind for kind in (*KINDS, "Pod") if crd_schema(kind) is not None] == list(KINDS)


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("a", {"type": "string"}, None),
        (1, {"type": "string"}, "must be a string, not 1"),
        (True, {"type": "integer"}, "must be a whole number, not true"),
        (5.0, {"type": "integer"}, None),
        (5.5, {"type": "integer"}, "must be a whole number, not 5.5"),
        (5.5, {"type": "number"}, None),
        (2**63, {"type": "integer"}, "a huge number is more than"),
        (2**63 - 1, {"type": "integer"}, None),
        ("5", {"type": "integer"}, "must be a whole number, not the string '5'"),
        ("yes", {"type": "boolean"}, "must be true or false"),
        ([], {"type": "object"}, "must be a mapping, not a list"),
        ({}, {"type": "array"}, "must be a list, not a mapping"),
        (None, {"type": "string"}, "must be a string, not null"),
        (None, {"type": "string", "nullable": True}, None),
        (1, {"x-kubernetes-int-or-string": True}, None),
        ("1", {"x-kubernetes-int-or-string": True}, None),
        (1.5, {"x-kubernetes-int-or-string": True}, "must be a whole number or a string"),
        ("b", {"type": "string", "enum": ["a", "c"]}, "'b' is not one of a, c"),
        ("xay", {"type": "string", "pattern": "a"}, None),
        ("a\n", {"type": "string", "pattern": "^a$"}, "does not match"),
        ("", {"type": "string", "minLength": 1}, "at least 1"),
        ("ab", {"type": "string", "maxLength": 1}, "at most 1"),
        (0, {"type": "integer", "minimum": 1}, "0 is less than 1"),
        (3, {"type": "integer", "maximum": 2}, "3 is more than 2"),
        ("2026-01-01", {"type": "string", "format": "date-time"}, "is not a time"),
        ("2026-01-01T00:00:00Z", {"type": "string", "format": "date-time"}, None),
        ([1], {"type": "array", "maxItems": 0}, "has 1 items, at most 0"),
        ([], {"type": "array", "minItems": 1}, "has 0 items, at least 1"),
        ({"a": 1}, {"type": "object", "maxProperties": 0, "additionalProperties": {}}, "has 1 entries, at most 0"),
        ({}, {"type": "object", "minProperties": 1}, "has 0 entries, at least 1"),
        ({"a": {"b": 1}}, {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True}, None),
        ({"a": 1}, {"type": "object", "properties": {"b": {}}}, "is not a field"),
        ({"a": 1}, {"type": "object", "additionalProperties": {"type": "string"}}, "must be a string"),
        ({"a": None}, {"type": "object", "properties": {"a": {"type": "string"}}}, None),
        ({"a": None}, {"type": "object", "properties": {"a": {}}, "required": ["a"]}, "is required"),
    ],
)
def test_each_keyword(value: object, schema: dict[str, Any], expected: str | None) -> None:
    found = [violation.message for violation in violations(value, schema)]
    if expected is None:
        assert found == []
    else:
        assert len(found) == 1
        assert expected in found[0]


@pytest.mark.parametrize(
    ("items", "duplicate"), [(["a", "b", "a"], "x[2]"), ([1, "1"], None), ([1, True], None), (["a", "A"], None)]
)
def test_sets_have_no_duplicates(items: list[Any], duplicate: str | None) -> None:
    found = violations(items, {"type": "array", "items": {}, "x-kubernetes-list-type": "set"}, "x")
    assert [violation.field for violation in found] == ([duplicate] if duplicate else [])


def test_lists_of_a_map_have_one_item_a_key() -> None:
    schema = {"type": "array", "items": {}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    assert violations([{"type": "a", "v": 1}, {"type": "b"}, {"type": {}}, {"type": {}}], schema) == []
    (found,) = violations([{"type": "a", "v": 1}, {"type": "a", "v": 2}], schema, "x")
    assert found == SchemaViolation("x[1]", "has the same type as an earlier item")


def test_atomic_lists_may_repeat() -> None:
    assert violations(["a", "a"], {"type": "array", "items": {}, "x-kubernetes-list-type": "atomic"}) == []


def test_unknown_fields_are_told_apart() -> None:
    (unknown,) = check(nodepool({"disruption": {"budgets": [{"nodes": "1", "reason": "Drifted"}]}}))
    assert (unknown.field, unknown.unknown) == ("spec.disruption.budgets[0].reason", True)
    (wrong,) = check(nodepool({"weight": 0}))
    assert (wrong.field, wrong.unknown) == ("spec.weight", False)


def test_metadata_is_not_looked_into() -> None:
    assert check(nodepool() | {"metadata": {"name": "x", "whatever": {"a": 1}}}) == []


# -- defaults ----------------------------------------------------------------------------------------------------------


def stored(document: dict[str, Any]) -> Any:
    schema = crd_schema(document["kind"])
    assert schema is not None
    return defaulted(document, schema)


def test_defaults_are_filled_in() -> None:
    spec = stored(nodepool())["spec"]
    assert spec["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "gracefulExpireAfter": "Never",
        "budgets": [{"nodes": "10%"}],
    }
    assert spec["template"]["spec"]["expireAfter"] == "720h"
    assert stored(nodeclaim())["spec"]["expireAfter"] == "720h"
    assert stored(nodeclass())["status"]["conditions"][0]["type"] == "Ready"


def test_what_is_written_stays() -> None:
    written = {"consolidateAfter": "5m", "budgets": [{"reasons": ["Empty"]}, {"nodes": "3"}]}
    disruption = stored(nodepool({"disruption": written}))["spec"]["disruption"]
    assert disruption["consolidateAfter"] == "5m"
    assert disruption["budgets"] == [{"reasons": ["Empty"], "nodes": "10%"}, {"nodes": "3"}]
    assert stored(nodepool({"disruption": {"budgets": []}}))["spec"]["disruption"]["budgets"] == []


def test_null_is_absent() -> None:
    spec = stored(nodepool({"disruption": None, "weight": None}))["spec"]
    assert spec["disruption"]["consolidateAfter"] == "0s"
    assert "weight" not in spec


def test_defaults_share_nothing() -> None:
    before = nodepool()
    untouched = deepcopy(before)
    stored(before)["spec"]["disruption"]["budgets"].clear()
    assert before == untouched
    assert stored(nodepool())["spec"]["disruption"]["budgets"] == [{"nodes": "10%"}]


# -- hostile values ----------------------------------------------------------------------------------------------------


def test_findings_are_bounded() -> None:
    assert len(check(nodepool({f"x{i}": 1 for i in range(10 * MAX_VIOLATIONS)}))) == MAX_VIOLATIONS


def test_patterns_do_not_blow_up() -> None:
    pattern = r"^(@(daily))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
    assert matches(pattern, "0 22 * * 1-5")
    assert matches(pattern, "0\t22 * *\n1-5")
    assert not matches(pattern, " " * 5000 + "\n")
    assert not matches(pattern, "a" * 100_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a" * 100, f"'{'a' * 39}…'"), (10**5000, "a huge number"), (None, "null"), (True, "true"), ([], "a list")],
    ids=["text", "number", "null", "bool", "list"],
)
def test_values_are_described_shortly(value: object, text: str) -> None:
    assert describe(value) == text


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(anything, st.sampled_from(KINDS))
def test_any_value_has_an_answer(value: object, kind: str) -> None:
    schema = crd_schema(kind)
    assert schema is not None
    full = nodepool({"disruption": value, "limits": value, "weight": value}, template={"requirements": value})
    for thing in (value, full | {"kind": kind, "status": value}):
        for violation in violations(defaulted(thing, schema), schema):
            assert violation.message
