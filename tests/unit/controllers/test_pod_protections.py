"""What protects pods, when that ends, and what is kept of pods that are gone."""

from datetime import timedelta
from types import MappingProxyType
from weakref import ref

from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodInterner
from dovetail.state.protections import PodProtections
from dovetail.state.store import Contents, StoredValue
from tests.harness.builders import at, pdb, pod

NOW = at("2026-03-01T00:00:00Z")


def test_a_kept_judgement_ends_at_its_instant() -> None:
    protected = pod(do_not_disrupt="1h", created="2026-03-01T00:00:00Z")
    by_annotations, _ = PodProtections().groups_of((protected,))
    end = NOW + timedelta(hours=1)
    assert by_annotations.judged(end - timedelta(microseconds=1)).keeps
    assert not by_annotations.judged(end).keeps


def test_nothing_is_kept_of_pods_that_nobody_asks_about_any_more() -> None:
    """While the budgets stay the same."""
    budgets: dict[tuple[str, str], StoredValue[PdbRecord]] = {
        ("default", "guard"): StoredValue("uid", "1", pdb(allowed=0))
    }
    alike, recorder = PodProtections(), PodInterner()
    alike.know(Contents(MappingProxyType(budgets)))
    labels = []
    for number in range(100):
        one = pod(labels={"job-name": f"job-{number}"}, recorder=recorder)
        (group,) = alike.groups_of((one,))
        assert not group.judged(NOW).when.contains(NOW)
        labels.append(ref(one.labels))
        del one, group
    assert sum(found() is not None for found in labels) == 0
