"""What every provider must do, as tests that the author of a provider can run with pytest.

    class TestAcme(ProviderConformance):
        @asynccontextmanager
        async def trial(self) -> AsyncIterator[ProviderTrial]:
            yield AcmeTrial()

`ProviderTrial` is the provider on a fresh cloud, and the hands that make this cloud fail. `docs/write-a-provider.md`
shows a whole example.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final

import msgspec

from dovetail.api import objects
from dovetail.api.objects import NodeClaim
from dovetail.ports import (
    CloudError,
    CloudProvider,
    Instance,
    InstanceGone,
    InsufficientCapacity,
    Interruption,
    NodeClassNotReady,
)

LISTED_WITHIN_SECONDS: Final = 30.0
CALLS_AT_MOST: Final = 100
_GIVES_UP: Final = (InsufficientCapacity, NodeClassNotReady, InstanceGone)


class NotPossible(Exception):
    """The cloud of the trial cannot fail in this way: the test has nothing to check."""


class ProviderTrial(ABC):
    """A provider on a fresh cloud. A fault that the cloud cannot have raises NotPossible, which is the default."""

    cloud: CloudProvider

    @abstractmethod
    async def claim(self, name: str) -> NodeClaim:
        """A new NodeClaim with a UID, which the cloud can launch."""

    @abstractmethod
    def machines(self) -> int:
        """The number of machines that the cloud runs, and somebody pays for."""

    async def launched(self, claim: NodeClaim, instance: Instance) -> NodeClaim:
        """The claim after a launch, as the controller writes it."""
        status = msgspec.structs.replace(claim.status, provider_id=instance.provider_id)
        return msgspec.structs.replace(claim, status=status)

    async def wait(self, seconds: float) -> None:
        """Let time pass: the clock of the cloud, if it has one, or the real one."""
        await asyncio.sleep(seconds)

    async def lose_reply(self) -> None:
        """The next `create` launches a machine and raises CloudError: the reply is lost."""
        raise NotPossible

    async def throttle(self) -> None:
        """The next `create` is refused because there were too many."""
        raise NotPossible

    async def throttle_deletion(self) -> None:
        """The next `delete` is refused because there were too many."""
        raise NotPossible

    async def exhaust(self) -> None:
        """The cloud runs out of all machines that `claim` asks for."""
        raise NotPossible

    async def break_class(self) -> None:
        """The node class of `claim` is not ready."""
        raise NotPossible

    async def interrupt(self, provider_id: str) -> None:  # noqa: ARG002
        """The cloud announces that it takes the machine away."""
        raise NotPossible


TrialScenario = Callable[[ProviderTrial], Awaitable[None]]


class ProviderConformance(ABC):
    """The tests. Inherit from it, and implement `trial`."""

    @abstractmethod
    def trial(self) -> AbstractAsyncContextManager[ProviderTrial]:
        """A fresh cloud."""

    def play(self, scenario: TrialScenario) -> None:
        """Runs a test on a fresh cloud. Override it to run on another event loop."""

        async def on_fresh_cloud() -> None:
            async with self.trial() as trial:
                await scenario(trial)

        try:
            asyncio.run(on_fresh_cloud())
        except NotPossible:
            return

    # -- launches -----------------------------------------------------------------------------------------------------

    def test_a_launch_names_machine_and_claim(self) -> None:
        self.play(_launch_names_machine_and_claim)

    def test_one_claim_is_one_machine(self) -> None:
        self.play(_one_claim_is_one_machine)

    def test_a_lost_reply_is_one_machine(self) -> None:
        self.play(_lost_reply_is_one_machine)

    def test_a_machine_is_listed_in_time(self) -> None:
        self.play(_machine_is_listed)

    def test_throttling_is_not_a_lack_of_machines(self) -> None:
        self.play(_throttling_is_retried)

    def test_a_lack_of_machines_gives_the_claim_up_and_shows_in_the_catalogue(self) -> None:
        self.play(_shortage_is_shown)

    def test_a_class_that_is_not_ready_gives_the_claim_up(self) -> None:
        self.play(_class_is_not_ready)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def test_what_is_not_there_is_gone(self) -> None:
        self.play(_unknown_is_gone)

    def test_a_deletion_is_repeated_until_gone(self) -> None:
        self.play(_deletion_ends_in_gone)

    def test_a_throttled_deletion_is_repeated(self) -> None:
        self.play(_throttled_deletion)

    # -- other answers ------------------------------------------------------------------------------------------------

    def test_instance_types_are_whole_and_versioned(self) -> None:
        self.play(_types_are_whole)

    def test_a_notice_is_told_until_it_is_dealt_with(self) -> None:
        self.play(_notice_is_repeated)


async def _launch(trial: ProviderTrial, name: str = "one") -> NodeClaim:
    claim = await trial.claim(name)
    return await trial.launched(claim, await trial.cloud.create(claim))


async def _refusal(trial: ProviderTrial, claim: NodeClaim) -> CloudError | None:
    """The error of a launch; None: it succeeded."""
    try:
        await trial.cloud.create(claim)
    except CloudError as error:
        return error
    return None


async def _launch_names_machine_and_claim(trial: ProviderTrial) -> None:
    claim = await trial.claim("one")
    instance = await trial.cloud.create(claim)
    assert instance.provider_id, "a machine has a provider ID"
    assert instance.claim_uid == claim.metadata.uid, "a machine names its claim, so that no machine is lost"
    assert instance.claim_name in ("", claim.metadata.name)
    assert instance.allocatable, "the machine says what pods can use"
    other = await trial.cloud.create(await trial.claim("two"))
    assert other.provider_id != instance.provider_id, "two claims are two machines"


async def _one_claim_is_one_machine(trial: ProviderTrial) -> None:
    claim = await trial.claim("one")
    first, second = await trial.cloud.create(claim), await trial.cloud.create(claim)
    assert first.provider_id == second.provider_id, "the UID of the claim makes create idempotent"
    await _come(trial, await trial.launched(claim, first))
    again = await trial.cloud.create(claim)
    assert again.provider_id == first.provider_id
    assert trial.machines() == 1


async def _lost_reply_is_one_machine(trial: ProviderTrial) -> None:
    await trial.lose_reply()
    claim = await trial.claim("one")
    error = await _refusal(trial, claim)
    assert error is not None, "a lost reply is a CloudError"
    assert not isinstance(error, _GIVES_UP), f"a lost reply must be retried, not {type(error).__name__}"
    instance = await trial.cloud.create(claim)
    await _come(trial, await trial.launched(claim, instance))
    assert trial.machines() == 1, "the retry finds the machine of the first attempt"


async def _come(trial: ProviderTrial, claim: NodeClaim) -> Instance:
    """Waits until the machine is listed."""
    waited = 0.0
    while True:
        listed = {instance.provider_id: instance for instance in await trial.cloud.list()}
        if claim.status.provider_id in listed:
            return listed[claim.status.provider_id]
        assert waited < LISTED_WITHIN_SECONDS, f"{claim.status.provider_id} is not listed"
        await trial.wait(1.0)
        waited += 1.0


async def _machine_is_listed(trial: ProviderTrial) -> None:
    claim = await _launch(trial)
    listed = await _come(trial, claim)
    assert listed.claim_uid == claim.metadata.uid
    assert not listed.deleting
    assert (await trial.cloud.get(claim.status.provider_id)).provider_id == claim.status.provider_id


async def _throttling_is_retried(trial: ProviderTrial) -> None:
    await trial.throttle()
    claim = await trial.claim("one")
    error = await _refusal(trial, claim)
    assert not isinstance(error, _GIVES_UP), f"throttling is not {type(error).__name__}: the claim would be lost"
    await trial.cloud.create(claim)


async def _shortage_is_shown(trial: ProviderTrial) -> None:
    before = await trial.cloud.instance_types(objects.NodePool())
    await trial.exhaust()
    error = await _refusal(trial, await trial.claim("one"))
    assert isinstance(error, InsufficientCapacity), "without machines, create raises InsufficientCapacity"
    after = await trial.cloud.instance_types(objects.NodePool())
    unavailable = [offer for type_ in after.types for offer in type_.offerings if not offer.available]
    assert unavailable, "an offering that ran out is not available in the catalogue"
    assert after.version != before.version, "a changed catalogue has another version"


async def _class_is_not_ready(trial: ProviderTrial) -> None:
    claim = await trial.claim("one")
    await trial.break_class()
    error = await _refusal(trial, claim)
    assert isinstance(error, NodeClassNotReady), "with a class that is not ready, create raises NodeClassNotReady"


async def _gone(work: Awaitable[object]) -> bool:
    try:
        await work
    except InstanceGone:
        return True
    return False


async def _unknown_is_gone(trial: ProviderTrial) -> None:
    for provider_id in ("", "nobody://knows"):
        assert await _gone(trial.cloud.get(provider_id)), f"{provider_id!r} is gone"
    assert await _gone(trial.cloud.delete(await trial.claim("one"))), "a claim without a machine is gone"


async def _end(trial: ProviderTrial, claim: NodeClaim) -> None:
    for _ in range(CALLS_AT_MOST):
        try:
            await trial.cloud.delete(claim)
        except InstanceGone:
            return
        except CloudError as error:
            await trial.wait(error.retry_after)
        await trial.wait(1.0)
    raise AssertionError("delete is repeated until it raises InstanceGone, and it never does")


async def _deletion_ends_in_gone(trial: ProviderTrial) -> None:
    claim = await _launch(trial)
    await _come(trial, claim)
    await _end(trial, claim)
    assert await _gone(trial.cloud.delete(claim)), "delete can be repeated after the end"
    assert trial.machines() == 0
    assert all(listed.deleting for listed in await trial.cloud.list() if listed.provider_id == claim.status.provider_id)


async def _throttled_deletion(trial: ProviderTrial) -> None:
    claim = await _launch(trial)
    await _come(trial, claim)
    await trial.throttle_deletion()
    try:
        await trial.cloud.delete(claim)
    except InstanceGone:
        raise AssertionError("a refused deletion is not the end of the machine") from None
    except CloudError:
        pass
    await _end(trial, claim)
    assert trial.machines() == 0


async def _types_are_whole(trial: ProviderTrial) -> None:
    pool = objects.NodePool()
    listed, again = await trial.cloud.instance_types(pool), await trial.cloud.instance_types(pool)
    assert listed.types, "a provider has instance types"
    assert len({type_.name for type_ in listed.types}) == len(listed.types), "names of types are unique"
    assert all(type_.offerings for type_ in listed.types), "a type has offerings"
    assert listed.version != again.version or list(listed.types) == list(again.types), "one version is one content"


async def _notice_is_repeated(trial: ProviderTrial) -> None:
    claim = await _launch(trial)
    await _come(trial, claim)
    await trial.interrupt(claim.status.provider_id)
    notice = await _next_notice(trial)
    assert notice.provider_id == claim.status.provider_id
    assert (await _next_notice(trial)) == notice, "a new listener hears what nobody has dealt with"
    trial.cloud.dealt_with(notice)


async def _next_notice(trial: ProviderTrial) -> Interruption:
    notices = trial.cloud.interruptions()
    async with asyncio.timeout(60), aclosing(notices):  # type: ignore[type-var]
        return await anext(notices)
