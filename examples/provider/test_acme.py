"""The provider of this folder, by the tests that come with Dovetail: `pytest test_acme.py`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from acme import AcmeCloud, AcmeProvider

from dovetail.api.objects import NodeClaim, ObjectMeta
from dovetail.ports import CloudError
from dovetail.providers.conformance import ProviderConformance, ProviderTrial


class AcmeTrial(ProviderTrial):
    """Acme's cloud, and how to make it fail."""

    def __init__(self) -> None:
        self.sdk = AcmeCloud("north")
        self.cloud: AcmeProvider = AcmeProvider(self.sdk)

    async def claim(self, name: str) -> NodeClaim:
        return NodeClaim(metadata=ObjectMeta(name=name, uid=f"uid-of-{name}"))

    def machines(self) -> int:
        return len(self.sdk.rented)

    async def lose_reply(self) -> None:
        self.sdk.failing.append(CloudError("no reply"))

    async def throttle_deletion(self) -> None:
        self.sdk.failing.append(CloudError("slow down", retry_after=0.01))

    async def exhaust(self) -> None:
        self.sdk.sold_out = True

    async def interrupt(self, provider_id: str) -> None:
        self.cloud.announce(provider_id)


class TestAcme(ProviderConformance):
    """All of Dovetail's tests for providers."""

    @asynccontextmanager
    async def trial(self) -> AsyncIterator[ProviderTrial]:
        yield AcmeTrial()
