"""Does lint find each mistake, name its place and a remedy, and leave what only looks like it alone?"""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.api.documents import Document, read_documents
from dovetail.model.decider import parse_decider
from dovetail.model.finding import Finding, Severity
from dovetail.model.pool_records import GRACEFUL_FIELD
from dovetail.model.rule_settings import settings_of
from dovetail.values.duration import HOUR, MINUTE, parse_duration
from dovetail.values.schedule.cron import parse_cron
from dovetail.values.schedule.instants import all_of, any_of
from dovetail.values.schedule.window import Window
from dovetail.views.findings.budgets import inverse_window
from dovetail.views.lint import lint
from tests.unit.api.crd_cases import CASES, Case, nodeclaim, nodeclass, nodepool

AT = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday
E, W, I = Severity.ERROR, Severity.WARNING, Severity.INFO  # noqa: E741
DND, DNR = "karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-repair"
SCHEDULE, DURATION = "karpenter.sh/disruption-schedule", "karpenter.sh/disruption-schedule-duration"
BLOCK, BLOCK_DURATION = "karpenter.sh/disruption-block-schedule", "karpenter.sh/disruption-block-duration"
ABSENT = [(None, "add metadata.name"), ("", "add metadata.name")]
Object = dict[str, Any]


def run(*objects: Object, file: str = "f.json") -> list[Finding]:
    return lint(documents(*objects, file=file), AT)


def documents(*objects: Object, file: str = "f.json") -> list[Document]:
    return list(read_documents("\n".join(json.dumps(thing) for thing in objects).encode(), file))


def lint_text(text: str) -> list[Finding]:
    return lint(read_documents(text.encode(), "f.yaml"), AT)


# -- objects that are fine, to be spoilt -------------------------------------------------------------------------------


