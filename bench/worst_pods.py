"""What does the worst pod cost that somebody with rights in one namespace can write?

`python -m bench.worst_pods` prints the table; `print_worst_pods` does so for `make bench`. Each row is measured in a
process of its own. One field of the pod is as large as the API server takes it: 256 KiB of annotations, 1.5 MiB of
everything else; with "as read" it is as large as the program reads it. The first reading is all that happens once for a
change: decoding, the record, every rule, and placing the pod among 20 nodes and 100 instance types. Each further
reading asks the rules and the engine again, a minute later.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from bench.scheduling import used_cluster
from dovetail.api import names, objects
from dovetail.api.pod_specs import SchedulingPod
from dovetail.model import spec_limits
from dovetail.model.pdb_records import pdb_record
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.planning.node.drain import drain_plan
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import annotation_faults
from dovetail.scheduling import fast
from dovetail.scheduling.placement import PodInfo, read_pod
from dovetail.scheduling.requirements import RequirementError
from dovetail.scheduling.resources import ResourceError
from dovetail.state.unplaceable import spec_flaw

_ANNOTATIONS: Final = 256 * 1024
_OBJECT: Final = 1536 * 1024
_NODES: Final = 20
_AT: Final = datetime(2026, 3, 6, 16, 20, tzinfo=UTC)
_SECONDS_AT_MOST: Final = 60
_AFFINITY: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERENCE: Final = "preferredDuringSchedulingIgnoredDuringExecution"
Body = dict[str, Any]


# -- the pods ----------------------------------------------------------------------------------------------------------


def _annotated(annotation: str, text: str, **others: str) -> Body:
    return _pod(annotations={annotation: text, **others})


def _pod(*, labels: Body | None = None, annotations: Body | None = None, **spec: Any) -> Body:
    container = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "metadata": {
            "name": "worst",
            "namespace": "default",
            "uid": "uid",
            "creationTimestamp": "2026-03-01T00:00:00Z",
            "labels": {"app": "worst", **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {"containers": [container], **spec},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            ],
        },
    }


def _many(part: Callable[[int], Any], size: int = _OBJECT) -> list[Any]:
    """As many as have room."""
    return [part(number) for number in range(size // (len(json.dumps(part(999_999))) + 1))]


def _named(size: int = _OBJECT) -> Body:
    """Labels, as many as have room."""
    return dict(_many(lambda number: (f"l{number}", "x"), size))


def _expression(number: int) -> Body:
    return {"key": f"l{number}", "operator": "NotIn", "values": ["x"]}


def _selector(number: int) -> Body:
    return {"matchLabels": {"app": f"a{number}"}}


def _term(number: int) -> Body:
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": _selector(number)}


def _spread(number: int, policy: str = "DoNotSchedule") -> Body:
    return {
        "topologyKey": names.ZONE_LABEL,
        "maxSkew": 1 + number,
        "whenUnsatisfiable": policy,
        "labelSelector": {"matchLabels": {"app": "worst"}},
    }


def _node_term(number: int) -> Body:
    return {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": [f"z{number}"]}]}


def _container(number: int) -> Body:
    return {"name": f"c{number}", "resources": {"requests": {"cpu": "1m"}}}


def _port(number: int) -> Body:
    return {"containerPort": 1 + number % 65535, "hostPort": 1 + number % 65535, "hostIP": f"10.0.0.{number // 65535}"}


def _worst_schedule() -> tuple[str, str]:
    """Sixty-four expressions, each on other days and closing at another fraction of a second."""
    crons = [f"{n % 60} {n % 24} {1 + n % 28},{1 + n * 7 % 28} * {n % 7}" for n in range(64)]
    return ";".join(crons), ";".join(f"{10 + n}m0.{n + 1:03}s" for n in range(64))


def _affine(side: str, **terms: Any) -> Body:
    return _pod(affinity={side: terms})


_SCHEDULE, _DURATIONS = _worst_schedule()
_LONG: Final = "1ns" * (_ANNOTATIONS // 3 - 100)
_PODS: Final[dict[str, Callable[[], Body]]] = {
    "an ordinary pod": _pod,
    "do-not-disrupt: a long duration": lambda: _annotated(names.DO_NOT_DISRUPT, _LONG),
    "do-not-disrupt: many digits": lambda: _annotated(names.DO_NOT_DISRUPT, "0" * (_ANNOTATIONS - 400) + "1h"),
    "disruption-schedule: 64 expressions": lambda: _annotated(
        names.DISRUPTION_SCHEDULE, _SCHEDULE, **{names.DISRUPTION_SCHEDULE_DURATION: _DURATIONS}
    ),
    "disruption-schedule: a long list of minutes": lambda: _annotated(
        names.DISRUPTION_SCHEDULE, ",".join(["0-59/1", "*/7"] * 6000) + " * * * *"
    ),
    "disruption-schedule: many separators": lambda: _annotated(names.DISRUPTION_SCHEDULE, ";" * (_ANNOTATIONS - 400)),
    "disruption-schedule-duration: long": lambda: _annotated(
        names.DISRUPTION_SCHEDULE, "0 2 * * *", **{names.DISRUPTION_SCHEDULE_DURATION: _LONG}
    ),
    "disruption-block-schedule: a long zone": lambda: _annotated(
        names.DISRUPTION_BLOCK_SCHEDULE, "CRON_TZ=" + "a" * (_ANNOTATIONS - 400) + " 0 2 * * *"
    ),
    "pod-deletion-cost: many digits": lambda: _annotated(names.POD_DELETION_COST, "1" * (_ANNOTATIONS - 400)),
    "an annotation that nobody reads": lambda: _annotated("example.com/notes", "x" * (_ANNOTATIONS - 400)),
    "labels": lambda: _pod(labels=_named()),
    "nodeSelector": lambda: _pod(nodeSelector=_named()),
    "tolerations": lambda: _pod(
        tolerations=_many(lambda n: {"key": f"k{n}", "operator": "Exists", "effect": "NoSchedule"})
    ),
    "node affinity: terms": lambda: _affine("nodeAffinity", **{_AFFINITY: {"nodeSelectorTerms": _many(_node_term)}}),
    "node affinity: expressions": lambda: _affine(
        "nodeAffinity", **{_AFFINITY: {"nodeSelectorTerms": [{"matchExpressions": _many(_expression)}]}}
    ),
    "node affinity: values": lambda: _affine(
        "nodeAffinity",
        **{
            _AFFINITY: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "NotIn", "values": _many(str)}]}
                ]
            }
        },
    ),
    "node affinity: preferences": lambda: _affine(
        "nodeAffinity", **{_PREFERENCE: _many(lambda n: {"weight": 1 + n % 100, "preference": _node_term(n)})}
    ),
    "pod affinity": lambda: _affine("podAffinity", **{_AFFINITY: _many(_term)}),
    "pod affinity: preferences": lambda: _affine(
        "podAffinity", **{_PREFERENCE: _many(lambda n: {"weight": 1 + n % 100, "podAffinityTerm": _term(n)})}
    ),
    "pod anti-affinity": lambda: _affine("podAntiAffinity", **{_AFFINITY: _many(_term)}),
    "pod anti-affinity: expressions": lambda: _affine(
        "podAntiAffinity",
        **{_AFFINITY: [{"topologyKey": "zone", "labelSelector": {"matchExpressions": _many(_expression)}}]},
    ),
    "pod anti-affinity: namespaces": lambda: _affine(
        "podAntiAffinity", **{_AFFINITY: [{**_term(0), "namespaces": _many(lambda n: f"n{n}")}]}
    ),
    "pod anti-affinity: preferences": lambda: _affine(
        "podAntiAffinity", **{_PREFERENCE: _many(lambda n: {"weight": 1 + n % 100, "podAffinityTerm": _term(n)})}
    ),
    "topologySpreadConstraints": lambda: _pod(topologySpreadConstraints=_many(_spread)),
    "topologySpreadConstraints, ScheduleAnyway": lambda: _pod(
        topologySpreadConstraints=_many(lambda number: _spread(number, "ScheduleAnyway"))
    ),
    "constraints and node affinity terms": lambda: _pod(
        topologySpreadConstraints=_many(_spread, _OBJECT // 2),
        affinity={"nodeAffinity": {_AFFINITY: {"nodeSelectorTerms": _many(_node_term, _OBJECT // 2)}}},
    ),
    "containers": lambda: _pod(containers=_many(_container)),
    "init containers": lambda: _pod(initContainers=_many(lambda n: {**_container(n), "restartPolicy": "Always"})),
    "resources of a container": lambda: _pod(
        containers=[{"name": "main", "resources": {"requests": dict(_many(lambda n: (f"a.b/r{n}", "1")))}}]
    ),
    "resources of init containers": lambda: _pod(
        initContainers=_many(
            lambda n: {"name": f"c{n}", "restartPolicy": "Always", "resources": {"requests": {f"a.b/r{n}": "1"}}}
        )
    ),
    "a long quantity": lambda: _pod(
        containers=[{"name": "main", "resources": {"requests": {"cpu": "1" * (_OBJECT - 400)}}}]
    ),
    "host ports": lambda: _pod(containers=[{"name": "main", "ports": _many(_port)}]),
    "as read: pod affinity preferences": lambda: _affine(
        "podAffinity",
        **{
            _PREFERENCE: [
                {"weight": 1 + number % 100, "podAffinityTerm": _term(number)}
                for number in range(spec_limits.TERMS // 2)
            ]
        },
    ),
    "as read: ScheduleAnyway": lambda: _pod(
        topologySpreadConstraints=[_spread(number, "ScheduleAnyway") for number in range(spec_limits.TERMS // 2)]
    ),
    "as read: constraints and node affinity terms": lambda: _pod(
        topologySpreadConstraints=[_spread(number) for number in range(spec_limits.TERMS // 4)],
        affinity={
            "nodeAffinity": {
                _AFFINITY: {"nodeSelectorTerms": [_node_term(number) for number in range(spec_limits.TERMS // 4)]}
            }
        },
    ),
    "as read: resources": lambda: _pod(
        containers=[
            {
                "name": "main",
                "resources": {"requests": {f"a.b/r{number}": "1" for number in range(spec_limits.RESOURCES)}},
            }
        ]
    ),
    "as read: host ports": lambda: _pod(
        containers=[{"name": "main", "ports": [_port(number) for number in range(spec_limits.PORTS)]}]
    ),
    "volumes": lambda: _pod(
        volumes=_many(lambda n: {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"claim-{n}"}})
    ),
}
_PDBS: Final[dict[str, Callable[[], Body]]] = {
    "PodDisruptionBudget: labels": lambda: {"matchLabels": _named()},
    "PodDisruptionBudget: expressions": lambda: {"matchExpressions": _many(_expression)},
    "PodDisruptionBudget: values": lambda: {
        "matchExpressions": [{"key": "app", "operator": "NotIn", "values": _many(str)}]
    },
}


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(field: str) -> dict[str, float]:
    """The bytes of the object, and milliseconds of the CPU."""
    selector = _PDBS[field]() if field in _PDBS else {"matchLabels": {"app": "worst"}}
    guard = json.dumps({"metadata": {"name": "guard"}, "spec": {"maxUnavailable": 0, "selector": selector}}).encode()
    text = json.dumps(_pod() if field in _PDBS else _PODS[field]()).encode()
    problem, _ = used_cluster(_NODES)
    world = fast.World(problem.nodes, problem.pools, problem.types, problem.daemons, problem.options)
    ordinary = PodInterner().watched_pod(msgspec.json.decode(json.dumps(_pod()), type=SchedulingPod))
    _ask(ordinary, PdbIndex((), ()), world, _read(ordinary), _AT)  # what is done once a process
    started = time.process_time()
    pod = PodInterner().watched_pod(msgspec.json.decode(text, type=SchedulingPod))
    pdbs = PdbIndex([pdb_record(msgspec.json.decode(guard, type=objects.PodDisruptionBudget))], [pod])
    to_place = _read(pod)
    _ask(pod, pdbs, world, to_place, _AT)
    first = time.process_time() - started
    started = time.process_time()
    _ask(pod, pdbs, world, to_place, _AT + timedelta(minutes=1))
    again = time.process_time() - started
    return {"bytes": len(guard) if field in _PDBS else len(text), "first": first * 1e3, "again": again * 1e3}


def _read(pod: PodRecord) -> PodInfo | None:
    """As placing does; None if it says what is wrong with the pod."""
    assert pod.scheduling is not None
    meta = objects.ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid, labels=dict(pod.labels))
    spec, too_much = pod.scheduling.spec, pod.scheduling.flaw
    try:
        return None if spec_flaw(spec, names.WELL_KNOWN_LABELS, too_much) else read_pod(SchedulingPod(meta, spec))
    except (RequirementError, ResourceError):
        return None


def _ask(pod: PodRecord, pdbs: PdbIndex, world: fast.World, to_place: PodInfo | None, now: datetime) -> None:
    drain_plan([pod], deadline=None, now=now)  # asks for its own protections
    annotation_faults(pod.annotations)
    pdbs.verdict(pod)
    _ = pod.eviction_cost
    if to_place is not None:
        world.what_if([to_place])


def print_worst_pods(fields: list[str] | None = None) -> None:
    """The table."""
    print("the worst pod that somebody with rights in one namespace can write")
    print(f"{'field':<46} {'size':>8} {'first':>11} {'again':>11}")
    for field in fields or (*_PODS, *_PDBS):
        command = [sys.executable, "-m", "bench.worst_pods", "measure", field]
        try:
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_SECONDS_AT_MOST).stdout
        except subprocess.TimeoutExpired:
            print(f"{field:<46} {'more than ' + str(_SECONDS_AT_MOST) + ' s':>32}")
            continue
        figures = json.loads(told)
        size = f"{figures['bytes'] / 1024:.0f} KiB"
        print(f"{field:<46} {size:>8} {figures['first']:>8.1f} ms {figures['again']:>8.2f} ms", flush=True)
    print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        print_worst_pods(sys.argv[1:])
