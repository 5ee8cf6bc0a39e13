"""Tells a finding once: at the workload, with the number of what it has made, or at the first of those alike."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.model.finding import Finding
from dovetail.model.refs import Ref, Sentence

INVALID: Final = "InvalidField"
# Who makes whom. The name of what is made begins with that of its maker.
_RANKS: Final = {
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "CronJob"), 0),
    **dict.fromkeys(("ReplicaSet", "Job"), 1),
    "Pod": 2,
    # They have what their NodePool gives them, whatever their names.
    "Node": 3,
    names.NODECLAIM_KIND: 3,
}
_NAMELESS: Final = frozenset({"Node", names.NODECLAIM_KIND})
_ALIKE: Final = frozenset({"Pod"}) | _NAMELESS


# Which other rule explains the same field of the same object better.
_BETTER: Final = {
    INVALID: names.EventReason.INVALID_BUDGET.value,
    names.ConditionReason.NODEPOOL_VALIDATION_FAILED.value: INVALID,
}


def without_repetition(findings: Iterable[Finding]) -> list[Finding]:
    """Without findings that another one explains better: the budget's own, or the API server's refusal."""
    listed = list(findings)
    fields: defaultdict[tuple[str, Ref], list[str]] = defaultdict(list)
    for finding in listed:
        fields[finding.rule, finding.object].append(finding.field)
    return [
        finding
        for finding in listed
        if finding.rule not in _BETTER
        or not any(_within(finding.field, above) for above in fields[_BETTER[finding.rule], finding.object])
    ]


def _within(field: str, above: str) -> bool:
    return field == above or field.startswith((f"{above}[", f"{above}."))


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in their order, without those of objects whose workload, or one like them, has the same."""
    listed = list(findings)
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, finding in enumerate(listed):
        if finding.object.kind in _RANKS:
            alike[_cause(finding)].append(place)
    others: defaultdict[int, Counter[str]] = defaultdict(Counter)
    left_out: set[int] = set()
    for places in alike.values():
        heads: dict[tuple[str, str], int] = {}
        for place in sorted(places, key=lambda place: _RANKS[listed[place].object.kind]):
            object_ = listed[place].object
            head = next((heads[stem] for stem in _stems(object_) if stem in heads), None)
            if head is None:
                heads[_stem(object_)] = place
            else:
                others[head][object_.kind] += 1
                left_out.add(place)
    return [_with_count(finding, others[place]) for place, finding in enumerate(listed) if place not in left_out]


def _cause(finding: Finding) -> tuple[str, ...]:
    return (
        finding.severity,
        finding.rule,
        str(finding.message),
        finding.remedy,
        finding.file,
        finding.object.namespace,
    )


def _stem(object_: Ref) -> tuple[str, str]:
    """What the names of others that belong to it begin with: of a pod, the name of its maker."""
    if object_.kind in _NAMELESS:
        return object_.kind, ""
    maker = object_.name.rpartition("-")[0] if object_.kind == "Pod" else object_.name
    return object_.kind, maker or object_.name


def _stems(object_: Ref) -> Iterable[tuple[str, str]]:
    """The stems that it would belong to: of every maker of such objects, and of those like it."""
    if object_.kind in _NAMELESS:
        yield _stem(object_)
        return
    parts = object_.name.split("-")
    starts = ["-".join(parts[:number]) for number in range(1, len(parts))]
    makers = [kind for kind, rank in _RANKS.items() if rank < _RANKS[object_.kind]]
    yield from ((kind, name) for name in starts for kind in makers)
    if object_.kind == "Pod":
        yield _stem(object_)


def _with_count(finding: Finding, others: Counter[str]) -> Finding:
    if not others:
        return finding
    number = " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in sorted(others.items()))
    also = f"; the same is true of {number} {'like it' if finding.object.kind in _ALIKE else 'that it has made'}"
    message = finding.message
    counted = Sentence(message, also) if isinstance(message, Sentence) else f"{message}{also}"
    return msgspec.structs.replace(finding, message=counted)