def pod(annotations: dict[str, Any] | None = None, **spec: Any) -> Object:
    meta = {"name": "p", "namespace": "shop", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def workload(kind: str, annotations: dict[str, Any] | None = None, **more: Any) -> Object:
    template = {"metadata": {"labels": {"app": "cart"}, "annotations": annotations or {}}, "spec": more.pop("pod", {})}
    spec = {"template": template, "replicas": more.pop("replicas", 3)}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": {"template": template}, "metadata": more.pop("job", {})}}
    meta = {"name": "cart", "namespace": "shop"} | more
    version = {"ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def pdb(name: str = "b", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    selector = {"selector": {"matchLabels": labels or {"app": "cart"}}}
    meta = {"name": name, "namespace": "shop"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": selector | spec}


def node(value: str, key: str = DND) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {key: value}}}


def budgets(*items: Object, **disruption: Any) -> Object:
    return nodepool({"disruption": {"budgets": list(items)} | disruption})


def window(nodes: str, schedule: str, duration: str, *reasons: str) -> Object:
    named = {"reasons": list(reasons)} if reasons else {}
    return {"nodes": nodes, "schedule": schedule, "duration": duration} | named


class Check(NamedTuple):
    """A finding that `wrong` must give, with pieces of its message and remedy, and that `right` must not."""

    rule: str
    severity: Severity
    object: str
    field: str
    message: str
    remedy: str
    wrong: Object | list[Object]
    right: Object | list[Object]


P, PA = "Pod/shop/p", "metadata.annotations"
D, TA = "Deployment/shop/cart", "spec.template.metadata.annotations"
NP, B = "NodePool/example", "spec.disruption.budgets"
PDB = "PodDisruptionBudget/shop/b"
T = "spec.template.spec"


def dnd(value: str, remedy: str, right: str) -> Check:
    message = "protected indefinitely"
    return Check("InvalidDoNotDisrupt", E, P, f"{PA}[{DND}]", message, remedy, pod({DND: value}), pod({DND: right}))


CHECKS = [
    # do-not-disrupt (R2–R4)
    dnd("4hours", 'write "4h"', "4h"),
    dnd("1d", 'write "24h"', "24h"),
    dnd("4", 'add the unit: "4h", "4m" or "4s"', "4s"),
    dnd("1", 'write "true", "false" or', "true"),
    dnd("True", 'write "true"', "true"),
    dnd("yes", 'write "true"', "true"),
    dnd("0", "remove the annotation", "1ns"),
    dnd("-4h", '"4h"', "+4h"),
    dnd("", "remove the annotation", "false"),
    dnd("soon", '"4h"', "4h"),
    Check("NotProtected", I, P, f"{PA}[{DND}]", "the same as", "leave it out", pod({DND: "false"}), pod({DND: "true"})),
    Check(
        *("IndefiniteProtection", I, D, f"{TA}[{DND}]", "for as long as it lives", '"4h"'),
        workload("Deployment", {DND: "true"}),
        workload("Deployment", {DND: "4h"}),
    ),
    Check(
        *("DaemonSetBlocksNodes", W, "DaemonSet/shop/cart", f"{TA}[{DND}]", "every node", "remove"),
        workload("DaemonSet", {DND: "true"}),
        workload("DaemonSet", {DND: "false"}),
    ),
    Check(
        *("NotAString", E, P, f"{PA}[{DND}]", "true and not a string", 'quote it: "true"'),
        pod({DND: True}),
        pod({DND: "true"}),
    ),
    Check("NotAString", E, P, f"{PA}[{DND}]", "is 4 and not", 'add the unit: "4h"', pod({DND: 4}), pod({DND: "4"})),
    Check(
        "NotAString",
        E,
        P,
        f"{PA}[other]",
        "is 1 and not",
        "put the value in quotes",
        pod({"other": 1}),
        pod({"other": "1"}),
    ),
    Check("NotAString", E, P, f"{PA}[{DND}]", "no value", "give it a value", pod({DND: None}), pod({DND: "4h"})),
    Check("NotProtected", I, "Node/n1", f"{PA}[{DND}]", "blocks nothing", "remove", node("false"), node("true")),
    Check("NotRepaired", I, "Node/n1", f"{PA}[{DNR}]", "not replaced", "remove", node("true", DNR), node("false", DNR)),
    # schedules (R7–R12)
    Check(
        *("WindowsRunTogether", W, P, f"{PA}[{DURATION}]", "still open when the next one begins", "shorten it"),
        pod({SCHEDULE: "0 0 * * 1-5", DURATION: "48h"}),
        pod({SCHEDULE: "0 0 * * 1-5", DURATION: "24h"}),
    ),
    Check(
        *("WindowsRunTogether", W, NP, f"{B}[0].duration", "run together", "shorten it"),
        budgets(window("1", "CRON_TZ=Europe/Berlin 0 9 * * 1-5", "30h")),
        budgets(window("1", "CRON_TZ=Europe/Berlin 0 9 * * 1-5", "24h")),
    ),
    Check(
        *("ScheduleAlwaysOpen", W, NP, f"{B}[0].duration", "always active", "shorten"),
        budgets(window("1", "CRON_TZ=Europe/Berlin 0 0 * * *", "30h")),
        budgets(window("1", "CRON_TZ=Europe/Berlin 0 0 * * *", "8h")),
    ),
    Check(
        *(
            "InvalidDisruptionSchedule",
            E,
            P,
            f"{PA}[{SCHEDULE}]",
            "can be disrupted at any time",
            'for 22:00 to 06:00 write "0 22 * * *", and karpenter.sh/disruption-schedule-duration: "8h"',
        ),
        pod({SCHEDULE: "0 22-6 * * *"}),
        pod({SCHEDULE: "0 6-22 * * *"}),
    ),
    Check(
        *(
            "InvalidDisruptionSchedule",
            E,
            P,
            f"{PA}[{SCHEDULE}]",
            "this expression is dropped",
            '"0 3 * * *;0 2 * * 6"',
        ),
        pod({SCHEDULE: "0 3 * * *;0 0 2 * * 6"}),
        pod({SCHEDULE: "0 3 * * *;0 2 * * 6"}),
    ),
    Check(
        *(
            "InvalidDisruptionSchedule",
            E,
            P,
            f"{PA}[{BLOCK}]",
            "unknown time zone",
            "CRON_TZ=Europe/Berlin 0 9 * * 1-5",
        ),
        pod({BLOCK: "CRON_TZ=Europe/Berln 0 9 * * 1-5"}),
        pod({BLOCK: "CRON_TZ=Europe/Berlin 0 9 * * 1-5"}),
    ),
    Check(
        *("InvalidDisruptionSchedule", E, P, f"{PA}[{DURATION}]", "counts as 1h", 'write "24h"'),
        pod({SCHEDULE: "0 2 * * 6", DURATION: "1d"}),
        pod({SCHEDULE: "0 2 * * 6", DURATION: "24h"}),
    ),
    Check(
        *("InvalidDisruptionSchedule", E, P, f"{PA}[{DURATION}]", "without a schedule", f"add {SCHEDULE}"),
        pod({DURATION: "4h"}),
        pod({SCHEDULE: "0 2 * * 6", DURATION: "4h"}),
    ),
    Check(
        *("ScheduleNeverFires", W, P, f"{PA}[{SCHEDULE}]", "protected for good", "a day that exists"),
        pod({SCHEDULE: "0 0 31 2 *"}),
        pod({SCHEDULE: "0 0 29 2 *"}),
    ),
    Check(
        *("ScheduleNeverFires", W, P, f"{PA}[{BLOCK}]", "never blocks", "a day that exists"),
        pod({BLOCK: "0 0 30 2 *"}),
        pod({BLOCK: "0 0 30 2 1"}),
    ),
    Check(
        *("ScheduleAlwaysOpen", W, P, f"{PA}[{SCHEDULE}]", "no effect", f"shorten {DURATION}"),
        pod({SCHEDULE: "0 * * * *", DURATION: "60m"}),
        pod({SCHEDULE: "0 * * * *", DURATION: "59m"}),
    ),
    Check(
        *("ScheduleAlwaysOpen", W, P, f"{PA}[{BLOCK}]", "for good", f"shorten {BLOCK_DURATION}"),
        pod({BLOCK: "0 0 * * *", BLOCK_DURATION: "24h"}),
        pod({BLOCK: "0 0 * * *", BLOCK_DURATION: "23h59m"}),
    ),
    Check(
        *(
            "ScheduleNeverFires",
            W,
            P,
            f"{PA}[{SCHEDULE}]",
            "the other expressions still apply",
            "remove the expression",
        ),
        pod({SCHEDULE: "0 0 31 2 *;0 2 * * 6"}),
        pod({SCHEDULE: "0 0 31 3 *;0 2 * * 6"}),
    ),
    Check(
        *("SchedulesNeverAllow", W, P, f"{PA}[{BLOCK}]", "never free", "remove one"),
        pod({SCHEDULE: "0 2 * * *", BLOCK: "0 1 * * *", BLOCK_DURATION: "2h"}),
        pod({SCHEDULE: "0 2 * * *", BLOCK: "0 1 * * *", BLOCK_DURATION: "119m"}),
    ),
    Check(
        *("WindowTooShort", W, P, f"{PA}[{DURATION}]", "never free for long enough", "longer"),
        pod({SCHEDULE: "0 2 * * *", DURATION: "1m59s"}),
        pod({SCHEDULE: "0 2 * * *", DURATION: "2m"}),
    ),
    Check(
        *("WindowTooShort", W, P, f"{PA}[{BLOCK_DURATION}]", "never replaced", "longer"),
        pod({BLOCK: "0 2 * * *", BLOCK_DURATION: "23h59m"}),
        pod({BLOCK: "0 2 * * *", BLOCK_DURATION: "23h"}),
    ),
    Check(
        *("DoNotDisruptWithSchedule", W, P, f"{PA}[{DND}]", "never disrupted", "one or the other"),
        pod({DND: "true", SCHEDULE: "0 2 * * 6"}),
        pod({DND: "false", SCHEDULE: "0 2 * * 6"}),
    ),
    Check(
        *("DoNotDisruptWithSchedule", I, P, f"{PA}[{DND}]", "first 4h; the schedule governs", "one or the other"),
        pod({DND: "4h", BLOCK: "0 2 * * 6"}),
        pod({DND: "4h", BLOCK: "not a schedule"}),
    ),
    # keys and places
    *(
        Check(
            *("UnknownAnnotation", W, P, f"{PA}[{key}]", "no effect", f"write {meant}"),
            pod({key: "true"}),
            pod({meant: "true"}),
        )
        for key, meant in (
            ("karpenter.sh/do-not-evict", DND),
            ("karpenter.sh/do-not-distrupt", DND),
            ("karpenter.sh/disruption-schedule-durations", DURATION),
            ("karpenter.sh/disruption-block-schedule-duration", BLOCK_DURATION),
            ("karpenter.k8s.aws/do-not-disrupt", DND),
            ("do-not-disrupt", DND),
        )
    ),
    Check(
        *("UnknownAnnotation", W, P, f"{PA}[{DND}-grace-period]", "no effect", f'the value: {DND}: "4h"'),
        pod({f"{DND}-grace-period": "240 minutes"}),
        pod({"example.com/do-not-distrupt": "true"}),
    ),
    Check(
        *("AnnotationAsLabel", W, P, f"metadata.labels[{DND}]", "as a label", "move it to the annotations"),
        pod() | {"metadata": {"name": "p", "namespace": "shop", "labels": {DND: "true"}}},
        pod() | {"metadata": {"name": "p", "namespace": "shop", "labels": {"a": "b"}, "annotations": {DND: "4h"}}},
    ),
    Check(
        *("AnnotationNotOnPods", W, D, f"{PA}[{DND}]", "on the Deployment itself", f"move it to {TA}"),
        workload("Deployment") | {"metadata": {"name": "cart", "namespace": "shop", "annotations": {DND: "4h"}}},
        workload("Deployment", {DND: "4h"}),
    ),
    Check(
        *(
            "AnnotationNotOnPods",
            W,
            "CronJob/shop/cart",
            f"spec.jobTemplate.{PA}[{DND}]",
            "no effect",
            "spec.jobTemplate",
        ),
        workload("CronJob", job={"annotations": {DND: "4h"}}),
        workload("CronJob", {DND: "4h"}, job={"annotations": {DND: "4h"}}),
    ),
    Check(
        *("AnnotationNotOnPods", W, NP, f"{PA}[{DND}]", "on the NodePool itself", "spec.template.metadata"),
        nodepool() | {"metadata": {"name": "example", "annotations": {DND: "true"}}},
        nodepool(metadata={"annotations": {DND: "true"}}),
    ),
    # Nodes (R6)
    Check("InvalidDoNotDisrupt", E, "Node/n1", f"{PA}[{DND}]", "blocks nothing", '"true"', node("yes"), node("true")),
    Check("InvalidDoNotDisrupt", E, "Node/n1", f"{PA}[{DND}]", "blocks nothing", '"24h"', node("1d"), node("24h")),
    *(
        Check("InvalidDoNotRepair", E, "Node/n1", f"{PA}[{DNR}]", "no effect", '"true"', node(value, DNR), node("24h"))
        for value in ("yes", "4h", "", "True")
    ),
    Check(
        *("InvalidDoNotDisrupt", E, NP, f"spec.template.{PA}[{DND}]", "blocks nothing", '"true"'),
        nodepool(metadata={"annotations": {DND: "TRUE"}}),
        nodepool(metadata={"annotations": {DND: "false"}}),
    ),
    # the CRDs
    Check(
        *("InvalidField", E, NP, f"{T}.expireAfter", "'30d' does not match", "write 720h"),
        nodepool(template={"expireAfter": "30d"}),
        nodepool(template={"expireAfter": "720h"}),
    ),
    Check(
        *("InvalidField", E, NP, f"{T}.expireAfter", "refuses", "write Never"),
        nodepool(template={"expireAfter": "never"}),
        nodepool(template={"expireAfter": "Never"}),
    ),
    Check(
        *("InvalidField", E, NP, f"{T}.terminationGracePeriod", "too long", "shorter"),
        nodepool(template={"terminationGracePeriod": "2600000h"}),
        nodepool(template={"terminationGracePeriod": "2500000h"}),
    ),
    Check(
        *("InvalidField", E, NP, f"{B}[0].nodes", "must be a string, not 10", "put it in quotes"),
        budgets({"nodes": 10}),
        budgets({"nodes": "10"}),
    ),
    Check(
        *("InvalidField", E, NP, "spec.disruption.consolidationPolicy", "is not one of", "WhenEmptyOrUnderutilized"),
        nodepool({"disruption": {"consolidationPolicy": "WhenUnderutilized"}}),
        nodepool({"disruption": {"consolidationPolicy": "WhenEmpty"}}),
    ),
    Check(
        *("InvalidField", E, NP, "spec.weight", "may have no weight", "remove weight"),
        nodepool({"replicas": 1, "weight": 5}),
        nodepool({"weight": 5}),
    ),
    Check(
        *("InvalidField", E, NP, "spec.limits", "no limits but limits.nodes", "keep only"),
        nodepool({"replicas": 1, "limits": {"nodes": 5, "cpu": 1}}),
        nodepool({"replicas": 1, "limits": {"nodes": 5}}),
    ),
    Check(
        *("InvalidField", E, NP, f"{T}.requirements[0].values", "at least one value", "add a value"),
        nodepool(template={"requirements": [{"key": "a", "operator": "In", "values": []}]}),
        nodepool(template={"requirements": [{"key": "a", "operator": "NotIn", "values": []}]}),
    ),
    Check(
        *("InvalidField", E, "NodeClaim/example", "spec.requirements[0].values", "exactly one value", '["4"]'),
        nodeclaim({"requirements": [{"key": "a", "operator": "Gt", "values": ["-1"]}]}),
        nodeclaim({"requirements": [{"key": "a", "operator": "Gt", "values": ["0"]}]}),
    ),
    Check(
        *("InvalidField", E, NP, f"{T}.requirements[0].minValues", "at least as many", "lower minValues to 1"),
        nodepool(template={"requirements": [{"key": "a", "operator": "In", "values": ["x"], "minValues": 2}]}),
        nodepool(template={"requirements": [{"key": "a", "operator": "In", "values": ["x"], "minValues": 1}]}),
    ),
    # what only the controller finds (01 §4.2)
    Check(
        *("NodePoolValidationFailed", E, NP, f"{T}.requirements[0].values", "'x y' is not a label value", "at most 63"),
        nodepool(template={"requirements": [{"key": "a", "operator": "In", "values": ["x y"]}]}),
        nodepool(template={"requirements": [{"key": "a", "operator": "In", "values": ["x_y"]}]}),
    ),
    Check(
        *("NodePoolValidationFailed", E, NP, f"{T}.requirements[1].values", "only 0 are capacity types", "on-demand"),
        nodepool(
            template={
                "requirements": [
                    {"key": "a", "operator": "Exists"},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["cheap"]},
                ]
            }
        ),
        nodepool(
            template={
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["cheap", "spot"]}]
            }
        ),
    ),
    Check(
        *("NodePoolValidationFailed", E, NP, f"{T}.startupTaints[0]", "more than once", "keep one"),
        nodepool(
            template={
                "taints": [{"key": "a", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "a", "effect": "NoSchedule"}],
            }
        ),
        nodepool(
            template={
                "taints": [{"key": "a", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "a", "effect": "NoExecute"}],
            }
        ),
    ),
    Check(
        *("NodePoolValidationFailed", E, NP, "spec.template.metadata.labels[a b]", "not a qualified name", "write"),
        nodepool(metadata={"labels": {"a b": "x"}}),
        nodepool(metadata={"labels": {"a_b": "x"}}),
    ),
    Check(
        *("InvalidField", E, NP, f"{T}.requirements[0].key", "set by the controller", "remove"),
        nodepool(template={"requirements": [{"key": "karpenter.sh/nodepool", "operator": "Exists"}]}),
        nodeclaim({"requirements": [{"key": "karpenter.sh/nodepool", "operator": "Exists"}]}),
    ),
    Check(
        *(
            "InvalidField",
            E,
            NP,
            "spec.template.metadata.labels[karpenter.sh/x]",
            "only karpenter.sh/capacity-type",
            "own",
        ),
        nodepool(metadata={"labels": {"karpenter.sh/x": "y"}}),
        nodepool(metadata={"labels": {"karpenter.sh/capacity-type": "spot", "karpenter.kwok.sh/x": "y"}}),
    ),
    Check(
        *("InvalidField", E, NP, f"{T}.nodeClassRef.name", "may not be empty", "name"),
        nodepool(template={"nodeClassRef": {"group": "g", "kind": "k", "name": ""}}),
        nodepool(template={"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}),
    ),
    Check(
        *("InvalidField", E, "KWOKNodeClass/example", "spec.nodeRegistrationDelay", "does not match", "write 10s"),
        nodeclass({"nodeRegistrationDelay": "10 seconds"}),
        nodeclass({"nodeRegistrationDelay": "10s"}),
    ),
    Check(
        *("UnknownField", W, NP, f"{B}[0].reason", "the API server drops it", "write reasons"),
        budgets({"nodes": "1", "reason": ["Drifted"]}),
        budgets({"nodes": "1", "reasons": ["Drifted"]}),
    ),
    Check(
        *("UnknownField", W, NP, "spec.disruption.consolidatAfter", "drops it", "write consolidateAfter"),
        nodepool({"disruption": {"consolidatAfter": "5m"}}),
        nodepool({"disruption": {"consolidateAfter": "5m"}}),
    ),
    Check(
        *("UnknownField", W, NP, "spec.disruption.expireAfter", "drops it", f"move it to {T}.expireAfter"),
        nodepool({"disruption": {"expireAfter": "5h"}}),
        nodepool(template={"expireAfter": "5h"}),
    ),
    Check(
        *("OldApiVersion", W, NP, "apiVersion", "old version", "karpenter.sh/v1"),
        nodepool() | {"apiVersion": "karpenter.sh/v1beta1"},
        nodepool(),
    ),
    Check(
        *("UnknownApiVersion", E, P, "apiVersion", "in version v by", "write apiVersion: v1"),
        pod() | {"apiVersion": "v"},
        pod(),
    ),
    # times
    Check(
        *("ExpiresAtOnce", E, NP, f"{T}.expireAfter", "the moment they are made", "Never"),
        nodepool(template={"expireAfter": "0s"}),
        nodepool(template={"expireAfter": "1s"}),
    ),
    Check(
        *("ExpiresAtOnce", E, "NodeClaim/example", "spec.expireAfter", "the moment they are made", "Never"),
        nodeclaim({"expireAfter": "0h"}),
        nodeclaim({"expireAfter": "1h"}),
    ),
    Check(
        *("ExpiresAtOnce", E, NP, "spec.disruption.gracefulExpireAfter", "without end", "Never"),
        nodepool({"disruption": {"gracefulExpireAfter": "0s"}}),
        nodepool({"disruption": {"gracefulExpireAfter": "336h"}}),
    ),
    Check(
        *("NoGracefulShutdown", W, NP, f"{T}.terminationGracePeriod", "graceful shutdown", "24h"),
        nodepool(template={"terminationGracePeriod": "0s"}),
        nodepool(template={"terminationGracePeriod": "1s"}),
    ),
    Check(
        *("GracefulExpiryTooLate", W, NP, "spec.disruption.gracefulExpireAfter", "never takes effect", "Never"),
        nodepool({"disruption": {"gracefulExpireAfter": "24h"}}, template={"expireAfter": "24h"}),
        nodepool({"disruption": {"gracefulExpireAfter": "23h"}}, template={"expireAfter": "24h"}),
    ),
    Check(
        *("ExpiresBeforeConsolidation", W, NP, "spec.disruption.consolidateAfter", "never consolidated", "shorter"),
        nodepool({"disruption": {"consolidateAfter": "24h"}}, template={"expireAfter": "24h"}),
        nodepool({"disruption": {"consolidateAfter": "23h"}}, template={"expireAfter": "24h"}),
    ),
    Check(
        *("DrainWithoutLimit", I, NP, f"{T}.terminationGracePeriod", "after 720h", "24h"),
        nodepool(),
        nodepool(template={"expireAfter": "Never"}),
    ),
    Check(
        *("DrainWithoutLimit", I, NP, f"{T}.terminationGracePeriod", "forever", "24h"),
        nodepool(template={"expireAfter": "24h"}),
        nodepool(template={"expireAfter": "24h", "terminationGracePeriod": "1h"}),
    ),
    Check(
        *("ConsolidationOff", I, NP, "spec.disruption.consolidateAfter", "no effect", "5m"),
        nodepool({"disruption": {"consolidateAfter": "Never"}}),
        nodepool({"disruption": {"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"}}),
    ),
    Check(
        *("GraceExceedsNode", W, D, f"{T}.terminationGracePeriodSeconds", "NodePool/example (10m)", "less than 10m"),
        [
            workload("Deployment", pod={"terminationGracePeriodSeconds": 600}),
            nodepool(template={"terminationGracePeriod": "10m"}),
        ],
        [
            workload("Deployment", pod={"terminationGracePeriodSeconds": 599}),
            nodepool(template={"terminationGracePeriod": "10m"}),
        ],
    ),
    Check(
        *("GraceExceedsNode", W, P, "spec.terminationGracePeriodSeconds", "asks for 30s", "less than 20s"),
        [pod(), nodepool(template={"terminationGracePeriod": "20s"})],
        [pod(), nodepool(template={"terminationGracePeriod": "31s"})],
    ),
    Check(
        *("GraceExceedsNode", W, P, "spec.terminationGracePeriodSeconds", "NodeClaim/example (20s)", "less than 20s"),
        [pod(nodeName="n"), nodeclaim({"terminationGracePeriod": "20s"}, nodeName="n")],
        [
            pod(nodeName="n"),
            nodeclaim({"terminationGracePeriod": "20m"}, nodeName="n"),
            nodepool(template={"terminationGracePeriod": "20s"}),
        ],
    ),
    # budgets (R25–R30)
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].reasons", "'drift' is not a reason", "[Drifted, Underutilized]"),
        budgets({"nodes": "1", "reasons": ["drift", "underutilized"]}),
        budgets({"nodes": "1", "reasons": ["drifted", "underutilized"]}),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].schedule", "go together", "add a duration"),
        budgets({"nodes": "1", "schedule": "@daily"}),
        budgets(window("1", "@daily", "1h")),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].schedule", "go together", "drop the schedule"),
        budgets({"nodes": "1", "schedule": "* * * * *"}),
        budgets({"nodes": "1"}),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].schedule", "go together", "add a duration"),
        budgets({"nodes": "1", "schedule": "0 25 * * *"}),
        budgets({"nodes": "1"}),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].duration", "is not a duration", "whole hours and minutes"),
        budgets(window("0", "@daily", "90s")),
        budgets(window("0", "@daily", "90m")),
    ),
    Check(
        *("InvalidField", E, NP, f"{B}[0].duration", "does not match", "write 24h"),
        budgets({"nodes": "1", "duration": "1d"}),
        budgets({"nodes": "1", "duration": "24h"}),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].schedule", "go together", "add a schedule"),
        budgets({"nodes": "1", "duration": "8h"}),
        budgets({"nodes": "1"}),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[1].schedule", "cross midnight", 'write "0 22 * * *", which'),
        budgets({"nodes": "1"}, window("0", "0 22-6 * * *", "8h")),
        budgets({"nodes": "1"}, window("0", "0 6-22 * * *", "1h")),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].schedule", "found 6", "leave out the seconds or the year: write five"),
        budgets(window("0", "0 9 * * 1-5 *", "8h")),
        budgets(window("0", "0 9 * * 1-5", "8h")),
    ),
    Check(
        *(
            "InvalidDisruptionSchedule",
            E,
            P,
            f"{PA}[{SCHEDULE}]",
            "found 6",
            "leave out the seconds or the year: write",
        ),
        pod({SCHEDULE: "0 9 * * 1-5 *"}),
        pod({SCHEDULE: "0 9 * * 1-5"}),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].duration", "is not a duration", "write 24h"),
        budgets(window("0", "@daily", "1d")),
        budgets(window("0", "@weekly", "24h")),
    ),
    Check(
        *("InvalidBudget", E, NP, f"{B}[0].nodes", "'101%'", '"100%"'),
        budgets({"nodes": "101%"}),
        budgets({"nodes": "100%"}),
    ),
    Check(
        *("BudgetWithoutEffect", W, NP, f"{B}[0].reasons", "Expired has no effect", "gracefulExpireAfter"),
        budgets({"nodes": "1", "reasons": ["Expired"]}),
        budgets({"nodes": "1", "reasons": ["Expired"]}, gracefulExpireAfter="336h"),
    ),
    Check(
        *("BudgetReadingDiffers", W, NP, B, "with 20 nodes the limit for Drifted is 15 here but 5", "upstream"),
        budgets({"nodes": "15", "reasons": ["Drifted"]}, {"nodes": "5"}),
        budgets({"nodes": "5", "reasons": ["Drifted"]}, {"nodes": "15"}),
    ),
    Check(
        *("BudgetReadingDiffers", W, NP, B, "with 20 nodes the limit for Drifted is 5 here but 2", "upstream"),
        budgets({"nodes": "5", "reasons": ["Drifted"]}, {"nodes": "10%"}),
        budgets({"nodes": "5", "reasons": ["Drifted"]}, {"nodes": "100%"}),  # 4 of 4 nodes is not less than 5
    ),
    Check(
        *("UnboundedBudgets", W, NP, B, "no limit", '"10%"'),
        budgets(),
        nodepool(),
    ),
    Check(
        *("BudgetBlocksForever", W, NP, f"{B}[0]", "for any reason", "schedule"),
        budgets({"nodes": "0"}),
        budgets({"nodes": "1"}),
    ),
    Check(
        *("BudgetBlocksForever", W, NP, f"{B}[1]", "disrupted for Drifted", "schedule"),
        budgets({"nodes": "10%"}, {"nodes": "0%", "reasons": ["Drifted"]}),
        budgets({"nodes": "10%"}, window("0%", "@daily", "8h", "Drifted")),
    ),
    Check(
        *("BudgetBlocksForever", W, NP, f"{B}[0]", "for any reason", "schedule"),
        budgets(window("0", "0 8 * * *", "16h"), window("0", "0 0 * * *", "8h")),
        budgets(window("0", "0 8 * * *", "16h"), window("0", "0 0 * * *", "7h59m")),
    ),
    Check(
        *("BudgetIsNoAllowWindow", W, NP, f"{B}[0]", "budgets[1] allows none at any time"),
        '{nodes: "0", schedule: "CRON_TZ=Europe/Berlin 0 6 * * *", duration: 16h}',
        budgets(window("100%", "CRON_TZ=Europe/Berlin 0 22 * * *", "8h"), {"nodes": "0"}),
        budgets(window("0", "CRON_TZ=Europe/Berlin 0 6 * * *", "16h")),
    ),
    Check(
        *("BudgetIsNoAllowWindow", W, NP, f"{B}[0]", "no limit at all"),
        '{nodes: "0", schedule: "30 1 * * 0", duration: 164h30m, reasons: [Drifted]}',
        budgets(window("5", "0 22 * * 6", "3h30m", "Drifted")),
        budgets(window("5", "0 22 * * 6", "3h30m", "Drifted"), {"nodes": "10%"}),
    ),
    Check(
        *("BudgetIsNoAllowWindow", W, NP, f"{B}[0]", "no limit at all", "cover the time outside"),
        budgets(window("5", "0 9 * * 1-5", "8h")),
        budgets(window("5", "0 9 * * 1-5", "8h"), window("0", "0 17 * * *", "16h")),
    ),
    Check(
        *("ScheduleNeverFires", W, NP, f"{B}[0].schedule", "limits nothing", "a day that exists"),
        budgets(window("0", "0 0 31 2 *", "8h")),
        budgets(window("0", "0 0 29 2 *", "8h")),
    ),
    Check(
        *("ScheduleNeverFires", W, NP, f"{B}[0].duration", "no length", "8h"),
        budgets(window("0", "@daily", "0h")),
        budgets(window("0", "@daily", "1m")),
    ),
    Check(
        *("ScheduleAlwaysOpen", W, NP, f"{B}[0].duration", "always active", "shorten"),
        budgets(window("1", "@daily", "24h")),
        budgets(window("1", "@daily", "23h59m")),
    ),
    Check(
        *("BudgetNeverBinding", I, NP, f"{B}[1]", "budgets[0] is active whenever", "remove it"),
        budgets({"nodes": "10%"}, window("20%", "@daily", "1h")),
        budgets({"nodes": "10%"}, window("20%", "@daily", "1h", "Drifted")),
    ),
    Check(
        *("BudgetNeverBinding", I, NP, f"{B}[1]", "limits nothing", "remove it"),
        budgets({"nodes": "5"}, {"nodes": "5"}),
        budgets({"nodes": "5"}, {"nodes": "20%"}),
    ),
    # PDBs
    Check(
        *("PdbNeverAllows", W, PDB, "spec.maxUnavailable", "maxUnavailable is 0", "maxUnavailable: 1"),
        pdb(maxUnavailable=0),
        pdb(maxUnavailable=1),
    ),
    Check(
        *("PdbNeverAllows", W, PDB, "spec.minAvailable", "none of 3 to spare", "maxUnavailable: 1"),
        [pdb(minAvailable=3), workload("StatefulSet")],
        [pdb(minAvailable=2), workload("StatefulSet")],
    ),
    Check(
        *("PdbNeverAllows", W, PDB, "spec.minAvailable", "none of 1 to spare", "at least 2 replicas"),
        [pdb(minAvailable="50%"), workload("Deployment", replicas=None)],
        [pdb(minAvailable=3), workload("DaemonSet")],  # nobody knows how many pods it has
    ),
    Check(
        *("PdbMatchesNothing", I, PDB, "spec.selector", "matches no workload", "copy the labels"),
        [pdb(labels={"app": "chart"}, maxUnavailable=1), workload("Deployment")],
        [pdb(labels={"app": "chart"}, maxUnavailable=1), workload("Deployment", namespace="other")],
    ),
    Check(
        *("PdbMatchesNothing", I, PDB, "spec.selector", "no selector", "copy the labels"),
        [pdb(selector=None, maxUnavailable=1), workload("Deployment")],
        [pdb(selector={}, maxUnavailable=1), workload("Deployment")],
    ),
    Check(
        *("OverlappingPdbs", W, PDB, "spec.selector", f"PodDisruptionBudget/shop/a selects the pods of {D}", "narrow"),
        [pdb("a", maxUnavailable=1), pdb(selector={}, maxUnavailable=1), workload("Deployment")],
        [pdb("a", maxUnavailable=1), pdb(labels={"app": "x"}, maxUnavailable=1), workload("Deployment")],
    ),
    Check(
        *("InvalidPdb", E, PDB, "spec.maxUnavailable", "exclude each other", "keep the one"),
        pdb(maxUnavailable=1, minAvailable=1),
        pdb(maxUnavailable=1),
    ),
    Check(
        *("InvalidPdb", E, PDB, "spec.minAvailable", "'half' is neither", '"25%"'),
        pdb(minAvailable="half"),
        pdb(minAvailable="50%"),
    ),
    Check(
        *("InvalidPdb", E, PDB, "spec.maxUnavailable", "more than 100%", '"25%"'),
        pdb(maxUnavailable="101%"),
        pdb(maxUnavailable="100%"),
    ),
    Check(
        *("InvalidPdb", E, PDB, "spec.minAvailable", "-1 is neither", '"25%"'),
        pdb(minAvailable=-1),
        pdb(minAvailable=0),
    ),
    Check(
        *("InvalidSelector", E, PDB, "spec.selector", "needs values", "Exists"),
        pdb(maxUnavailable=1, selector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        pdb(maxUnavailable=1, selector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
    ),
    # any object
    Check(
        *("DuplicateObject", W, P, "metadata.name", "f.json: document 1 has the same object", "rename"),
        [pod(), pod()],
        [pod(), pod() | {"metadata": {"name": "p", "namespace": "other"}}],
    ),
    Check(
        *("InvalidObject", E, P, "spec.terminationGracePeriodSeconds", "expected an integer", "correct"),
        pod(terminationGracePeriodSeconds="30"),
        pod(terminationGracePeriodSeconds=30),
    ),
    Check(
        *("InvalidObject", E, "Pod/shop/?", "metadata.name", "no name", "add metadata.name"),
        pod() | {"metadata": {"namespace": "shop"}},
        pod() | {"metadata": {"namespace": "shop", "generateName": "p-"}},
    ),
    Check(
        *("NotChecked", I, "", "kind", "2 ConfigMap, 1 Service", "nothing to do"),
        [
            {"apiVersion": "v1", "kind": kind, "metadata": {"name": kind}}
            for kind in ("ConfigMap", "Service", "ConfigMap")
        ],
        [pod(), workload("ReplicationController"), workload("Job")],
    ),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.rule}-{check.message}-{check.remedy}")
def test_mistake_is_found(check: Check) -> None:
    found = [p for p in run(*_list(check.wrong)) if (p.rule, str(p.object), p.field) == check[:1] + check[2:4]]
    assert len(found) == 1
    assert found[0].severity is check.severity
    assert check.message in str(found[0].message)
    assert check.remedy in found[0].remedy
    assert found[0].file == ("" if check.rule == "NotChecked" else "f.json")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.rule}-{check.message}-{check.remedy}")
