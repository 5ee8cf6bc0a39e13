"""What scenario files say, and what is said of bad ones: one line with file, document and field."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail.api.documents import InputError, read_documents
from dovetail.sim.scenarios.reading import Scenario, read_scenario, read_span

NOW = datetime(2026, 3, 6, 16, 20, 7, tzinfo=UTC)
HEAD = "apiVersion: dovetail.dev/v1alpha1\nkind: Scenario\n"
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: 2026-03-06T16:30:00Z}\nspec: {containers: []}\n"
)


def read(text: str, **given: object) -> Scenario:
    return read_scenario(read_documents(text.encode(), "week.yaml"), now=NOW, **given)  # type: ignore[arg-type]


def test_everything_has_a_default() -> None:
    found = read("")
    assert (found.start, found.span, found.seed) == (datetime(2026, 3, 6, 16, tzinfo=UTC), timedelta(days=7), 0)


def test_a_dump_never_starts_before_its_youngest_object() -> None:
    assert read(POD).start == datetime(2026, 3, 6, 16, 30, tzinfo=UTC)


def test_a_live_cluster_starts_now() -> None:
    assert read("", live=True).start == NOW


def test_what_the_command_line_says_stands_over_the_file() -> None:
    text = HEAD + "start: 2026-03-02T00:00:00Z\nfor: 7d\nseed: 3\n"
    found = read(text, start=NOW, span=timedelta(hours=5), seed=9)
    assert (found.start, found.span, found.seed) == (NOW, timedelta(hours=5), 9)
    found = read(text)
    assert (found.start, found.span, found.seed) == (datetime(2026, 3, 2, tzinfo=UTC), timedelta(days=7), 3)


def test_events() -> None:
    found = read(
        HEAD
        + "events:\n"
        + "- {at: 1d12h, delete: Deployment/shop/cart}\n"
        + "- {at: 90m, fault: {kind: interruption, node: 'a*', count: 2, notice: 5m}}\n"
        + "- {at: 6h, apply: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}}\n"
    )
    deleted, fault, applied = found.happenings
    assert deleted.after == timedelta(hours=36)
    assert deleted.delete is not None
    assert (deleted.delete[0].plural, deleted.delete[1:]) == ("deployments", ("shop", "cart"))
    assert fault.fault is not None
    assert (fault.fault.hits("abc", "x"), fault.fault.hits("b", "x")) == (True, False)
    assert fault.spans["notice"] == timedelta(minutes=5)
    assert applied.apply[0]["kind"] == "Pod"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "---\n" + HEAD, "week.yaml: document 2, line 4: there is another Scenario at week.yaml: document 1"),
        (HEAD + "for: a week\n", "week.yaml: document 1, line 1: for: 'a week' is not a span of time"),
        (HEAD + "for: 0s\n", "for: '0s' is not between a second and 366d"),
        (HEAD + "start: monday\n", "start: 'monday' is not a time"),
        (HEAD + "seed: many\n", "seed: "),
        (HEAD + "evnts: []\n", "week.yaml: document 1, line 1: "),
        (HEAD + "spec: {for: 7d}\n", "spec: a Scenario has no spec: for stand beside kind"),
        (HEAD + "events: [{at: soon, delete: Node/a}]\n", "events[0].at: 'soon' is not a span of time"),
        (HEAD + "events: [{at: 1h}]\n", "events[0]: wants one of apply, delete and fault, and has 0"),
        (HEAD + "events: [{at: 1h, delete: cart}]\n", "events[0].delete: 'cart' names no object"),
        (HEAD + "events: [{at: 1h, fault: {kind: fire}}]\n", "events[0].fault.kind"),
        (HEAD + "events: [{at: 1h, fault: {kind: instance-lost, count: 0}}]\n", "events[0].fault.count: must be"),
        (HEAD + "events: [{at: 1h, apply: {kind: Pod}}]\n", "events[0].apply.kind"),
        (
            HEAD + "events: [{at: 1h, apply: {apiVersion: v1, kind: Pod}}]\n",
            "events[0].apply.metadata.name: is required",
        ),
        ("apiVersion: dovetail.dev/v9\nkind: Scenario\n", "apiVersion: 'dovetail.dev/v9' is not known"),
        ("apiVersion: v1\nkind: Pod\nspec: {}\n", "week.yaml: document 1, line 1: metadata: is required"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "spec: is required"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: [1]\n", "spec: must be a mapping"),
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: a, creationTimestamp: noon}\n",
            "metadata.creationTimestamp: 'noon' is not a time",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priority: 9223372036854775808}\n", "spec.priority: "),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {x: [0, -9223372036854775809]}\n", "spec.x[1]: "),
    ],
)
def test_bad_files(text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read(text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_kinds_that_are_not_simulated_are_told() -> None:
    found = read("apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Event\n")
    assert [(each.rule, str(each.object)) for each in found.problems] == [("NotSimulated", "batch/v1 CronJob")]


@pytest.mark.parametrize(("text", "hours"), [("36h", 36), ("7d", 168), ("1d12h", 36), ("90m", 1.5)])
def test_spans(text: str, hours: float) -> None:
    assert read_span(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "d", "1w", "-1h", "1d2d", "99999999999h"])
def test_no_spans(text: str) -> None:
    with pytest.raises(ValueError, match="is not a span"):
        read_span(text)
