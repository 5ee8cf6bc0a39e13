"""On a terminal lines break between words, and a table has room for itself."""

import click
import pytest

from dovetail.cli.common.wrapping import broken_line, fitted_cells, joined_rows

ROWS = [
    ["NODE", "TYPE", "ZONE", "WHY"],
    ["general-8vtqz", "c-8x-amd64-linux on-demand", "eu-central-1a", "inside its block window until 22:00"],
]


def shown(width: int, *spare: str) -> list[str]:
    return [line for row in joined_rows(fitted_cells(ROWS, width, spare), "") for line in row]


@pytest.mark.parametrize("width", range(40, 110, 7))
def test_a_line_loses_no_word_and_fits(width: int) -> None:
    line = "  " + click.style("node/n1", fg="red") + " waits: inside its block window, until 2026-03-06T22:00:00Z " * 3
    lines = broken_line(line, width)
    assert [word for each in lines for word in click.unstyle(each).split()] == click.unstyle(line).split()
    assert max(len(click.unstyle(each)) for each in lines) <= width
    assert all(each.startswith("    ") for each in lines[1:])


def test_what_people_copy_stays_whole() -> None:
    line = "  → kubectl annotate node general-8vtqz karpenter.sh/do-not-disrupt-"
    assert broken_line(line, 40) == [line]
    assert broken_line("short", 40) == ["short"]


def test_cells_break_between_words() -> None:
    lines = shown(70)
    assert max(map(len, lines)) <= 70
    assert [word for line in lines for word in line.split()].count("window") == 1
    assert lines[1].split() == ["general-8vtqz", "c-8x-amd64-linux", "eu-central-1a", "inside", "its", "block"]


def test_columns_go_if_there_is_no_room() -> None:
    assert shown(45, "TYPE", "ZONE")[0].split() == ["NODE", "TYPE", "WHY"]
    assert shown(30, "TYPE", "ZONE")[0].split() == ["NODE", "WHY"]
    assert shown(200, "TYPE", "ZONE")[0].split() == ["NODE", "TYPE", "ZONE", "WHY"]


def test_a_table_that_cannot_fit_is_not_torn() -> None:
    assert len(shown(20)) == 2


def test_colours_stay_with_their_cell() -> None:
    red = click.style("allowed until tomorrow", fg="red")
    cells = fitted_cells([["A", "B"], ["x", red]], 12, ())
    assert cells[1][1] == [click.style(word, fg="red") for word in ("allowed", "until", "tomorrow")]