def test_near_miss_is_left_alone(check: Check) -> None:
    found = [p for p in run(*_list(check.right)) if (p.rule, p.severity) == (check.rule, check.severity)]
    assert [p for p in found if p.field == check.field or check.rule != "InvalidField"] == []


def _list(objects: Object | list[Object]) -> list[Object]:
    return objects if isinstance(objects, list) else [objects]


@pytest.mark.parametrize("case", [case for case in CASES if case.old is None], ids=lambda case: case.name)
def test_what_the_api_server_refuses_is_an_error_and_nothing_else(case: Case) -> None:
    errors = [p for p in run(case.new) if p.severity is E and p.rule != "ExpiresAtOnce"]
    refused = case.error is not None and not case.error.startswith("status")  # the API server drops it from manifests
    assert bool(errors) == refused


@pytest.mark.parametrize(
    "thing",
    [
        pod({DND: "4h"}),
        workload("Deployment", {SCHEDULE: "0 2 * * 6", DURATION: "4h"}),
        workload("CronJob", {BLOCK: "CRON_TZ=Europe/Berlin 0 9 * * 1-5", BLOCK_DURATION: "8h"}),
        node("true"),
        pdb(maxUnavailable=1),
        nodeclass(),
        nodeclaim(),
        nodepool(template={"terminationGracePeriod": "24h"}),
        budgets({"nodes": "10%"}, window("0", "0 9 * * 1-5", "8h")) | {"apiVersion": "karpenter.sh/v1"},
    ],
    ids=lambda thing: thing["kind"],
)
def test_good_objects_have_no_findings(thing: Object) -> None:
    assert [p for p in run(thing) if p.rule != "DrainWithoutLimit"] == []


