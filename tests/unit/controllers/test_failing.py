"""A controller that meets an error that nobody expects, while others run beside it."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.passes import PassController
from dovetail.observe.metrics import Metrics
from dovetail.ports import PODS
from dovetail.runtime.failures import RESTARTS, Failures
from dovetail.runtime.manager import Context, Controller, PartFailed
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.sim.actors.cluster import SimCluster
from tests.harness.running import run_controllers
from tests.harness.stage import PARAMETER, gives, stage
from tests.harness.termination import counted


class Keys(KeyedController[str]):
    """Fails for the keys that are bad, and works on the others every minute."""

    name = "keys"

    def __init__(self) -> None:
        super().__init__()
        self.bad = {"bad"}
        self.tried = Counter[str]()

    def keys(self) -> Iterable[str]:
        return ["bad", "good"]

    async def reconcile(self, key: str) -> Outcome:
        self.tried[key] += 1
        if key in self.bad:
            raise KeyError(key)
        return Done(60.0)


class Pass(PassController):
    """A pass every minute, which fails as long as it is bad."""

    name = "pass"

    def __init__(self) -> None:
        super().__init__()
        self.bad = True
        self.begun = self.made = 0
        self._due: datetime | None = None

    def begin(self, context: Context) -> None:
        self.begun += 1
        self._due = context.clock.now()

    def due(self, now: datetime) -> datetime | None:  # noqa: ARG002
        return self._due

    async def make_pass(self, context: Context, now: datetime) -> None:  # noqa: ARG002
        self._due = now + timedelta(minutes=1)
        if self.bad:
            raise KeyError("node")
        self.made += 1


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def minutely() -> Pass:
    return Pass()


@pytest.fixture
def failures() -> Failures:
    return Failures(tolerated=True)


@gives("sim")
def play(scenario: Any, failures: Failures | None = None, **controllers: Controller) -> None:
    run_controllers(lambda sim, _: scenario(sim), lambda _: [*controllers.values()], failures=failures)


pytestmark = stage(play)


@stage(failures=PARAMETER, keys=PARAMETER)
async def test_a_key_that_fails_is_tried_again_with_back_off_and_the_others_are_worked_on(
    sim: SimCluster, keys: Keys, failures: Failures
) -> None:
    metrics = Metrics(CollectorRegistry())
    keys.measure(metrics)
    await sim.run_for("10m")
    assert keys.tried["good"] == 10
    assert 10 < keys.tried["bad"] < 20  # 1, 2, 4 … 60 seconds apart
    assert failures.counts == {"keys": keys.tried["bad"]}
    assert counted(metrics.reconcile_errors, controller="keys") == keys.tried["bad"]
    keys.bad.clear()
    await sim.clock.sleep(RESTARTS.cap_seconds)
    before = keys.tried["bad"]
    await sim.run_for("10m")
    assert keys.tried["bad"] == before + 10
    assert failures.counts == {"keys": before - 1}


@stage(failures=PARAMETER, minutely=PARAMETER, keys=PARAMETER)
async def test_a_pass_that_fails_is_made_again_with_back_off_and_other_controllers_go_on(
    sim: SimCluster, minutely: Pass, keys: Keys, failures: Failures
) -> None:
    keys.bad.clear()
    await sim.run_for("10m")
    assert 10 < minutely.begun < 20  # 1, 2, 4 … 60 seconds apart
    assert failures.counts == {"pass": minutely.begun}
    assert keys.tried == {"good": 10, "bad": 10}
    minutely.bad = False
    await sim.run_for("10m")
    assert minutely.made >= 9
    assert failures.counts == {"pass": minutely.begun - 1}


@pytest.mark.parametrize("controller", [Keys(), Pass()], ids=["keys", "pass"])
def test_an_error_ends_the_run_where_failures_are_not_tolerated(controller: Keys | Pass) -> None:
    async def wait_for_ever(sim: SimCluster) -> None:
        await sim.wait_until(lambda: bool(sim.objects(PODS)))

    with pytest.raises(PartFailed, match=f"{controller.name} has failed: KeyError"):
        play(wait_for_ever, controller=controller)
