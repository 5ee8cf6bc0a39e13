"""The accounts of commands agree with what is measured from outside: the cost between two changes of the workloads."""

from datetime import timedelta

import pytest

from bench.plans import play


@pytest.mark.parametrize("seed", [2, 22])
def test_accounts_agree_with_the_cost_of_the_cluster(seed: int) -> None:
    figures = play(seed, timedelta(hours=12))
    assert figures.commands > 0
    assert figures.accounted == pytest.approx(figures.realised, abs=0.05 * figures.promised)