# -- which object, and in which order ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "name", "path"),
    [
        (workload("StatefulSet", {DND: "1d"}), "StatefulSet/shop/cart", TA),
        (workload("ReplicaSet", {DND: "1d"}), "ReplicaSet/shop/cart", TA),
        (workload("ReplicationController", {DND: "1d"}), "ReplicationController/shop/cart", TA),
        (workload("Job", {DND: "1d"}), "Job/shop/cart", TA),
        (workload("CronJob", {DND: "1d"}), "CronJob/shop/cart", f"spec.jobTemplate.{TA}"),
        (
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}}
            | {"template": {"metadata": {"annotations": {DND: "1d"}}}},
            "PodTemplate/default/t",
            "template.metadata.annotations",
        ),
        (pod() | {"metadata": {"generateName": "p-", "annotations": {DND: "1d"}}}, "Pod/default/p-*", PA),
    ],
)
def test_every_kind_with_pods_is_read(thing: Object, name: str, path: str) -> None:
    (found,) = (p for p in run(thing) if p.severity is E)
    assert (found.rule, str(found.object), found.field) == ("InvalidDoNotDisrupt", name, f"{path}[{DND}]")


def test_findings_come_by_file_object_and_severity() -> None:
    mixed = pod({DND: "false", SCHEDULE: "x", "karpenter.sh/do-not-evict": "true"})
    first, second = documents(mixed, nodeclass({"x": 1}), file="a"), documents(node("no"), file="b")
    found = lint([first[0], second[0], first[1]], AT)
    assert [(p.file, str(p.object), p.severity.value) for p in found] == [
        ("a", P, "error"),
        ("a", P, "warning"),
        ("a", P, "info"),
        ("a", "KWOKNodeClass/example", "warning"),
        ("b", "Node/n1", "error"),
    ]


