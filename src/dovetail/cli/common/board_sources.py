"""The source of `top` and `dashboard` for a dump."""

from datetime import datetime

from dovetail.cli.common.contexts import cluster_title
from dovetail.cli.common.dump_age import old_dump
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.replacements import found_replacements
from dovetail.cli.common.sources import ClusterInput
from dovetail.runtime.clock import SystemClock
from dovetail.views.assessment import assess
from dovetail.web.sources import FileSource


def dumped(source: ClusterSource, read: ClusterInput, at: datetime | None) -> FileSource:
    """The cluster that was read; with `at`, time stands still there."""
    clock = SystemClock()
    now = clock.now() if at is None else at
    plain = assess(read.snapshot, now)
    replacements = found_replacements(plain, read, source)
    return FileSource(
        read.snapshot,
        clock,
        title=cluster_title(source),
        asking=source.asking(at),
        at=at,
        problems=[*read.problems, *old_dump(read.snapshot, now)],
        replacements=replacements,
        assessed=plain,
    )
