"""Selectors: Kubernetes' meaning of each operator, and the refusals."""

from collections.abc import Mapping, Sequence

import pytest

from dovetail.values.selector import Selector, SelectorError, make_selector

WEB: Mapping[str, str] = {"app": "web", "tier": "a", "empty": ""}


@pytest.mark.parametrize(
    ("labels", "matches"),
    [
        ({}, True),
        ({"app": "web"}, True),
        ({"app": "web", "tier": "a"}, True),
        ({"app": "web", "tier": "b"}, False),
        ({"app": "we"}, False),
        ({"App": "web"}, False),
        ({"absent": ""}, False),
        ({"empty": ""}, True),
    ],
)
def test_match_labels(labels: Mapping[str, str], matches: bool) -> None:
    assert make_selector(labels, []).matches(WEB) is matches


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("tier", "In", ["a", "b"], True),
        ("tier", "In", ["b"], False),
        ("absent", "In", ["a", ""], False),
        ("empty", "In", [""], True),
        ("tier", "NotIn", ["a", "b"], False),
        ("tier", "NotIn", ["b"], True),
        ("absent", "NotIn", ["a", ""], True),
        ("empty", "NotIn", [""], False),
        ("tier", "Exists", [], True),
        ("empty", "Exists", [], True),
        ("absent", "Exists", [], False),
        ("tier", "DoesNotExist", [], False),
        ("empty", "DoesNotExist", [], False),
        ("absent", "DoesNotExist", [], True),
    ],
)
def test_match_expressions(key: str, operator: str, values: Sequence[str], matches: bool) -> None:
    assert make_selector({}, [(key, operator, values)]).matches(WEB) is matches


def test_all_requirements_must_match() -> None:
    both = make_selector({"app": "web"}, [("tier", "In", ["a"]), ("absent", "DoesNotExist", [])])
    assert both.matches(WEB)
    assert not both.matches({**WEB, "app": "db"})
    assert not both.matches({**WEB, "tier": "b"})
    assert not both.matches({**WEB, "absent": "x"})


def test_the_empty_selector_matches_everything() -> None:
    for selector in (make_selector(None, None), make_selector({}, []), Selector()):
        assert selector.matches({})
        assert selector.matches(WEB)
        assert str(selector) == ""


@pytest.mark.parametrize(
    ("operator", "values", "message"),
    [
        ("in", ["a"], "unknown operator 'in' for key 'tier': want In, NotIn, Exists, DoesNotExist"),
        ("", [], "unknown operator '' for key 'tier'"),
        ("Gt", ["1"], "unknown operator 'Gt' for key 'tier'"),
        ("In", [], "operator In for key 'tier' needs values"),
        ("NotIn", [], "operator NotIn for key 'tier' needs values"),
        ("Exists", ["a"], "operator Exists for key 'tier' takes no values"),
        ("DoesNotExist", [""], "operator DoesNotExist for key 'tier' takes no values"),
    ],
)
def test_refusals(operator: str, values: Sequence[str], message: str) -> None:
    with pytest.raises(SelectorError, match=f"^{message}"):
        make_selector({}, [("tier", operator, values)])


def test_printed_as_kubectl_takes_it() -> None:
    expressions = [
        ("tier", "In", ["e", "b", "d", "a", "c"]),
        ("x", "DoesNotExist", []),
        ("y", "Exists", []),
        ("z", "NotIn", ["c"]),
    ]
    selector = make_selector({"b": "2", "app": "web"}, expressions)
    assert str(selector) == "app=web,b=2,tier in (a,b,c,d,e),!x,y,z notin (c)"


def test_equal_selectors_are_equal_and_hashable() -> None:
    one = make_selector({"a": "1", "b": "2"}, [("c", "In", ["x", "y"])])
    two = make_selector({"b": "2", "a": "1"}, [("c", "In", ["y", "x", "x"])])
    assert one == two != make_selector({"a": "1"}, [("c", "In", ["x", "y"])])
    assert hash(one) == hash(two)
