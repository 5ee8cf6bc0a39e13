"""Each mutant of `make mutate` breaks a line that exists, and names tests that exist."""

from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_source(mutant: Mutant) -> None:
    for edit in mutant.edits:
        assert (ROOT / "src/dovetail" / edit.file).read_text(encoding="utf-8").count(edit.old) == 1
        assert edit.old != edit.new
    assert all((ROOT / path.partition("::")[0]).exists() for path in mutant.tests)
