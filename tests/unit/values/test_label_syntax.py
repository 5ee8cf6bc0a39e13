"""Which texts are keys and values of labels."""

import pytest

from dovetail.values.label_syntax import is_label_name, is_label_value, is_qualified, is_subdomain


@pytest.mark.parametrize("text", ["a", "a.b", "a-b.c-d", "0", "a" * 253, "1.2.3"])
def test_subdomains(text: str) -> None:
    assert is_subdomain(text)


@pytest.mark.parametrize("text", ["", "A", "a_b", ".a", "a.", "a..b", "-a", "a-", "a.-b", "a" * 254, "a\n", "a/b", "é"])
def test_other_texts_are_no_subdomains(text: str) -> None:
    assert not is_subdomain(text)


@pytest.mark.parametrize("text", ["a", "A", "a_b", "a.b", "a..b", "a-b", "0", "x" * 63])
def test_names(text: str) -> None:
    assert is_label_name(text)
    assert is_label_value(text)
    assert is_qualified(text)
    assert is_qualified(f"example.com/{text}")


@pytest.mark.parametrize("text", ["-a", "a-", "_a", "a.", "a b", "x" * 64, "a\n", "é", "a/b/c"])
def test_other_texts_are_no_names(text: str) -> None:
    assert not is_label_name(text)
    assert not is_label_value(text)
    assert not is_qualified(text)


def test_only_a_value_may_be_empty() -> None:
    assert is_label_value("")
    assert not is_label_name("")
    assert not is_qualified("")


@pytest.mark.parametrize("key", ["/a", "example.com/", "Example.com/a", f"{'x' * 254}/a", "a/b/c", "a_b/c", " /a"])
def test_bad_keys(key: str) -> None:
    assert not is_qualified(key)


def test_the_longest_key() -> None:
    assert is_qualified(f"{'x' * 253}/{'y' * 63}")


def test_a_long_text_is_judged_at_once() -> None:
    assert not is_qualified("a-" * 100_000)
    assert not is_label_value("." * 1_000_000)
