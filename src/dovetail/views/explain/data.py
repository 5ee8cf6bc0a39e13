"""The base of everything that views print, and the answer for a node."""

from datetime import datetime

import msgspec

from dovetail.model.refs import Sentence


class View(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of everything that is printed. Keys are stable; new ones may be added."""


class AnswerView(View, frozen=True):
    """Why a node stays or goes, since when, until when, and what to do next.

    `standing`: steady, free, waiting or stuck. `reason`: the reason that it has. `until`: when time alone changes it.
    `rule`: the rule that blocks it longest.
    """

    standing: str
    reason: str | None
    cause: Sentence
    since: datetime | None
    until: datetime | None
    next_step: Sentence = Sentence()
    rule: str = ""
