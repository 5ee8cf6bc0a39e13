"""The simulated cloud: machines that outlive the controllers, and that fail on demand.

    async with SimCloud(cluster) as cloud:                  # a CloudProvider; Nodes appear by themselves
        cloud.delete_seconds = 300                          # from the deletion to the end of a machine
        cloud.next_launches(Launch(registers=False), times=2)
        cloud.next_deletions(CloudError("throttled"))
        cloud.exhaust(zone="test-zone-a", capacity_type="spot")
        cloud.vanish(provider_id)
        cloud.interrupt(provider_id, deadline=...)
        cloud.launched_for(uid), cloud.calls["create"]      # counts of launches and calls

Catalogue, choice and Nodes are kwok's, but a claim need not list instance types: most clouds choose by themselves. The
end of a machine stops its kubelet; its Node stays while it has a finalizer, since nothing else removes Nodes.
"""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

import msgspec

from dovetail.api import names, objects
from dovetail.model.instance_types import InstanceType, Offering, TypeCatalogue
from dovetail.planning.node.health import RepairPolicy
from dovetail.ports import (
    KWOK_NODECLASSES,
    CloudError,
    CloudProvider,
    Instance,
    InstanceGone,
    Interruption,
    NotFound,
    Resource,
)
from dovetail.providers.catalogue import built_in
from dovetail.providers.choosing import accepts, by_key, choose
from dovetail.providers.kwok.nodes import instance_of, name_in, node_body, registration_delay
from dovetail.providers.kwok.provider import REPAIR_POLICIES, launchable_class
from dovetail.providers.notices import Notices
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import NODES, deleting
from dovetail.values.duration import SECOND


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a launch goes."""

    error: CloudError | None = None
    after: bool = False  # the machine is launched, and only the answer is an error
    seconds: float | None = None  # until the answer; None: the cloud's launch_seconds
    registers: bool = True
    ready: bool = True  # whether its kubelet reports Ready, until `cluster.set_node_ready`


class CapacityShortage(msgspec.Struct, frozen=True, kw_only=True):
    """Offerings that cannot be launched; an empty text matches all."""

    type_: str = ""
    zone: str = ""
    capacity_type: str = ""

    def hits(self, type_: InstanceType, offering: Offering) -> bool:
        wanted = {names.ZONE_LABEL: self.zone, names.CAPACITY_TYPE_LABEL: self.capacity_type}
        offered = by_key(offering.requirements)
        return self.type_ in ("", type_.name) and all(
            not value or all(accepts(entry, value) for entry in offered.get(key, ())) for key, value in wanted.items()
        )


@dataclass
class Machine:
    """A machine, from its launch to long after its end."""

    instance: Instance
    answers_at: datetime  # when `create` returns
    registers_at: datetime | None  # None: never, or registered
    ready: bool
    ends_at: datetime | None = None  # None: it runs on
    deleting: bool = False
    node_name: str = ""  # of an adopted machine, whose Node may have any name

    @property
    def node(self) -> str:
        return self.node_name or name_in(self.instance.provider_id)

    def gone(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now

    def end_by(self, at: datetime) -> None:
        self.ends_at = at if self.ends_at is None else min(self.ends_at, at)


class SimCloud(CloudProvider):
    """The provider. `create` is idempotent by the claim's UID, even if the machine is gone."""

    name = "sim"
    node_classes = KWOK_NODECLASSES.read_as(objects.NodeClass)

    def __init__(
        self,
        cluster: SimCluster,
        *,
        types: Sequence[InstanceType] | None = None,
        node_classes: Resource[objects.NodeClass] | None = None,
        seed: int = 0,
        launch_seconds: float = 2.0,
        register_seconds: float = 30.0,
        register_spread_seconds: float = 0.0,
        delete_seconds: float = 30.0,
    ) -> None:
        if node_classes is not None:  # of another cloud
            self.node_classes = node_classes
        self.launch_seconds = launch_seconds
        self.register_seconds = register_seconds
        self.register_spread_seconds = register_spread_seconds  # at most so much longer, for each machine by chance
        self.delete_seconds = delete_seconds
        self.machines: dict[str, Machine] = {}  # by provider ID
        self.drift: dict[str, str] = {}  # reasons, by provider ID
        self.policies: Sequence[RepairPolicy] = REPAIR_POLICIES
        self.calls: Counter[str] = Counter()
        self._cluster = cluster
        self._api = cluster.server.client("cloud")
        self._types: Mapping[str, InstanceType] = {type_.name: type_ for type_ in types or built_in()}
        self._seed = seed
        self._by_claim: dict[str, Machine] = {}  # by the claim's UID
        self._launches: deque[Launch] = deque()
        self._deletions: deque[CloudError] = deque()
        self._shortages: list[CapacityShortage] = []
        self._catalogue_version = 0
        self._noticed: list[CapacityShortage] = []  # shortages that a launch has met: only these show in the catalogue
        self._notices = Notices()
        self._operations = _Operations(cluster.world.acting_as(self._api), self)

    async def __aenter__(self) -> "SimCloud":
        self._task = self._cluster.run_actor(self._operations)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    # -- the port -----------------------------------------------------------------------------------------------------

    async def create(self, claim: objects.NodeClaim) -> Instance:
        self.calls["create"] += 1
        plays_kwok = self.node_classes.kind == KWOK_NODECLASSES.kind
        node_class = await launchable_class(self._api, claim) if plays_kwok else None
        machine, failure = self._by_claim.get(claim.metadata.uid), None
        if machine is None:
            launch = self._launches.popleft() if self._launches else Launch()
            failure = launch.error
            if failure is not None and not launch.after:
                raise failure
            machine = self._launch(claim, node_class, launch)
        # The machine exists from now on, even if the caller does not live to get the answer.
        await self._wait_until(machine.answers_at)
        if failure is not None:
            raise failure
        return machine.instance

    async def delete(self, claim: objects.NodeClaim) -> None:
        self.calls["delete"] += 1
        if self._deletions:
            raise self._deletions.popleft()
        launched = self._by_claim.get(claim.metadata.uid)
        machine = self._existing(claim.status.provider_id or (launched.instance.provider_id if launched else ""))
        if not machine.deleting:
            machine.deleting = True
            self._end_by(machine, self._cluster.clock.now() + timedelta(seconds=self.delete_seconds))

    async def get(self, provider_id: str) -> Instance:
        self.calls["get"] += 1
        return _shown(self._existing(provider_id))

    async def list(self) -> Sequence[Instance]:
        self.calls["list"] += 1
        now = self._cluster.clock.now()
        return [_shown(self.machines[key]) for key in sorted(self.machines) if not self.machines[key].gone(now)]

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:  # noqa: ARG002
        self.calls["instance_types"] += 1
        return TypeCatalogue(self._catalogue_version, tuple(self._offered().values()))

    async def drift_reason(self, claim: objects.NodeClaim) -> str:
        self.calls["drift_reason"] += 1
        return self.drift.get(claim.status.provider_id, "")

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return self.policies

    def interruptions(self) -> AsyncGenerator[Interruption, None]:
        return self._notices.listen()

    def dealt_with(self, notice: Interruption) -> None:
        self._notices.dealt_with(notice)

    # -- for scenarios ------------------------------------------------------------------------------------------------

    def adopt(self, instance: Instance, *, node: str) -> None:
        """Add a machine of the start; without a Node it has yet to register."""
        now = self._cluster.clock.now()
        boots_at = None if node else now + timedelta(seconds=self.register_seconds)
        self._add(Machine(instance=instance, answers_at=now, registers_at=boots_at, ready=True, node_name=node))

    def launched_for(self, uid: str) -> int:
        """The number of machines that were ever launched for a claim."""
        return sum(machine.instance.claim_uid == uid for machine in self.machines.values())

    # -- faults -------------------------------------------------------------------------------------------------------

    def next_launches(self, launch: Launch, *, times: int = 1) -> None:
        """Define how the next launches go. A repeated create is no launch."""
        self._launches.extend([launch] * times)

    def next_deletions(self, error: CloudError, *, times: int = 1) -> None:
        """Let the next calls of delete fail."""
        self._deletions.extend([error] * times)

    def exhaust(self, type_: str = "", *, zone: str = "", capacity_type: str = "") -> None:
        """Make offerings unavailable. The catalogue shows it after a launch has met the shortage."""
        self._shortages.append(CapacityShortage(type_=type_, zone=zone, capacity_type=capacity_type))

    def restock(self) -> None:
        """Make all offerings available again."""
        self._shortages.clear()
        self._noticed.clear()
        self._catalogue_version += 1

    def vanish(self, provider_id: str) -> None:
        """End the machine at once, without a notice."""
        self._end_by(self.machines[provider_id], self._cluster.clock.now())

    def interrupt(
        self,
        provider_id: str,
        *,
        kind: str = "SpotInterruption",
        deadline: datetime | None = None,
        force: bool = False,
        act: bool = True,
    ) -> None:
        """Announce that the machine will be taken away; at the deadline, if there is one, it ends."""
        machine = self.machines[provider_id]
        self._notices.add(
            provider_id, Interruption(provider_id=provider_id, kind=kind, deadline=deadline, force=force, act=act)
        )
        if deadline is not None:
            self._end_by(machine, deadline)

    # -- machines -----------------------------------------------------------------------------------------------------

    def _launch(self, claim: objects.NodeClaim, node_class: objects.KWOKNodeClass | None, launch: Launch) -> Machine:
        type_, offering = self._choose(claim)
        wait = self.launch_seconds if launch.seconds is None else launch.seconds
        answers_at = self._cluster.clock.now() + timedelta(seconds=wait)
        chance = Random(f"{self._seed} {claim.metadata.name}").random()
        boots = self.register_seconds + chance * self.register_spread_seconds
        boot = timedelta(seconds=boots + registration_delay(node_class) / SECOND)
        machine = Machine(
            instance=instance_of(claim, type_, offering, provider=self.name),
            answers_at=answers_at,
            registers_at=answers_at + boot if launch.registers else None,
            ready=launch.ready,
        )
        self._add(machine)
        return machine

    def _add(self, machine: Machine) -> None:
        self.machines[machine.instance.provider_id] = machine
        self._by_claim[machine.instance.claim_uid] = machine
        self._operations.enqueue(machine.instance.provider_id)

    def _choose(self, claim: objects.NodeClaim) -> tuple[InstanceType, Offering]:
        """Choose as kwok does, but of all types if the claim lists none, and skip shortages that it meets."""
        while True:
            type_, offering = choose(claim, self._offered(), self._seed, like_kwok=False)
            met = [
                shortage
                for shortage in self._shortages
                if shortage not in self._noticed and shortage.hits(type_, offering)
            ]
            if not met:
                return type_, offering
            self._noticed += met
            self._catalogue_version += 1

    def _offered(self) -> Mapping[str, InstanceType]:
        if not self._noticed:
            return self._types
        return {name: self._without_shortages(type_) for name, type_ in self._types.items()}

    def _without_shortages(self, type_: InstanceType) -> InstanceType:
        offerings = tuple(
            msgspec.structs.replace(offering, available=False)
            if any(shortage.hits(type_, offering) for shortage in self._noticed)
            else offering
            for offering in type_.offerings
        )
        return msgspec.structs.replace(type_, offerings=offerings)

    def _existing(self, provider_id: str) -> Machine:
        machine = self.machines.get(provider_id)
        if machine is None or machine.gone(self._cluster.clock.now()):
            raise InstanceGone(f"there is no machine {provider_id!r}")
        return machine

    def _end_by(self, machine: Machine, at: datetime) -> None:
        machine.end_by(at)
        self._operations.enqueue(machine.instance.provider_id)

    async def _wait_until(self, at: datetime) -> None:
        seconds = (at - self._cluster.clock.now()).total_seconds()
        if seconds > 0:
            await self._cluster.clock.sleep(seconds)

    # -- the life of a machine ----------------------------------------------------------------------------------------

    async def tend(self, machine: Machine) -> datetime | None:
        """Register or end the machine if that is due, and return the next instant to do so."""
        now = self._cluster.clock.now()
        if machine.gone(now):
            self._cluster.kill_kubelet(machine.node)
            await self._remove_unheld_node(machine)
            return None
        if machine.registers_at is None or machine.deleting:
            return machine.ends_at
        if now < machine.registers_at:
            return min(machine.registers_at, machine.ends_at or machine.registers_at)
        if not machine.ready:
            self._cluster.set_node_ready(machine.node, ready=False)
        await self._operations.world.create(NODES, node_body(machine.instance))
        machine.registers_at = None
        return machine.ends_at

    async def _remove_unheld_node(self, machine: Machine) -> None:
        """Delete the Node of an unregistered machine: without our finalizer no controller removes it."""
        try:
            node = await self._api.get(NODES, machine.node)
        except NotFound:
            return
        if not node["metadata"].get("finalizers") and not deleting(node):
            await self._operations.world.delete(NODES, node)


class _Operations(Actor):
    """Registers Nodes and ends machines. Keys are provider IDs."""

    patient = False

    def __init__(self, world: ActorContext, cloud: SimCloud) -> None:
        super().__init__(world)
        self._cloud = cloud

    async def reconcile(self, key: str) -> None:
        next_at = await self._cloud.tend(self._cloud.machines[key])
        if next_at is not None:
            self.enqueue_at(key, next_at)


def _shown(machine: Machine) -> Instance:
    return msgspec.structs.replace(machine.instance, deleting=True) if machine.deleting else machine.instance
