"""Which error does an answer mean?"""

import msgspec
import pytest

from dovetail.kube.failures import failure_of, failure_of_event
from dovetail.ports import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    NotFound,
    OutcomeUnknown,
    TooManyRequests,
    Unavailable,
)


def status(code: int, reason: str = "", message: str = "words", **details: object) -> bytes:
    return msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "message": message, "reason": reason, "code": code, "details": details}
    )


@pytest.mark.parametrize(
    ("code", "reason", "read", "write"),
    [
        (400, "BadRequest", Invalid, Invalid),
        (401, "Unauthorized", Forbidden, Forbidden),
        (403, "Forbidden", Forbidden, Forbidden),
        (404, "NotFound", NotFound, NotFound),
        (405, "MethodNotAllowed", Invalid, Invalid),
        (409, "Conflict", Conflict, Conflict),
        (409, "AlreadyExists", AlreadyExists, AlreadyExists),
        (410, "Expired", Gone, Gone),
        (410, "Gone", Gone, Gone),
        (413, "RequestEntityTooLarge", Invalid, Invalid),
        (415, "UnsupportedMediaType", Invalid, Invalid),
        (418, "", ApiError, ApiError),
        (307, "", ApiError, ApiError),
        (422, "Invalid", Invalid, Invalid),
        (429, "TooManyRequests", TooManyRequests, TooManyRequests),
        (500, "InternalError", InternalError, InternalError),
        (502, "", Unavailable, OutcomeUnknown),
        (503, "ServiceUnavailable", Unavailable, Unavailable),
        (504, "Timeout", Unavailable, OutcomeUnknown),
    ],
)
def test_codes(code: int, reason: str, read: type[ApiError], write: type[ApiError]) -> None:
    for kind, is_write in ((read, False), (write, True)):
        error = failure_of(code, status(code, reason), write=is_write)
        assert type(error) is kind
        assert (error.code, error.reason or reason, error.message) == (code, reason or error.reason, "words")


def test_503_of_a_proxy_leaves_a_write_unknown() -> None:
    page = b"upstream connect error or disconnect/reset before headers"
    assert type(failure_of(503, page, write=True)) is OutcomeUnknown
    assert type(failure_of(503, page, write=False)) is Unavailable


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "502"),
        (b"<html>\n  Bad\tGateway\x00</html>", "502 <html> Bad Gateway\\x00</html>"),
        (b"\xff\xfe", "502 \ufffd\ufffd"),
        (b'{"kind": "Status", "message": null}', '502 {"kind": "Status", "message": null}'),
        (b'{"kind": "Pod", "message": "no status"}', '502 {"kind": "Pod", "message": "no status"}'),
        (b"[1]", "502 [1]"),
        (b"x" * 1000, "502 " + "x" * 200),
    ],
)
def test_a_body_that_is_no_status_becomes_one_line(body: bytes, message: str) -> None:
    assert failure_of(502, body, write=False).message == message


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("", 0, 0.0),
        ("3", 0, 3.0),
        ("", 4, 4.0),
        ("3", 4, 4.0),
        ("-5", 0, 0.0),
        ("", -5, 0.0),
        ("999999999", 0, 3600.0),
        ("9" * 400, 0, 0.0),
        ("²", 0, 0.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0, 0.0),
    ],
)
def test_retry_after(header: str, details: int, seconds: float) -> None:
    error = failure_of(429, status(429, retryAfterSeconds=details), write=True, retry_after=header)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == seconds


def test_a_refused_eviction_names_its_budget() -> None:
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
    }
    body = status(429, "TooManyRequests", "Cannot evict pod.", causes=[cause, {"message": "evict"}])
    error = failure_of(429, body, write=True)
    assert error.message == "Cannot evict pod. The disruption budget web needs 2 healthy pods and has 2 currently"


@pytest.mark.parametrize(("field", "kind"), [("metadata.uid", Conflict), ("metadata.name", Invalid)])
def test_another_uid_is_a_conflict(field: str, kind: type[ApiError]) -> None:
    cause = {"reason": "FieldValueInvalid", "field": field, "message": "field is immutable"}
    assert type(failure_of(422, status(422, "Invalid", causes=[cause]), write=True)) is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (status(410, "Expired", "too old resource version: 1 (9)"), Gone),
        (status(500, "InternalError"), InternalError),
        (status(504, "Timeout"), Unavailable),
        (b'{"kind": "Pod"}', InternalError),
        (b"null", InternalError),
    ],
)
def test_error_events(body: bytes, kind: type[ApiError]) -> None:
    assert type(failure_of_event(body)) is kind
