"""What the provider said of each NodePool: when it is asked again, and what is kept of its answers."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from dovetail.api import objects
from dovetail.controllers.base.instance_types import ASKING_SECONDS
from dovetail.model.instance_types import TypeCatalogue
from dovetail.ports import NODEPOOLS, CloudError
from dovetail.sim.loop.virtual_loop import VirtualClock
from tests.harness.claims import node_class
from tests.harness.placing import TYPES, Catalogue, Scene, a_pool, play
from tests.harness.stage import stage
from tests.unit.state.world import World

pytestmark = stage(play)

POOLS = NODEPOOLS.plural
KEEP = 300.0


def a_pool_of(world: World, name: str = "a", *, generation: int = 1, class_: str = "default") -> objects.NodePool:
    """Put it into the store."""
    reference = {"group": "example.com", "kind": "Machine", "name": class_}
    spec = {"template": {"spec": {"nodeClassRef": reference}}}
    world.feed((POOLS, {"metadata": {"name": name, "generation": generation}, "spec": spec}))
    found = world.state.pools.value(name)
    assert found is not None
    return found


def is_due(world: World, pool: objects.NodePool, at: float = 0.0) -> bool:
    return world.state.instance_types.is_due(pool, at=at, keep_seconds=KEEP)


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_an_answer_is_kept_for_its_time_and_for_this_generation() -> None:
    world = World()
    pool, types = a_pool_of(world), world.state.instance_types
    assert is_due(world, pool)
    types.answered(pool, TYPES, at=0.0)
    assert not is_due(world, pool, KEEP - 1)
    assert is_due(world, pool, KEEP)
    assert is_due(world, a_pool_of(world, generation=2))


def test_a_pool_that_is_created_again_is_due() -> None:
    world = World()
    pool, types = a_pool_of(world), world.state.instance_types
    types.answered(pool, TYPES, at=0.0)
    world.state.apply(POOLS, *world.delete(POOLS, ("", "a")))
    assert types.of("a").flaw == "its instance types have not been looked up yet"
    assert is_due(world, a_pool_of(world))


def test_a_change_of_its_node_class_makes_an_answer_stale() -> None:
    world = World()
    types = world.state.instance_types
    pools = [a_pool_of(world, "a"), a_pool_of(world, "b", class_="other")]
    for pool in pools:
        types.answered(pool, TYPES, at=0.0)
    world.feed(("machines", {"metadata": {"name": "other"}}))
    assert [is_due(world, pool) for pool in pools] == [False, True]
    types.asking(pools[1])
    assert not is_due(world, pools[1])
    world.feed(("machines", {"metadata": {"name": "other", "generation": 2}}))  # while the provider is asked
    types.answered(pools[1], TYPES, at=1.0)
    assert is_due(world, pools[1], 1.0)


def test_a_failure_keeps_the_prices_and_nothing_else() -> None:
    world = World()
    pool, types = a_pool_of(world), world.state.instance_types
    types.answered(pool, TYPES, at=0.0)
    prices = types.of("a").prices
    assert prices
    types.failed(pool, "cannot be looked up: throttled", at=1.0)
    answer = types.of("a")
    assert (answer.types, answer.source, answer.by_name) == ((), (), {})
    assert answer.flaw == "its instance types cannot be looked up: throttled"
    assert answer.prices is prices
    assert is_due(world, pool, 1.0)


def test_the_version_changes_if_and_only_if_the_answer_does() -> None:
    world = World()
    pool, types = a_pool_of(world), world.state.instance_types
    versions = [types.version]

    def note() -> bool:
        versions.append(types.version)
        return versions[-1] != versions[-2]

    types.answered(pool, TYPES, at=0.0)
    assert note()
    first = types.of("a").types
    types.answered(pool, [msgspec.structs.replace(each) for each in TYPES], at=1.0)  # an equal list
    assert not note()
    assert types.of("a").types is first
    types.failed(pool, "why", at=2.0)
    assert note()
    types.failed(pool, "why", at=3.0)
    assert not note()
    types.answered(pool, TYPES[:1], at=4.0)
    assert note()
    world.state.apply(POOLS, *world.delete(POOLS, ("", "a")))
    assert note()


def test_pools_share_what_was_read_of_one_list() -> None:
    world = World()
    types = world.state.instance_types
    for name in "ab":
        types.answered(a_pool_of(world, name), TYPES, at=0.0)
    assert types.of("a").types is types.of("b").types


def test_nothing_is_kept_of_a_pool_that_was_deleted_while_the_provider_was_asked() -> None:
    world = World()
    types = world.state.instance_types
    answers: list[Callable[[objects.NodePool], None]] = [
        lambda pool: types.answered(pool, TYPES, at=0.0),
        lambda pool: types.failed(pool, "why", at=0.0),
    ]
    for answer in answers:
        pool = a_pool_of(world)
        types.asking(pool)
        world.state.apply(POOLS, *world.delete(POOLS, ("", "a")))
        answer(pool)
        assert not types._answers


# -- asking -----------------------------------------------------------------------------------------------------------


class Slow(Catalogue):
    """Answers after some time, or not at all."""

    def __init__(self, world: Scene, *, seconds: float = 1.0, error: Exception | None = None) -> None:
        super().__init__(world.server)
        self.clock: VirtualClock = world.clock
        self.seconds, self.error = seconds, error
        world.types._provider = self

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:
        self.asked.append(pool.metadata.name)
        await self.clock.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return TypeCatalogue(0, TYPES)


def the_pool(world: Scene, name: str = "a") -> objects.NodePool:
    found = world.cluster.pools.value(name)
    assert found is not None
    return found


@pytest.mark.parametrize("error", [None, CloudError("throttled")], ids=["answered", "failed"])
async def test_callers_who_come_together_ask_once(world: Scene, error: CloudError | None) -> None:
    await world.put(a_pool("a"), a_pool("b"))
    provider = Slow(world, error=error)
    pools = [the_pool(world, name) for name in "ab"]
    asked = [world.types.of(pool) for pool in pools]
    await asyncio.gather(*(world.types.refresh(pools) for _ in range(3)), *asked, return_exceptions=True)
    assert sorted(provider.asked) == ["a", "b"]
    assert bool(world.cluster.instance_types.of("a").flaw) is (error is not None)


async def test_a_provider_that_does_not_answer_is_waited_for_once_by_all(world: Scene) -> None:
    await world.put(a_pool("a"))
    provider = Slow(world, seconds=10**6)
    began = world.clock.monotonic()
    await asyncio.gather(*(world.types.refresh([the_pool(world)]) for _ in range(3)))
    assert world.clock.monotonic() - began == pytest.approx(ASKING_SECONDS)
    assert provider.asked == ["a"]
    flaw = "its instance types cannot be looked up: no answer within 60 s"
    assert world.cluster.instance_types.of("a").flaw == flaw
    await world.types.refresh([the_pool(world)])  # whoever comes later asks again
    assert provider.asked == ["a", "a"]


async def test_what_is_stale_is_asked_again_after_an_unexpected_error(world: Scene) -> None:
    await world.put(node_class(), a_pool("a"))
    await world.refresh()
    await world.put(node_class(metadata={"name": "default", "labels": {"changed": "yes"}}))
    provider = Slow(world, error=RuntimeError("a mistake in the provider"))
    with pytest.raises(ExceptionGroup):
        await world.types.refresh([the_pool(world)])
    provider.error = None
    await world.types.refresh([the_pool(world)])
    assert provider.asked == ["a", "a"]


async def test_a_pool_that_is_deleted_while_the_provider_is_asked_leaves_nothing(world: Scene) -> None:
    await world.put(a_pool("a"))
    Slow(world, seconds=5)
    asking = asyncio.ensure_future(world.types.refresh([the_pool(world)]))
    await world.told()
    await world.delete(NODEPOOLS, "a")
    await asking
    assert not world.cluster.instance_types._answers
    assert not world.types._asking
