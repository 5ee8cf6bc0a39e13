"""Findings about objects, for their owners."""

from enum import StrEnum

import msgspec

from dovetail.model.refs import Ref, Sentence


class Severity(StrEnum):
    ERROR = "error"  # it will not do what is written, or the API refuses it
    WARNING = "warning"  # it works, but hardly as meant
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
