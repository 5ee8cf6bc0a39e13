"""What the options of `dovetail run` mean for provisioning."""

from datetime import timedelta

from dovetail.cli.run.assembly import provisioning
from dovetail.runtime.compute import ThreadCompute
from tests.unit.cli.test_run import told


def test_defaults() -> None:
    found = provisioning(told())
    assert isinstance(found.compute, ThreadCompute)
    assert (found.batch_idle, found.batch_longest) == (timedelta(seconds=1), timedelta(seconds=10))
    assert (found.options.respect_preferences, found.options.strict_min_values) == (True, True)


def test_what_is_told_counts() -> None:
    found = provisioning(
        told(
            "--batch-idle-duration=500ms",
            "--preference-policy=Ignore",
            BATCH_MAX_DURATION="1m",
            MIN_VALUES_POLICY="BestEffort",
        )
    )
    assert (found.batch_idle, found.batch_longest) == (timedelta(milliseconds=500), timedelta(minutes=1))
    assert (found.options.respect_preferences, found.options.strict_min_values) == (False, False)
