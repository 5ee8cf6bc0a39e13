"""Finds the pod or pod template in an object, and the number of its pods."""

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.api import objects
from dovetail.api.documents import Document, decode
from dovetail.model.pod_records import DEFAULT_GRACE_SECONDS
from dovetail.views.findings.pods import Template

_SCALED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})


class _PodTemplateObject(objects.Wire, frozen=True):
    metadata: objects.ObjectMeta = objects.ObjectMeta()
    template: objects.PodTemplate = objects.PodTemplate()


class PodSource(NamedTuple):
    """A pod, or a template of pods."""

    template: Template
    spec: objects.PodSpec
    spec_path: str
    around: tuple[tuple[str, Mapping[str, str]], ...] = ()  # paths and annotations outside the pod template
    replicas: int | None = None  # None: unknown
    owned: bool = False  # another object makes and counts it
    finished: bool = False
    runs: bool = True

    @property
    def grace_seconds(self) -> int:
        grace = self.spec.termination_grace_period_seconds
        return DEFAULT_GRACE_SECONDS if grace is None else max(0, grace)

    @property
    def grace_field(self) -> str:
        return f"{self.spec_path}.terminationGracePeriodSeconds"


def pod_source(document: Document) -> PodSource:
    """Read an object of a kind with pods. Raises InputError."""
    match document.kind:
        case "Pod":
            pod = decode(document, objects.Pod)
            return PodSource(
                _template("metadata", pod.metadata),
                pod.spec,
                "spec",
                replicas=1,
                owned=bool(pod.metadata.owner_references),
                finished=pod.status.phase in {"Succeeded", "Failed"},
            )
        case "PodTemplate":
            holder = decode(document, _PodTemplateObject)
            return _source("template", holder.template, ("metadata", holder.metadata.annotations))._replace(runs=False)
        case "CronJob":
            cron_job = decode(document, objects.CronJob)
            job = cron_job.spec.job_template
            return _source(
                "spec.jobTemplate.spec.template",
                job.spec.template,
                ("metadata", cron_job.metadata.annotations),
                ("spec.jobTemplate.metadata", job.metadata.annotations),
            )
    workload = decode(document, objects.Workload)
    source = _source("spec.template", workload.spec.template, ("metadata", workload.metadata.annotations))
    replicas = 1 if workload.spec.replicas is None else workload.spec.replicas
    return source._replace(
        replicas=replicas if document.kind in _SCALED else None, owned=bool(workload.metadata.owner_references)
    )


def _source(path: str, template: objects.PodTemplate, *around: tuple[str, Mapping[str, str]]) -> PodSource:
    return PodSource(_template(f"{path}.metadata", template.metadata), template.spec, f"{path}.spec", around)


def _template(path: str, meta: objects.ObjectMeta) -> Template:
    return Template(path, meta.annotations, meta.labels)
