"""Turns failed answers of the API server into errors of the port."""

from collections.abc import Sequence

import msgspec

from dovetail.kube.reading import UnreadableAnswer, read
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
from dovetail.values.foreign_text import plain, redacted

LONGEST_RETRY_AFTER_SECONDS = 3600.0
READ_OF_PAGE, SHOWN_OF_PAGE = 8192, 200  # if a proxy answers with a page


class _StatusCause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[_StatusCause] = []
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The Status object of a failed request."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _StatusDetails = _StatusDetails()

    @property
    def text(self) -> str:
        """The message and the causes: only these name the PodDisruptionBudget that refuses an eviction."""
        added = [cause.message for cause in self.details.causes if cause.message and cause.message not in self.message]
        return " ".join([self.message, *added]).strip()


_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    500: InternalError,
}


def failure_of(code: int, body: bytes, *, write: bool, retry_after: str = "", secrets: Sequence[str] = ()) -> ApiError:
    """The error for an answer; `retry_after` is the header's value. Removes `secrets` that the server repeats."""
    status = read_status(body)
    message = redacted(status.text, secrets) or f"{code} {_one_line(body, secrets)}".strip()
    if code == 429:
        wait = max(_seconds(retry_after), float(status.details.retry_after_seconds))
        reason = status.reason or "TooManyRequests"
        return TooManyRequests(message, reason=reason, retry_after=min(max(wait, 0.0), LONGEST_RETRY_AFTER_SECONDS))
    return _kind(code, status, write=write)(message, code=code, reason=status.reason)


def failure_of_event(body: bytes, secrets: Sequence[str] = ()) -> ApiError:
    """The error for the Status in a watch's ERROR event."""
    status = read_status(body)
    return failure_of(status.code or 500, body, write=False, secrets=secrets)


def read_status(body: bytes) -> Status:
    """The Status in the body; an empty one if the body is something else, such as a proxy's page."""
    try:
        status = read(body, Status)
    except UnreadableAnswer:
        return Status()
    return status if status.kind == "Status" else Status()


def _kind(code: int, status: Status, *, write: bool) -> type[ApiError]:
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists
    if code == 422 and any(cause.field == "metadata.uid" for cause in status.details.causes):
        return Conflict  # a UID in a patch is a precondition; the server says "field is immutable"
    if code in (502, 503, 504):
        # A proxy answers 502 or 503 also when the connection broke after it had sent the request on. Only the API
        # server's own 503 means that nothing was done; its 504 means that it stopped waiting.
        refused = code == 503 and status.kind == "Status"
        return OutcomeUnknown if write and not refused else Unavailable
    return _BY_CODE.get(code, ApiError)


def _seconds(header: str) -> float:
    # The other form, a date, is not used by API servers.
    return float(header) if header.isascii() and header.isdigit() and len(header) < 10 else 0.0


def _one_line(body: bytes, secrets: Sequence[str]) -> str:
    # Cut after secrets are removed: half a secret is not recognized.
    return plain(" ".join(body[:READ_OF_PAGE].decode(errors="replace").split()), secrets)[:SHOWN_OF_PAGE]
