"""The default spread constraints of the scheduler's profiles, with the selectors that kube-scheduler deduces."""

from dovetail import ports
from dovetail.api.pod_specs import TopologySpreadConstraint
from dovetail.scheduling.default_spread import DEFAULT_SCHEDULER, SchedulerProfiles, deduced_selector
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.scheduling.demand import Spread
from dovetail.sim.actors.watch import WatchCache
from dovetail.sim.actors.wire import REPLICASETS, STATEFULSETS, Kind, Raw
from dovetail.values.selector import Selector, make_selector

SERVICES: Kind = ports.SERVICES.read_as(dict)
_NAMESPACE = "namespace"


class DefaultSpreads:
    """What pods without constraints of their own get."""

    def __init__(self, world: ActorContext, profiles: SchedulerProfiles) -> None:
        self._profiles = profiles
        used = profiles.any_constraints
        self.services = world.store(SERVICES) if used else WatchCache()
        self.services.index(_NAMESPACE, wire.namespace_of)
        self._owners = {kind.kind: world.store(kind) for kind in (REPLICASETS, STATEFULSETS) if used}

    def serves(self, pod: Raw) -> bool:
        """Whether the scheduler has a profile for the pod."""
        name = _scheduler(pod)
        return name in self._profiles.by_name if self._profiles.by_name else name == DEFAULT_SCHEDULER

    def of(self, pod: Raw) -> tuple[Spread, ...] | None:
        """The constraints of the pod; None: kube-scheduler's own, which only affect scores."""
        profile = self._profiles.profile(_scheduler(pod))
        if profile is None or profile.system:
            return None
        selector = self._selector(pod) if profile.constraints else None
        return () if selector is None else tuple(_spread(constraint, selector) for constraint in profile.constraints)

    def _selector(self, pod: Raw) -> Selector | None:
        namespace, labels = wire.namespace_of(pod), wire.labels_of(pod)
        written = (service["spec"].get("selector") for service in self.services.under(_NAMESPACE, namespace).values())
        selectors = [make_selector(selector) for selector in written if selector]
        reference = wire.controller_of(pod) or {}
        owners = self._owners.get(str(reference.get("kind")))
        owner = None if owners is None else owners.get(f"{namespace}/{reference['name']}")
        selected = None if owner is None else wire.selector_of(owner["spec"].get("selector"))
        return deduced_selector([selector for selector in selectors if selector.matches(labels)], selected)


def _scheduler(pod: Raw) -> str:
    return str(pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER)


def _spread(constraint: TopologySpreadConstraint, selector: Selector) -> Spread:
    return Spread(
        key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        hard=constraint.when_unsatisfiable == "DoNotSchedule",
        selector=selector,
        honor_affinity=constraint.node_affinity_policy == "Honor",
        honor_taints=constraint.node_taints_policy == "Honor",
    )
