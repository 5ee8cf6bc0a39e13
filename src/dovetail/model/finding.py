"""Findings about objects, for their owners."""

from enum import StrEnum

import msgspec

from dovetail.model.refs import Ref, Sentence


class Severity(StrEnum):
    ERROR = "error"  # it has no effect as written, or the API refuses it
    WARNING = "warning"  # it works, but probably not as intended
    INFO = "info"  # worth knowing


class Finding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A finding: the field, what is wrong, and what to write instead."""

    severity: Severity
    rule: str
    object: Ref
    field: str
    message: str | Sentence
    remedy: str = ""
    file: str = ""
    line: int | msgspec.UnsetType = msgspec.UNSET
    """In the file, from 1; only `lint` knows it."""
