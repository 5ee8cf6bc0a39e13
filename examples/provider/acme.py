"""A provider for an imaginary cloud, as small as possible. See docs/write-a-provider.md."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from dovetail.api import names, objects
from dovetail.api.manifests.rbac import Grant
from dovetail.model.instance_types import InstanceType, Offering, TypeCatalogue
from dovetail.planning.node.health import RepairPolicy
from dovetail.ports import (
    CloudError,
    CloudProvider,
    Instance,
    InstanceGone,
    InsufficientCapacity,
    Interruption,
    Resource,
)
from dovetail.providers.bundle import ProviderSetup, StartedProvider
from dovetail.providers.notices import Notices

NODE_CLASSES = Resource("acme.example", "v1", "acmenodeclasses", "AcmeNodeClass", objects.NodeClass)
RACK = "acme.example/rack"

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: acmenodeclasses.acme.example
spec:
  group: acme.example
  names: {kind: AcmeNodeClass, listKind: AcmeNodeClassList, plural: acmenodeclasses, singular: acmenodeclass}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
"""


class AcmeCloud:
    """Acme's SDK; here a dictionary."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.rented: dict[str, str] = {}  # the machine of each claim, by UID
        self.sold_out = False
        self.failing: list[CloudError] = []  # errors of the next calls, after they took effect


class AcmeProvider(CloudProvider):
    """Translates the port to calls of the SDK."""

    name = "acme"
    node_classes = NODE_CLASSES

    def __init__(self, cloud: AcmeCloud) -> None:
        self._cloud = cloud
        self._notices = Notices()

    async def create(self, claim: objects.NodeClaim) -> Instance:
        uid = claim.metadata.uid
        if uid not in self._cloud.rented:  # the UID is the idempotency token
            if self._cloud.sold_out:
                raise InsufficientCapacity("acme is sold out")
            self._cloud.rented[uid] = f"acme:///{self._cloud.region}/{uid}"
        if self._cloud.failing:
            raise self._cloud.failing.pop()
        return self._instance(uid)

    async def delete(self, claim: objects.NodeClaim) -> None:
        if self._cloud.failing:
            raise self._cloud.failing.pop()
        self._cloud.rented.pop(claim.metadata.uid, None)
        raise InstanceGone(f"{claim.metadata.name} has no machine")

    async def get(self, provider_id: str) -> Instance:
        for uid, known in self._cloud.rented.items():
            if known == provider_id:
                return self._instance(uid)
        raise InstanceGone(f"{provider_id!r} is no machine of acme's")

    async def list(self) -> Sequence[Instance]:
        return [self._instance(uid) for uid in self._cloud.rented]

    def _instance(self, uid: str) -> Instance:
        return Instance(
            provider_id=self._cloud.rented[uid],
            claim_uid=uid,
            labels={names.INSTANCE_TYPE_LABEL: "anvil", names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "on-demand"},
            capacity={"cpu": "4", "memory": "16Gi", "pods": "110"},
            allocatable={"cpu": "3900m", "memory": "15Gi", "pods": "110"},
        )

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:  # noqa: ARG002
        requirements = tuple(
            objects.NodeSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in {
                names.INSTANCE_TYPE_LABEL: "anvil",
                names.ZONE_LABEL: "a",
                names.CAPACITY_TYPE_LABEL: "on-demand",
                names.ARCH_LABEL: "amd64",
                names.OS_LABEL: "linux",
                RACK: "1",
            }.items()
        )
        offering = Offering(requirements=requirements[1:3], price=0.2, available=not self._cloud.sold_out)
        capacity = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        anvil = InstanceType(name="anvil", requirements=requirements, offerings=(offering,), capacity=capacity)
        return TypeCatalogue(int(self._cloud.sold_out), (anvil,))

    async def drift_reason(self, claim: objects.NodeClaim) -> str:  # noqa: ARG002
        return ""

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return [RepairPolicy(condition="Ready", status="False", toleration_seconds=600)]

    def announce(self, provider_id: str) -> None:
        self._notices.add(provider_id, Interruption(provider_id=provider_id, kind="Maintenance"))

    def interruptions(self) -> AsyncIterator[Interruption]:
        return self._notices.listen()

    def dealt_with(self, notice: Interruption) -> None:
        self._notices.dealt_with(notice)


class AcmeBundle:
    """What `--provider acme` adds to the program."""

    name = "acme"
    node_classes = NODE_CLASSES
    well_known_labels = frozenset({RACK})
    options: Sequence[click.Option] = (
        click.Option(["--acme-region"], envvar="ACME_REGION", default="north", help="Where acme rents machines."),
    )

    def crds(self) -> Sequence[str]:
        return [CRD]

    def rules(self) -> Sequence[Grant]:
        return [Grant("acme.example", ("acmenodeclasses",), ("get", "list", "watch"))]

    @asynccontextmanager
    async def started(self, setup: ProviderSetup) -> AsyncIterator[StartedProvider]:
        settings: Any = setup.settings
        yield StartedProvider(AcmeProvider(AcmeCloud(settings["acme_region"])))


BUNDLE = AcmeBundle()
