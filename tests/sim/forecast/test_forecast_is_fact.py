"""What is foretold happens: random clusters, a forecast of each, and then the controller runs on."""

from datetime import timedelta
from random import Random

import pytest

from dovetail.views.assessment import assess
from dovetail.views.forecast.assembly import forecast
from dovetail.views.forecast.data import Certainty, ForecastEventType
from tests.harness.disruption import play
from tests.harness.provisioning import Setting
from tests.harness.soak import SOAK
from tests.sim.forecast.clusters import build
from tests.sim.forecast.facts import Tally, compare, dump

AT_ONCE = 50 if SOAK else 25  # in one test, so that they can be shared out
SCENARIOS = 1000 if SOAK else AT_ONCE
SPAN = timedelta(hours=2)


def foretell(seed: int, tally: Tally) -> None:
    async def scenario(setting: Setting) -> None:
        await build(setting, Random(seed))
        at = setting.now()
        await compare(setting, forecast(assess(dump(setting), at), at + SPAN), tally, f"seed {seed}")

    play(scenario, seed=seed)


@pytest.mark.parametrize("first", range(0, SCENARIOS, AT_ONCE))
def test_what_is_called_exact_happens_at_that_instant(first: int) -> None:
    tally = Tally()
    for seed in range(first, first + AT_ONCE):
        foretell(seed, tally)
    print(f"\n{AT_ONCE} scenarios of {SPAN}\n{tally}")
    wrong = [told for told in tally.wrong if told.startswith(Certainty.EXACT)]
    assert not wrong, "\n".join(wrong)
    exact = {type_: count for (type_, of), count in tally.foretold.items() if of is Certainty.EXACT}
    # That a node is disrupted is exact only if it is alone and nothing has to be placed: not every group has that.
    assert exact.keys() >= {"budget", *ForecastEventType} - {ForecastEventType.DISRUPTS}, (
        "some type of event is never exact"
    )
    assert sum(exact.values()) > 5 * AT_ONCE
