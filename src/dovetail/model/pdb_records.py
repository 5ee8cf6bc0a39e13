"""Records of PodDisruptionBudgets: the fields that decisions read."""

from dovetail.api import objects
from dovetail.model.record_fields import Record
from dovetail.model.refs import Ref
from dovetail.values.selector import Selector, SelectorError, make_selector


class PdbRecord(Record, frozen=True):
    namespace: str
    name: str
    selector: Selector | None
    selector_problem: str | None
    min_available: int | str | None
    max_unavailable: int | str | None
    always_allow: bool
    disruptions_allowed: int | None
    expected_pods: int | None
    current_healthy: int | None
    desired_healthy: int | None

    @property
    def object(self) -> Ref:
        return Ref("PodDisruptionBudget", self.namespace, self.name)


def pdb_record(pdb: objects.PodDisruptionBudget) -> PdbRecord:
    spec = pdb.spec
    selector, problem = None, None
    if spec.selector is not None:
        expressions = [(entry.key, entry.operator, entry.values) for entry in spec.selector.match_expressions]
        try:
            selector = make_selector(spec.selector.match_labels, expressions)
        except SelectorError as error:
            problem = str(error)
    return PdbRecord(
        namespace=pdb.metadata.namespace or "default",
        name=pdb.metadata.name,
        selector=selector,
        selector_problem=problem,
        min_available=spec.min_available,
        max_unavailable=spec.max_unavailable,
        always_allow=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        disruptions_allowed=pdb.status.disruptions_allowed,
        expected_pods=pdb.status.expected_pods,
        current_healthy=pdb.status.current_healthy,
        desired_healthy=pdb.status.desired_healthy,
    )