def test_one_bad_document_hides_no_other() -> None:
    found = run(
        pod(nodeName=[]), {"apiVersion": "v1", "kind": "Pod", "metadata": "x"}, nodepool({"disruption": 5}), node("x")
    )
    assert [(p.rule, str(p.object)) for p in found if p.severity is E] == [
        ("InvalidObject", P),
        ("InvalidObject", "Pod/default/?"),
        ("InvalidObject", "Pod/default/?"),
        ("InvalidField", NP),
        ("InvalidDoNotDisrupt", "Node/n1"),
    ]


def test_fields_of_list_items_are_the_objects_own() -> None:
    (found,) = run({"apiVersion": "v1", "kind": "List", "items": [pod(nodeName=[])]})
    assert found.field == "spec.nodeName"


def test_foreign_kinds_of_the_same_name_are_not_ours() -> None:
    (found,) = run({"apiVersion": "cloud.example/v1", "kind": "NodePool", "metadata": {"name": "x"}, "spec": 5})
    assert found.rule == "NotChecked"


def test_finished_pods_protect_nothing() -> None:
    assert run(pod({DND: "1d"}) | {"status": {"phase": "Succeeded"}}) == []
    assert len(run(pod({DND: "1d"}) | {"status": {"phase": "Running"}})) == 1


def test_a_dump_counts_pods_once() -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}]
    pods = [
        pod()
        | {"metadata": {"name": f"p{i}", "namespace": "shop", "labels": {"app": "cart"}, "ownerReferences": owner}}
        for i in range(3)
    ]
    replica_set = workload("ReplicaSet", ownerReferences=[{"kind": "Deployment", "name": "cart"}])
    dump = [pdb(minAvailable=3), workload("Deployment"), replica_set, *pods]
    assert [p.rule for p in run(*dump)] == ["PdbNeverAllows"]  # not: 3 of 9
    assert [p.rule for p in run(pdb(minAvailable=3), *pods)] == ["PdbNeverAllows"]
    assert run(pdb(minAvailable=2), *pods) == []


def test_bound_pods_are_compared_with_their_own_claim() -> None:
    bound, machine = pod(nodeName="n1"), node("true") | {"spec": {"providerID": "x://1"}}
    claim = nodeclaim({"terminationGracePeriod": "20s"}, providerID="x://1")
    assert [p.rule for p in run(bound, machine, claim)] == ["GraceExceedsNode"]
    assert run(bound, machine, nodeclaim({"terminationGracePeriod": "20s"}, providerID="x://2")) == []


def test_what_is_told_of_one_schedule_is_not_told_of_both() -> None:
    found = run(pod({SCHEDULE: "0 0 31 2 *", BLOCK: "@daily"}))
    assert [p.rule for p in found] == ["ScheduleNeverFires"]


