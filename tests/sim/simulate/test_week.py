"""The week of the demo: every consolidation saves what it promised, and the summary says so.

`HYPOTHESIS_PROFILE=soak` plays all seven days.
"""

from datetime import UTC, datetime, timedelta
from importlib.resources import files

from dovetail.api.documents import read_documents
from dovetail.cli.common.output import Times
from dovetail.cli.text.simulate import report_lines
from dovetail.planning.disruption.commands import Command
from dovetail.rules.nodes import CONSOLIDATION
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario
from tests.harness.soak import SOAK

DAYS = 7 if SOAK else 2
WEEK = files("dovetail.sim.scenarios").joinpath("week.yaml").read_bytes()


def test_no_exchange_of_the_week_saves_nothing() -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    scenario = read_scenario(list(read_documents(WEEK, "week.yaml")), now=now, span=timedelta(days=DAYS))
    commands: dict[str, Command] = {}
    with Play(scenario) as play:
        while play.now < scenario.end:
            play.advance(min(play.now + timedelta(hours=1), scenario.end))
            past = (each.command for each in play.disruption.history if each.rejected is None)
            commands |= {each.id: each for each in past if each.reason in CONSOLIDATION}
        accounts, report = list(play.disruption.accounts.closed), play.report()
    assert not report.violations
    assert all(each.savings is not None and each.savings > 0 for each in commands.values())
    assert len(accounts) >= DAYS
    assert all(each.realised == each.promised > 0 for each in accounts if not each.is_given_up)
    saved = report.consolidation
    assert saved is not None
    assert (saved.unplanned, saved.moved_in_vain) == (0, 0)
    assert 0 < saved.realised == saved.promised
    told = f"{saved.realised:.3f} of the promised {saved.promised:.3f} per hour, by {saved.commands} consolidations"
    assert any(told in line for line in report_lines(report, Times(now, UTC), verbose=False, quiet=True))
