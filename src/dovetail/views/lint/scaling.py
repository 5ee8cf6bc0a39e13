"""How many replicas an autoscaler of the input may give a workload."""

from collections.abc import Container

from dovetail.api import objects
from dovetail.api.documents import Document, decode
from dovetail.views.findings.subject import Subject

AUTOSCALERS = frozenset({("autoscaling", "HorizontalPodAutoscaler"), ("keda.sh", "ScaledObject")})
_KEDA_MOST = 100


class _TargetReference(objects.Wire, frozen=True):
    kind: str = "Deployment"
    name: str = ""


class _AutoscalerSpec(objects.Wire, frozen=True):
    scale_target_ref: _TargetReference = _TargetReference()
    max_replicas: int = 0
    max_replica_count: int = _KEDA_MOST


class _Autoscaler(objects.ApiObject, frozen=True):
    spec: _AutoscalerSpec = _AutoscalerSpec()


# The kind, namespace and name of a workload.
ScaleTarget = tuple[str, str, str]


def target_of(subject: Subject) -> ScaleTarget:
    return subject.kind, subject.namespace, subject.name


class Autoscalers:
    """The most replicas of each workload that an autoscaler scales."""

    def __init__(self) -> None:
        self._most: dict[ScaleTarget, int] = {}

    def add(self, document: Document) -> None:
        """Raises InputError."""
        scaler = decode(document, _Autoscaler)
        target, spec = scaler.spec.scale_target_ref, scaler.spec
        most = spec.max_replica_count if document.kind == "ScaledObject" else spec.max_replicas
        key = (target.kind, scaler.metadata.namespace or "default", target.name)
        self._most[key] = max(most, self._most.get(key, 0))

    @property
    def targets(self) -> Container[ScaleTarget]:
        """The workloads that are scaled."""
        return self._most

    def most_replicas(self, target: ScaleTarget, written: int | None) -> int | None:
        """The most replicas that the workload can have, as far as the input says; None: unknown."""
        return None if written is None else max(written, self._most.get(target, 0))