def test_a_blocked_reason_is_no_false_window_of_the_others() -> None:
    found = run(budgets({"nodes": "10%"}, window("5", "@daily", "8h"), {"nodes": "0", "reasons": ["Drifted"]}))
    assert [(p.rule, p.field) for p in found if p.severity is W] == [("BudgetBlocksForever", f"{B}[2]")]


def test_bare_pods_count_beside_workloads_and_owned_ones_do_not() -> None:
    labelled = pod() | {"metadata": {"name": "p", "namespace": "shop", "labels": {"app": "cart"}}}
    assert run(pdb(minAvailable=3), workload("Deployment"), labelled) == []  # 4 pods
    owned = workload("ReplicaSet", ownerReferences=[{"kind": "Deployment", "name": "cart"}])
    assert run(pdb(minAvailable=3), owned) == []


def test_a_name_beside_generate_name_is_the_name() -> None:
    named = pod() | {"metadata": {"name": "p", "generateName": "q-", "namespace": "shop"}}
    assert [(p.rule, str(p.object)) for p in run(named, named)] == [("DuplicateObject", P)]


@pytest.mark.parametrize(
    ("items", "pointless"),
    [
        ([{"nodes": "10%"}, {"nodes": "10%"}], [1]),
        ([{"nodes": "10%"}, window("10%", "@daily", "1h")], [1]),
        ([window("10%", "@daily", "1h"), {"nodes": "10%"}], [0]),
        ([window("5", "@daily", "1h"), window("5", "@weekly", "1h"), {"nodes": "10"}], []),
        ([window("5", "@daily", "1h"), window("6", "0 0 * * *", "60m"), {"nodes": "10"}], [1]),
        ([{"nodes": "5", "reasons": ["Drifted"]}, {"nodes": "5", "reasons": ["Drifted", "Empty"]}], [0]),
        ([{"nodes": "5", "reasons": ["Drifted"]}, {"nodes": "5", "reasons": ["Empty"]}], []),
        ([{"nodes": "50%"}, {"nodes": "20%"}], [0]),
    ],
)
def test_only_the_pointless_of_two_budgets_is_named(items: list[Object], pointless: list[int]) -> None:
    found = [p.field for p in run(budgets(*items)) if p.rule == "BudgetNeverBinding"]
    assert found == [f"{B}[{index}]" for index in pointless]


def test_a_false_window_names_only_the_reasons_that_it_is_about() -> None:
    found = run(budgets(window("100%", "@daily", "8h", "Drifted", "Empty"), {"nodes": "0", "reasons": ["Drifted"]}))
    assert [str(p.message).rpartition(" for ")[2] for p in found if p.rule == "BudgetIsNoAllowWindow"] == ["Drifted"]


def test_a_window_that_never_opens_is_no_false_window() -> None:
    found = run(budgets(window("5", "0 0 31 2 *", "8h")))
    assert [p.rule for p in found if p.severity is W] == ["ScheduleNeverFires"]


def test_many_bad_expressions_are_one_finding() -> None:
    (three,) = run(pod({SCHEDULE: "0 2 * * 6;a;b;c"}))
    assert str(three.message).count("is dropped") == 3
    assert "more" not in str(three.message)
    (five,) = run(pod({SCHEDULE: "0 2 * * 6;a;b;c;d;e"}))
    assert str(five.message).count("is dropped") == 3
    assert str(five.message).endswith("and 2 more")


def test_quoted_numbers_want_no_quotes() -> None:
    (found,) = (p for p in run(nodepool({"weight": "5"})) if p.severity is E)
    assert (found.field, found.remedy) == ("spec.weight", "write 5, without quotes")


def test_a_group_has_no_version() -> None:
    reference = {"group": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "name": "default"}
    (found,) = (p for p in run(nodepool(template={"nodeClassRef": reference})) if p.severity is E)
    assert (found.field, found.remedy) == (f"{T}.nodeClassRef.group", "write karpenter.k8s.aws, without the version")


# -- objects that change the meaning of others ------------------------------------------------------------------------


def hpa(most: int, kind: str = "Deployment") -> Object:
    spec = {"scaleTargetRef": {"kind": kind, "name": "cart"}, "minReplicas": 3, "maxReplicas": most}
    meta = {"name": "cart", "namespace": "shop"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}


def scaled_object(**spec: Any) -> Object:
    meta, target = {"name": "cart", "namespace": "shop"}, {"scaleTargetRef": {"name": "cart"}}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": meta, "spec": target | spec}


@pytest.mark.parametrize(
    ("scaler", "rules"),
    [
        ([], ["PdbNeverAllows"]),
        ([hpa(9)], []),
        ([hpa(2)], ["PdbNeverAllows"]),
        ([hpa(9, "StatefulSet")], ["PdbNeverAllows"]),
        ([scaled_object()], []),
        ([scaled_object(maxReplicaCount=2)], ["PdbNeverAllows"]),
    ],
)
def test_an_autoscaler_gives_a_deployment_more_replicas(scaler: list[Object], rules: list[str]) -> None:
    found = run(pdb(minAvailable=2), workload("Deployment", replicas=1), *scaler)
    assert [p.rule for p in found] == rules


def test_a_pdb_that_only_scaling_can_help_says_so() -> None:
    (alone,) = run(pdb(minAvailable=1), workload("Deployment", replicas=1))
    assert "leaves none of 1 to spare, unless something scales it;" in str(alone.message)
    (scaled,) = run(pdb(minAvailable=2), workload("Deployment", replicas=1), hpa(2))
    assert "unless" not in str(scaled.message)
    (never,) = run(pdb(maxUnavailable=0), workload("Deployment", replicas=1))
    assert "unless" not in str(never.message)


TOLERATES = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("spec", "pool", "lands"),
    [
        ({}, {}, True),
        ({}, {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, False),
        ({}, {"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, True),
        (TOLERATES, {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, True),
        ({"nodeSelector": {"example.com/disk": "fast"}}, {}, False),
        ({"nodeSelector": {"karpenter.sh/nodepool": "example"}}, {}, True),
        ({"nodeSelector": {"karpenter.sh/nodepool": "other"}}, {}, False),
        ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, {}, True),
        ({"nodeSelector": {"karpenter.k8s.aws/instance-family": "m5"}}, {}, True),
        (
            {"nodeSelector": {"kubernetes.io/arch": "arm64"}},
            {"requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]},
            False,
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "x", "operator": "In", "values": ["a"]}]},
                                {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
                            ]
                        }
                    }
                }
            },
            {},
            True,
        ),
        ({"affinity": 7}, {}, True),  # nobody knows
    ],
)
def test_a_grace_period_is_compared_with_pools_that_can_take_the_pod(spec: Object, pool: Object, lands: bool) -> None:
    found = run(pod(**spec), nodepool(template={"terminationGracePeriod": "20s"} | pool))
    assert [p.rule for p in found if p.rule == "GraceExceedsNode"] == (["GraceExceedsNode"] if lands else [])


def test_pools_of_one_name_are_named_once() -> None:
    pool = nodepool(template={"terminationGracePeriod": "20s"})
    (found,) = (p for p in run(pod(), pool, pool) if p.rule == "GraceExceedsNode")
    assert str(found.message).count("NodePool/example (20s)") == 1


def test_a_status_is_not_read() -> None:
    assert run(nodepool(template={"terminationGracePeriod": "24h"}) | {"status": {"conditions": "none"}}) == []
    assert run(nodeclaim() | {"status": {"providerID": 5}}) == []
    assert run(pdb(maxUnavailable=1) | {"status": {"disruptionsAllowed": "x"}}) == []
    assert [p.rule for p in run(node("x") | {"status": 7})] == ["InvalidDoNotDisrupt"]


