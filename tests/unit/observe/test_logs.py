"""What a line of the log looks like, and which lines there are."""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.observe.logs import JsonLines, LogFormat, Sampling, TextLines, about, start_logging

CREATED = 1_772_846_400.1239


def record(message: str, *values: Any, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    made = logging.getLogger("dovetail.runtime.lease").makeRecord(
        "dovetail.runtime.lease", level, "lease.py", 7, message, values, None, extra=extra
    )
    made.created = CREATED
    return made


def shown(made: logging.LogRecord) -> dict[str, Any]:
    text = JsonLines().format(made)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_has_the_keys_in_order() -> None:
    assert list(shown(record("leading, epoch %d", 3, NodeClaim="c1", **{"pod-count": 2})).items()) == [
        ("level", "INFO"),
        ("time", "2026-03-07T01:20:00.123Z"),
        ("logger", "runtime.lease"),
        ("message", "leading, epoch 3"),
        ("NodeClaim", "c1"),
        ("pod-count", 2),
    ]


@pytest.mark.parametrize(
    ("level", "name"),
    [(logging.DEBUG, "DEBUG"), (logging.WARNING, "WARN"), (logging.ERROR, "ERROR"), (logging.CRITICAL, "ERROR")],
)
def test_levels(level: int, name: str) -> None:
    found = shown(record("x", level=level))
    assert found["level"] == name
    assert found.get("caller") == ("lease.py:7" if level == logging.DEBUG else None)


def test_durations_are_written_as_go_writes_them() -> None:
    assert shown(record("x", took=timedelta(minutes=90)))["took"] == "1h30m0s"


def test_what_json_cannot_hold_is_written_as_text() -> None:
    assert shown(record("x", path=Path("a/b")))["path"] == "a/b"
    assert shown(record("x", number=2**100))["number"] in (2**100, str(2**100))


def test_an_error_is_told_with_its_trace_in_one_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    found = shown(made)
    assert found["error"] == "broken"
    assert "test_logs.py" in found["stacktrace"]


def test_a_piece_of_work_says_what_it_is_about() -> None:
    with about(controller="node.termination", name="n1"):
        with about(namespace="default"):
            found = shown(record("x", name_of="y"))
        assert {"controller", "name", "namespace", "name_of"} <= found.keys()
        assert "namespace" not in shown(record("x"))
    assert "controller" not in shown(record("x"))


def test_the_fixed_keys_cannot_be_taken() -> None:
    with about(level="LOUD", message="no"):
        found = shown(record("yes"))
    assert (found["level"], found["message"]) == ("INFO", "yes")


def test_text_for_people() -> None:
    text = TextLines().format(record("tainted node", Node="n1"))
    assert text == "2026-03-07T01:20:00.123Z INFO  tainted node  logger=runtime.lease Node=n1"


def test_text_for_people_has_neither_brackets_nor_uids() -> None:
    bought = {"cpu": "2", "memory": "3Gi"}
    body = {"uid": "634d", "graceSeconds": None, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    with about(controller="eviction-queue", name=("shop", "cart-0", "634d")):
        text = TextLines().format(record("x", requests=bought, Pods=["a", "b"], body=body))
    assert text.endswith(
        'x  logger=runtime.lease controller=eviction-queue requests.cpu=2 requests.memory=3Gi Pods="a, b" '
        'body.spec.taints="key=a effect=NoSchedule" name=shop/cart-0/634d'
    )


def test_text_for_people_names_the_object_of_a_reconcile_once() -> None:
    with about(name=("shop", "cart-0")):
        text = TextLines().format(record("bad annotation", Pod="shop/cart-0", problem="1d is no duration"))
    assert text.endswith('bad annotation  logger=runtime.lease Pod=shop/cart-0 problem="1d is no duration"')


def test_of_many_equal_messages_a_second_every_hundredth_is_told() -> None:
    sampling = Sampling()
    assert sum(sampling.filter(record("same %d", number)) for number in range(350)) == 102
    assert sampling.filter(record("another"))
    assert sampling.filter(record("same %d", 1, level=logging.ERROR))
    later = record("same %d", 351)
    later.created += 1
    assert sampling.filter(later)


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("logging_as_before")
def test_lines_go_where_they_are_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    start_logging("info", outputs=["stdout", str(file)])
    logging.getLogger("dovetail.x").info("heard")
    logging.getLogger("dovetail.x").debug("not heard")
    assert json.loads(file.read_text())["message"] == "heard"
    assert json.loads(capsys.readouterr().out)["message"] == "heard"
    start_logging("debug", outputs=["stderr"], form=LogFormat.TEXT)
    logging.getLogger("dovetail.x").debug("now heard")
    assert "DEBUG now heard" in capsys.readouterr().err
    assert len(file.read_text().splitlines()) == 1


@pytest.mark.usefixtures("logging_as_before")
def test_a_log_that_cannot_be_written_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", outputs=[str(tmp_path / "log")])
    logging.getLogger().handlers[0].stream.close()  # type: ignore[attr-defined]
    logging.getLogger("dovetail.x").info("lost")
    assert "a line of dovetail.x could not be logged" in capsys.readouterr().err
