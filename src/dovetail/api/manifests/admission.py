"""A ValidatingAdmissionPolicy that warns about bad annotations on pods (seeds 000, 001).

It also checks the templates of workloads, because their authors do not see warnings about pods. It refuses nothing: a
bad annotation has a defined meaning (R2, R11). It checks only the form, so it misses some mistakes that `dovetail lint`
finds, such as the range 22-6, but it does not warn about correct values.
"""

import json
from typing import Any, Final

from dovetail.api import names
from dovetail.api.manifests.parts import Manifest, manifest
from dovetail.values import limits

POLICY: Final = "pod-annotations.dovetail.dev"
_SHOWN: Final = 40  # characters of a value

# Regular expressions that Go and Python read alike.
DURATION: Final = r"^[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$"
_VALUE: Final = r"([0-9]+|[A-Za-z]{3})"
_ITEM: Final = rf"([*?]|{_VALUE}(-{_VALUE})?)(/[0-9]+)?"
_FIELD: Final = rf"{_ITEM}(,{_ITEM})*"
_DESCRIPTOR: Final = "@(hourly|daily|midnight|weekly|monthly|yearly|annually)"
CRON: Final = rf"^((CRON_TZ|TZ)=[^\s]+\s+)?({_DESCRIPTOR}|{_FIELD}(\s+{_FIELD}){{4}})$"


def admission() -> list[Manifest]:
    group = "admissionregistration.k8s.io"
    resources = {
        "": ["pods"],
        "apps": ["deployments", "statefulsets", "daemonsets", "replicasets"],
        "batch": ["jobs", "cronjobs"],
    }
    rules = [
        {"apiGroups": [name], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": plurals}
        for name, plurals in resources.items()
    ]
    spec = {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": rules},
        "variables": _variables(),
        "validations": [
            _do_not_disrupt(),
            *_schedules("schedule", names.DISRUPTION_SCHEDULE, names.DISRUPTION_SCHEDULE_DURATION),
            *_schedules("blockSchedule", names.DISRUPTION_BLOCK_SCHEDULE, names.DISRUPTION_BLOCK_DURATION),
        ],
    }
    binding = {"policyName": POLICY, "validationActions": ["Warn", "Audit"]}
    return [
        manifest(f"{group}/v1", "ValidatingAdmissionPolicy", POLICY, spec=spec),
        manifest(f"{group}/v1", "ValidatingAdmissionPolicyBinding", POLICY, spec=binding),
    ]


def _variables() -> list[Any]:
    texts = {
        "schedule": names.DISRUPTION_SCHEDULE,
        "scheduleDuration": names.DISRUPTION_SCHEDULE_DURATION,
        "blockSchedule": names.DISRUPTION_BLOCK_SCHEDULE,
        "blockScheduleDuration": names.DISRUPTION_BLOCK_DURATION,
    }
    template = (
        "has(object.spec.jobTemplate) ? object.spec.jobTemplate.spec.template : "
        "has(object.spec.template) ? object.spec.template : object"
    )
    metadata = "variables.pod.metadata"
    expressions = {
        "subject": "request.kind.kind + '/' + object.metadata.name",
        "pod": template,
        "annotations": f"has({metadata}) && has({metadata}.annotations) ? {metadata}.annotations : {{}}",
        **{
            name: f"'{key}' in variables.annotations ? variables.annotations['{key}'] : ''"
            for name, key in texts.items()
        },
        "goDuration": f"r'{DURATION}'",
        "cron": f"r'{CRON}'",
    }
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def _do_not_disrupt() -> Manifest:
    key = names.DO_NOT_DISRUPT
    value = f"variables.annotations['{key}']"
    form = f"{_is_duration(value)} && duration({value}) > duration('0s')"
    return {
        "expression": f"!('{key}' in variables.annotations) || {value} in ['true', 'false'] || ({form})",
        **_message(
            key,
            value,
            'is neither "true", "false" nor a positive duration such as "4h": the pod will be protected for good',
        ),
    }


def _message(key: str, value: str, says: str) -> Manifest:
    """What people are told: which object, and which value. kubectl shows equal warnings once, and the server cuts them.

    `value`: the expression of the value. The message without them is for values that are no line.
    """
    shown = f"({value}.size() <= {_SHOWN} ? {value} : {value}.substring(0, {_SHOWN}) + '…')"
    parts = ["variables.subject", _text(f": {key} '"), shown, _text(f"' {says}")]
    return {"message": f"{key} {says}", "messageExpression": " + ".join(parts)}


def _text(text: str) -> str:
    """As CEL writes strings."""
    return json.dumps(text, ensure_ascii=False)


def _is_duration(text: str) -> str:
    return f"{text}.size() <= {limits.DURATION} && {text}.matches(variables.goDuration)"


def _schedules(name: str, schedule_key: str, duration_key: str) -> list[Manifest]:
    schedule, duration = f"variables.{name}", f"variables.{name}Duration"
    crons, spans = f"{schedule}.split(';')", f"{duration}.split(';')"
    all_crons = f"{crons}.all(e, e.trim().matches(variables.cron))"
    span = "duration(e.trim())"
    within = f"{span} >= duration('1m') && {span} <= duration('168h')"
    return [
        {
            "expression": f"{schedule} == '' || "
            f"({schedule}.size() <= {limits.SCHEDULE} && {crons}.size() <= 64 && {all_crons})",
            **_message(
                schedule_key,
                schedule,
                "is not five cron fields or a descriptor such as @daily; several are separated by ;, and what cannot "
                "be read has no effect",
            ),
        },
        {
            "expression": f"{duration} == '' || "
            f"({duration}.size() <= {limits.SCHEDULE} && {spans}.all(e, {_is_duration('e.trim()')} && {within}))",
            **_message(
                duration_key,
                duration,
                "is not a duration from 1m to 168h; any other value counts as 1h"
                + (", a longer one as 168h" if schedule_key == names.DISRUPTION_BLOCK_SCHEDULE else ""),
            ),
        },
        {
            "expression": f"{schedule} == '' || {duration} == '' || {spans}.size() in [1, {crons}.size()]",
            **_message(
                duration_key, duration, "is neither one duration nor one for each schedule: each will count as 1h"
            ),
        },
        {
            "expression": f"{duration} == '' || {schedule} != ''",
            **_message(duration_key, duration, f"has no effect without {schedule_key}"),
        },
    ]