def test_an_old_version_is_one_finding() -> None:
    reference = {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"}
    template = {"nodeClassRef": reference, "kubelet": {"maxPods": 10}, "terminationGracePeriod": "24h"}
    disruption = {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"}
    (found,) = run(nodepool({"disruption": disruption}, template=template) | {"apiVersion": "karpenter.sh/v1beta1"})
    assert (found.rule, found.severity) == ("OldApiVersion", W)
    assert found.remedy == (
        "write apiVersion: karpenter.sh/v1"
        f"; {T}.nodeClassRef.apiVersion: write group, without the version"
        f"; {T}.kubelet: move it to the node class"
        "; spec.disruption.consolidationPolicy: write WhenEmptyOrUnderutilized"
        f"; spec.disruption.expireAfter: move it to {T}.expireAfter"
    )


@pytest.mark.parametrize(
    ("version", "kind", "remedy"),
    [
        ("karpenter.sh/v1alpha5", "Provisioner", "NodePool of karpenter.sh/v1"),
        ("karpenter.sh/v1alpha5", "Machine", "NodeClaim"),
        ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate", "EC2NodeClass of karpenter.k8s.aws/v1"),
        ("extensions/v1beta1", "Deployment", "Deployment of apps/v1"),
    ],
)
def test_a_removed_kind_is_an_error_with_its_successor(version: str, kind: str, remedy: str) -> None:
    (found,) = run({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}})
    assert (found.rule, found.severity, found.field) == ("RemovedKind", E, "kind")
    assert remedy in found.remedy


def test_the_new_version_of_a_pdb_may_mean_something_else() -> None:
    old = {"apiVersion": "policy/v1beta1"}
    for selector, warned in (({}, True), ({"matchLabels": {"app": "cart"}}, False)):
        (found,) = (p for p in run(pdb(maxUnavailable=1, selector=selector) | old) if p.severity is E)
        assert found.remedy.startswith("write apiVersion: policy/v1")
        assert ("selects every pod in v1" in found.remedy) is warned


def test_pools_without_a_drain_limit_are_one_finding() -> None:
    pools = [nodepool() | {"metadata": {"name": f"p{number}"}} for number in range(3)]
    (found,) = run(*pools)
    assert (found.rule, str(found.object)) == ("DrainWithoutLimit", "NodePool/p0")
    assert str(found.message).endswith("; the same is true of 2 other NodePools: p1, p2")


def test_a_node_class_that_is_missing_beside_others() -> None:
    classes = [
        {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}}
        for name in ("a", "default")
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "defualt"}
    template = {"nodeClassRef": reference, "terminationGracePeriod": "24h"}
    found = [p for p in run(*classes, nodepool(template=template)) if p.severity is W]
    assert [(p.rule, p.field, p.remedy) for p in found] == [
        ("NodeClassMissing", f"{T}.nodeClassRef.name", "write default")
    ]
    assert [p.rule for p in run(nodepool(template=template))] == []  # it may be elsewhere


@pytest.mark.parametrize(("thing", "by"), [(node("1d"), "karpenter"), (pod({DND: "1d"}), "karpenter@1.11")])
def test_no_remedy_names_a_duration_that_nobody_reads(thing: Object, by: str) -> None:
    (found,) = lint(documents(thing), AT, settings=settings_of(parse_decider(by)))
    assert (found.rule, found.remedy) == ("InvalidDoNotDisrupt", 'write "true", and remove it after 24h')
    (read,) = run(thing)
    assert read.remedy == 'write "24h"'


def test_a_number_that_is_no_text_is_no_duration_either_where_none_counts() -> None:
    settings = settings_of(parse_decider("karpenter@1.11"))
    found = lint(documents(pod({DND: 4})), AT, settings=settings)
    assert [each.remedy for each in found] == ['write "true", and remove it when its time is over']


@pytest.mark.parametrize("kind", ["Pod", "Node", "NodePool", "PodDisruptionBudget"])
@pytest.mark.parametrize(("name", "how"), [(12, "put the name in quotes"), (True, "put the name in quotes"), *ABSENT])
def test_a_bad_name_is_one_finding(kind: str, name: object, how: str) -> None:
    things = {"Pod": pod(), "Node": node("true"), "NodePool": nodepool(), "PodDisruptionBudget": pdb(maxUnavailable=1)}
    thing = things[kind]
    thing["metadata"]["name"] = name
    found = [each for each in run(thing) if each.field == "metadata.name"]
    assert [(each.rule, each.remedy) for each in found] == [("InvalidObject", how)]


GRACEFUL_ANNOTATION = f"{PA}[dovetail.dev/graceful-expire-after]"


ANNOTATED = {"annotations": {"dovetail.dev/graceful-expire-after": "72h"}}
INSTEAD = 'write the annotation dovetail.dev/graceful-expire-after: "72h" instead'
BESIDE = "use dovetail guard, drive or run, with the annotation dovetail.dev/graceful-expire-after beside Karpenter"


@pytest.mark.parametrize(
    ("by", "field", "meta", "found"),
    [
        ("dovetail", "72h", {}, []),
        ("dovetail", None, ANNOTATED, []),
        ("dovetail:guard", None, ANNOTATED, []),
        ("dovetail:guard", "72h", ANNOTATED, []),
        ("dovetail:guard", "Never", {}, []),
        ("dovetail:guard", "72h", {"uid": "u"}, []),  # the CRD of the cluster has kept it
        ("dovetail:guard", "72h", {}, [(GRACEFUL_FIELD, INSTEAD)]),
        ("dovetail:drive", "72h", {}, [(GRACEFUL_FIELD, INSTEAD)]),
        ("karpenter", "72h", ANNOTATED, [(GRACEFUL_FIELD, BESIDE)]),
        ("karpenter", None, ANNOTATED, [(GRACEFUL_ANNOTATION, "use dovetail guard, drive or run")]),
    ],
)
def test_graceful_expiry_that_the_crd_drops(by: str, field: str | None, meta: Object, found: list[Any]) -> None:
    disruption = {} if field is None else {"gracefulExpireAfter": field}
    pool = nodepool({"disruption": disruption}, template={"expireAfter": "Never"})
    pool["metadata"] |= meta
    told = lint(documents(pool), AT, settings=settings_of(parse_decider(by)))
    assert [(each.field, each.remedy) for each in told] == found
    assert {each.rule for each in told} <= {"NotInForce"}


def keyed(kind: str, key: str, holder: str = "annotations") -> Object:
    made: Object = {"Node": node("true"), "NodePool": nodepool(), "NodeClaim": nodeclaim(), "Pod": pod()}[kind]
    return made | {"metadata": made["metadata"] | {holder: {key: "x"}}}


@pytest.mark.parametrize(
    ("kind", "key", "remedy"),
    [
        ("Node", "karpenter.sh/do-not-disrupts", f"write {DND}"),
        ("Node", "karpenter.sh/do-not-repiar", f"write {DNR}"),
        ("NodeClaim", "karpenter.sh/do-not-evict", f"write {DND}"),
        ("Node", "karpenter.sh/do-not-consolidate", f"remove it, or write {DND}, which also"),
        ("NodePool", "dovetail.dev/gracefulExpireAfter", "write dovetail.dev/graceful-expire-after"),
        ("NodePool", "karpenter.sh/graceful-expire-after", "write dovetail.dev/graceful-expire-after"),
        ("NodePool", "dovetail.dev/budget", "write dovetail.dev/budgets"),
        ("NodePool", "dovetail.dev/off", "remove it"),
        ("Pod", "dovetail.dev/do-not-distrupt", f"write {DND}"),
    ],
)
def test_an_annotation_that_nothing_reads(kind: str, key: str, remedy: str) -> None:
    (found,) = (p for p in run(keyed(kind, key)) if p.rule == "UnknownAnnotation")
    assert (found.severity, found.object.kind) == (W, kind)
    assert found.remedy.startswith(remedy)
    assert found.field == f"metadata.annotations[{key}]"


def test_labels_that_nothing_reads() -> None:
    (found,) = (p for p in run(keyed("Node", "karpenter.sh/do-not-sync-taint", "labels")) if p.rule == "UnknownLabel")
    assert (found.severity, found.remedy) == (W, "write karpenter.sh/do-not-sync-taints")
    (label,) = (p for p in run(keyed("NodePool", "dovetail.dev/beside", "labels")) if p.rule == "AnnotationAsLabel")
    assert label.remedy == "move it to the annotations"


def test_what_a_newer_karpenter_may_read_is_only_told() -> None:
    (found,) = (p for p in run(keyed("Node", "karpenter.sh/something-else")) if p.rule == "UnknownAnnotation")
    assert (found.severity, found.remedy) == (I, "remove it, unless something else reads it")


@pytest.mark.parametrize("kind", ["Node", "NodeClaim", "NodePool"])
def test_a_window_of_pods_is_not_read_elsewhere(kind: str) -> None:
    (found,) = (p for p in run(keyed(kind, SCHEDULE)) if p.rule == "AnnotationNotOnPods")
    assert (found.severity, found.remedy) == (W, "move it to the pods")


@pytest.mark.parametrize("kind", ["Node", "NodeClaim", "NodePool", "Pod"])
def test_keys_of_karpenters_own_api_are_no_mistakes(kind: str) -> None:
    rules = {"UnknownAnnotation", "UnknownLabel", "AnnotationAsLabel"}
    for holder, keys in (
        ("annotations", names.KARPENTER_KEYS | names.OWN_KEYS),
        ("labels", {names.NODEPOOL_LABEL, names.CAPACITY_TYPE_LABEL, names.REGISTERED_LABEL, names.INITIALIZED_LABEL}),
    ):
        for key in keys:
            assert not [p for p in run(keyed(kind, key, holder)) if p.rule in rules], (kind, holder, key)


