"""Findings about pod annotations in the values of a Helm chart, as HelmReleases and Applications hold them."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from dovetail.api import names
from dovetail.api.documents import Document, plain_value
from dovetail.api.schema import describe
from dovetail.api.yaml_events import join, shorten
from dovetail.model.finding import Finding
from dovetail.model.rule_settings import RuleSettings
from dovetail.rules.protection import annotation_faults, read_do_not_disrupt
from dovetail.views.findings.subject import Subject

# Where the values are, by group and kind.
VALUES = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): ("spec", "values"),
    ("argoproj.io", "Application"): ("spec", "source", "helm", "valuesObject"),
}
_MAX_FINDINGS = 20


def values_findings(
    subject: Subject, document: Document, path: tuple[str, ...], settings: RuleSettings
) -> list[Finding]:
    """Annotations of Dovetail that pods cannot have. Raises InputError."""
    value = plain_value(document)
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return list(islice(_found(subject, value, ".".join(path), settings), _MAX_FINDINGS))


def _found(subject: Subject, value: Any, path: str, settings: RuleSettings) -> Iterator[Finding]:
    pending = [(value, path)]
    while pending:
        part, field = pending.pop()
        if isinstance(part, list):
            pending += [(item, join(field, index)) for index, item in enumerate(part)]
        elif isinstance(part, dict):
            pending += [(item, shorten(join(field, key), 300)) for key, item in part.items()]
            if not part.keys().isdisjoint(names.PROTECTION_ANNOTATIONS):
                yield from _annotations(subject, part, field, settings)


def _annotations(subject: Subject, annotations: dict[str, Any], path: str, settings: RuleSettings) -> Iterator[Finding]:
    texts = {}
    for key in names.PROTECTION_ANNOTATIONS:
        value = annotations.get(key)
        if isinstance(value, str):
            texts[key] = value
        elif isinstance(value, bool | int | float):
            fault = read_do_not_disrupt(describe(value)).fault
            yield subject.error(
                "NotAString",
                f"{path}[{key}]",
                f"the value is {describe(value)} and not a string: the API server refuses the pods of the chart",
                f'quote it: "{describe(value)}"' if fault is None else "put the value in quotes, as it is written",
            )
    for fault in annotation_faults(texts, settings):
        field = f"{path}[{fault.annotation}]"
        yield subject.finding(fault.severity, fault.rule, field, fault.message, fault.remedy)
