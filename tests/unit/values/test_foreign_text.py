"""What is shown of text that others wrote?"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.values.foreign_text import REDACTED, is_printable, json_escaped, plain

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"
RANDOM = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x7f\x9b", r"\x7f\x9b"),
        ("abc\u202etxt", r"abc\u202etxt"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("filler\u3164 joiner\u034f selector\ufe0f", r"filler\u3164 joiner\u034f selector\ufe0f"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("größer → 数", "größer → 数"),
    ],
)
def test_what_cannot_be_seen_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc123", "Authorization: Bearer REDACTED"),
        ("bearer abcDef.ghi is unknown", "bearer REDACTED is unknown"),
        ("Basic dTpodW50ZXIy", "Basic REDACTED"),
        (f"token {TOKEN} has expired", "token REDACTED has expired"),
        ("proxy 'http://me:pass@host:1' fails", "proxy 'http://REDACTED@host:1' fails"),
        ("https://ghp_1@host/x", "https://REDACTED@host/x"),
        ("http://me:pa/ss@host", "http://REDACTED@host"),
        ("https://h/?a=1&access_token=xyz&b=2", "https://h/?a=1&access_token=REDACTED&b=2"),
        ('{"token":"abc", "user":"me"}', '{"token":REDACTED, "user":"me"}'),
        ("password: hunter2", "password: REDACTED"),
        (f"key {RANDOM} is bad", "key REDACTED is bad"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- x", "REDACTED x"),
    ],
)
def test_credentials_are_left_out(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Unauthorized: the bearer token is invalid",
        "Basic authentication is off; use Bearer tokens, please",
        "token file /var/run/secrets/kubernetes.io/serviceaccount/token is empty",
        'secrets "shop-tls" is forbidden: User "system:serviceaccount:shop:default" cannot list resource "secrets"',
        "token: expired",
        "requiredDuringSchedulingIgnoredDuringExecution of preferredDuringSchedulingIgnoredDuringExecution2",
        "/subscriptions/8f3c2e1a-1f2e-4c3d-9a8b-0123456789ab/resourceGroups/Group1/providers/Microsoft.Compute/x",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "cart-7d9f8b6c5-abcde-with-a-name-that-is-as-long-as-names-of-pods-may-be-in-kubernetes-0123456789",
        "https://host:8443/apis/karpenter.sh/v1/nodepools?limit=500",
        "the pod does not tolerate vault-token=true:NoSchedule",
        "2026-03-07T02:00:00Z: 10% of 5 nodes",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


def test_what_was_sent_is_left_out_wherever_it_stands() -> None:
    assert plain("no user for s3cret-x, s3cret-x", ["s3cret-x"]) == f"no user for {REDACTED}, {REDACTED}"
    assert plain("a cat", ["a"]) == "a cat"  # too short to be told from other text


@given(st.text())
def test_the_result_is_one_printable_line_and_stays_the_same(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert is_printable(shown)
    assert plain(shown) == shown


@given(st.text(st.characters(codec="utf-8")))
def test_escaped_json_means_the_same(text: str) -> None:
    escaped = json_escaped(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(escaped) == {text: [text]}
    assert is_printable(escaped)