@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [
        ("helm.toolkit.fluxcd.io/v2", "HelmRelease", "spec.values"),
        ("argoproj.io/v1alpha1", "Application", "spec.source.helm.valuesObject"),
    ],
)
def test_annotations_in_the_values_of_a_chart(version: str, kind: str, path: str) -> None:
    values: Object = {"web": {"podAnnotations": {DND: True}}, "jobs": [{"annotations": {SCHEDULE: "0 22-6 * * *"}}]}
    holder: Object = values
    for step in reversed(path.split(".")):
        holder = {step: holder}
    found = run({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "shop"}} | holder)
    assert [(p.rule, p.severity, p.field) for p in found] == [
        ("InvalidDisruptionSchedule", E, f"{path}.jobs[0].annotations[{SCHEDULE}]"),
        ("NotAString", E, f"{path}.web.podAnnotations[{DND}]"),
    ]
    assert found[1].remedy == 'quote it: "true"'
    assert run({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": 5}) == []


def test_a_pool_of_three_nodes_is_called_so() -> None:
    items = {"nodes": "15", "reasons": ["Drifted"]}, {"nodes": "1"}
    members = [
        node("true") | {"metadata": {"name": f"n{i}", "labels": {"karpenter.sh/nodepool": "example"}}} for i in range(3)
    ]
    for things in ([budgets(*items), *members], [budgets(*items) | {}, *members[::-1]]):
        (found,) = (p for p in run(*things) if p.rule == "BudgetReadingDiffers")
        assert str(found.message).startswith("with 3 nodes the limit for Drifted is 15 here but 1")
    static = nodepool({"disruption": {"budgets": list(items)}, "replicas": 1})
    assert "BudgetReadingDiffers" not in [p.rule for p in run(static)]  # it never has more than one node
    limited = nodepool({"disruption": {"budgets": list(items)}, "limits": {"nodes": 3}})
    assert "with 3 nodes" in str([p.message for p in run(limited)])


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing",
    [
        pod({DND: "9" * 2**20}),
        pod({SCHEDULE: "0 2 * * 6;" * 10_000, DURATION: "4h;" * 10_000}),
        pod({SCHEDULE: ";".join(f"CRON_TZ=Europe/Berln{i} 0 2 * * 6" for i in range(64))}),
        pod({f"karpenter.sh/do-not-disrup{i}": "true" for i in range(5000)}),
        pod({f"k{i}": i for i in range(5000)}),
        budgets(*[window("9" * 5000, " " * 39 + "\n", "1" * 5000)] * 60),
        nodepool({f"disruptio{'n' * i}": 1 for i in range(500)}),
        {"apiVersion": "v1", "kind": "Pod" * 1000, "metadata": {"name": "x"}},
    ],
    ids=["value", "expressions", "zones", "keys", "numbers", "budgets", "fields", "kind"],
)
def test_large_mistakes_have_short_answers(thing: Object) -> None:
    found = run(thing)
    assert 0 < len(found) <= 200
    assert max(len(str(p.message)) + len(p.remedy) for p in found) < 1200
    assert max(len(p.field) for p in found) < 800


# -- windows outside windows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "span"),
    [
        ("0 2 * * 6", 4 * HOUR),
        ("30 22 * * *", 90 * MINUTE),
        ("0 0 * * 0", 24 * HOUR),
        ("59 23 * * 6", 167 * HOUR),
        ("@daily", MINUTE),
        ("@weekly", 100 * HOUR),
    ],
)
def test_inverse_window_is_the_rest_of_the_time(schedule: str, span: int) -> None:
    given_window = Window([(parse_cron(schedule), span)])
    inverse = inverse_window(given_window)
    assert inverse is not None
    other = Window([(parse_cron(inverse[0]), parse_duration(inverse[1]))])
    assert all_of([given_window.instants, other.instants]).first(AT) is None
    both = any_of([given_window.instants, other.instants])
    assert both.contains(AT)
    assert both.until(AT) is None


@pytest.mark.parametrize(
    ("schedule", "span"), [("0 9 * * 1-5", HOUR), ("0 0 1 * *", HOUR), ("0 0,12 * * *", HOUR), ("@daily", 24 * HOUR)]
)
def test_windows_without_a_simple_inverse(schedule: str, span: int) -> None:
    assert inverse_window(Window([(parse_cron(schedule), span)])) is None


# -- anything at all ---------------------------------------------------------------------------------------------------

GOOD: list[Object] = [
    pod({DND: "4h", SCHEDULE: "0 2 * * 6", DURATION: "4h"}, nodeName="n1", terminationGracePeriodSeconds=60),
    workload("Deployment", {BLOCK: "0 9 * * 1-5", BLOCK_DURATION: "8h"}),
    workload("CronJob", {DND: "true"}),
    pdb(minAvailable="50%"),
    node("true") | {"spec": {"providerID": "x://1"}},
    nodeclaim({"terminationGracePeriod": "24h", "requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}),
    nodeclass({"nodeRegistrationDelay": "5s"}),
    nodepool(
        {
            "disruption": {
                "budgets": [{"nodes": "10%"}, window("0", "0 9 * * 1-5", "8h", "Drifted")],
                "gracefulExpireAfter": "24h",
            },
            "limits": {"cpu": 10},
        },
        template={"requirements": [{"key": "a", "operator": "Gt", "values": ["1"]}], "expireAfter": "48h"},
        metadata={"labels": {"a": "b"}, "annotations": {DND: "4h"}},
    ),
]
odd = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["true", "0s", "Never", "1d", "0", "0%", "@daily", "* * * * *", "In", "drift", "", "4h"])
    | st.lists(st.integers() | st.text(max_size=3), max_size=3)
    | st.dictionaries(st.text(max_size=5), st.integers() | st.none(), max_size=3)
)


def places(thing: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the object but its kind and version."""
    inner = list(thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ())
    below = [
        place for key, value in inner if key not in ("kind", "apiVersion") for place in places(value, (*path, key))
    ]
    return ([path] if path else []) + below


@given(st.data())
def test_any_document_has_an_answer(data: st.DataObject) -> None:
    things = json.loads(json.dumps(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        thing = data.draw(st.sampled_from(things))
        *above, last = data.draw(st.sampled_from(places(thing) or [("spec",)]))
        holder = thing
        for key in above:
            holder = (
                holder[key] if isinstance(holder, dict | list) and (isinstance(holder, list) or key in holder) else {}
            )
        if isinstance(holder, dict):
            action = data.draw(st.sampled_from(["change", "remove", "rename"]))
            value = holder.pop(last, None)
            if action != "remove":
                name = f"{last}s" if action == "rename" else last
                holder[name] = data.draw(odd) if action == "change" else value
        elif isinstance(holder, list) and last < len(holder):
            holder[last] = data.draw(odd)
    for problem in run(*things):
        assert isinstance(problem, Finding)
        assert problem.rule
        assert problem.message
        assert problem.remedy


def test_the_good_objects_are_good() -> None:
    assert [p for p in run(*GOOD) if p.severity is E] == []


@pytest.mark.parametrize(
    "pool",
    [
        nodepool(metadata={"labels": {"a": "x y"}}),
        nodepool(metadata={"labels": {"karpenter.sh/x": "x"}}),
        nodepool(template={"taints": [{"key": "a b", "effect": "NoSchedule"}]}),
        nodepool(template={"taints": [{"key": "a", "effect": "Never"}]}),
        nodepool(template={"requirements": [{"key": "a b", "operator": "Exists"}]}),
        nodepool(template={"requirements": [{"key": "a", "operator": "in", "values": ["x"]}]}),
        nodepool(template={"requirements": [{"key": "a", "operator": "In", "values": []}]}),
        nodepool(template={"expireAfter": "99999999h"}),
    ],
)
def test_what_the_server_refuses_is_told_once(pool: Object) -> None:
    assert [problem.rule for problem in run(pool) if problem.severity is E] == ["InvalidField"]


# -- marks of guard and drive ------------------------------------------------------------------------------------------


def test_marks_that_cannot_be_read_are_reported_and_holds_are_told() -> None:
    held = {DND: "true", "dovetail.dev/held": '{"by":"guard","until":"2026-03-07T02:00:00Z"}'}
    found = run(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "annotations": held}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "annotations": {"dovetail.dev/held": "yes"}}},
        pod({"dovetail.dev/hold": "soon"}),
    )
    assert [(each.severity, each.rule, each.object.name) for each in found] == [
        (I, "HeldByDovetail", "a"),
        (W, "InvalidMark", "b"),
        (W, "InvalidMark", "p"),
    ]
    assert "until 2026-03-07T02:00:00Z" in str(found[0].message)


@pytest.mark.parametrize(
    ("value", "until", "left"),
    [
        ("79s", "2000-01-01T00:00:00Z", True),
        ("79s", "9999-12-31T23:59:59Z", False),
        ("80s", "2000-01-01T00:00:00Z", False),
    ],
)
def test_a_hold_on_a_pod_that_is_over_is_told(value: str, until: str, left: bool) -> None:
    found = run(pod({DND: value, "dovetail.dev/hold": f'{{"until":"{until}","value":"79s"}}'}))
    assert ("HoldLeft" in {each.rule for each in found}) is left
