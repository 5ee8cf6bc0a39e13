"""Reads the YAML of the seed documents as the program reads files."""

from textwrap import dedent, indent
from typing import TypeVar

from dovetail.api import objects
from dovetail.api.documents import decode, read_documents
from dovetail.api.names import Reason
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.model.pool_records import PoolRecord, pool_record
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.rules.budgets import BUDGETED, PoolCounts, allowance, limit_at, read_budgets
from tests.harness.builders import at

T = TypeVar("T")
NODES = 100


def read(text: str, type_: type[T]) -> T:
    """The one object of a YAML text."""
    [document] = read_documents(dedent(text).encode(), "seed.yaml")
    return decode(document, type_)


def read_pod(text: str, created: str | None = None) -> PodRecord:
    """The pod of a YAML text, created at that instant."""
    return _created(read(text, objects.Pod), created)


def annotated_pod(text: str, created: str | None = None) -> PodRecord:
    """A pod with the metadata of a snippet that has nothing else."""
    return read_pod("apiVersion: v1\nkind: Pod\n" + dedent(text), created)


def templated_pod(template: objects.PodTemplate, created: str | None = None) -> PodRecord:
    """A pod that a workload has made of its template."""
    return _created(objects.Pod(metadata=template.metadata, spec=template.spec), created)


def _created(pod: objects.Pod, created: str | None) -> PodRecord:
    meta = pod.metadata
    stamped = objects.ObjectMeta(
        name=meta.name or "pod",
        labels=meta.labels,
        annotations=meta.annotations,
        creation_timestamp=None if created is None else at(created),
    )
    return PodInterner().pod(objects.Pod(metadata=stamped, spec=pod.spec, status=pod.status))


def read_pool(text: str) -> PoolRecord:
    return pool_record(read(text, objects.NodePool))


def pool_with_budgets(budgets: str) -> PoolRecord:
    """A pool around a snippet that begins with `budgets:`."""
    head = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: default\nspec:\n  disruption:\n"
    return read_pool(head + indent(dedent(budgets), "    "))


def limits(pool: PoolRecord, now: str, reading: BudgetSemantics = BudgetSemantics.SEED) -> dict[str, int]:
    """The limit for each reason in a pool of 100 nodes."""
    budgets = read_budgets(pool.budgets)
    return {reason.value: limit_at(budgets, reason, at(now), NODES, reading)[0] for reason in BUDGETED}


def allowed(pool: PoolRecord, reason: Reason, now: str, counts: PoolCounts) -> int:
    return allowance(read_budgets(pool.budgets), reason=reason, now=at(now), counts=counts).allowed
