"""`make mutate`: break each rule in a copy of the source; the tests must fail every time.

`python -m tests.mutation WORD` runs only the mutants whose name or files contain the word, as `drain` or `state/`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


def main(word: str = "") -> int:
    """Print a line a mutant; the exit code is the number that survived."""
    mutants = [
        each for each in MUTANTS if any(word in text for text in (each.name, *(edit.file for edit in each.edits)))
    ]
    if not mutants:
        print(f"no mutant has {word!r} in its name or its files")
        return 1
    unbroken = Mutant("nothing is broken", (), tuple(dict.fromkeys(path for m in mutants for path in m.tests)))
    if is_caught(unbroken):
        print("the tests fail without any break; mend that first")
        return 1
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, caught in zip(mutants, pool.map(is_caught, mutants), strict=True):
            survivors += not caught
            print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.name}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} breaks were caught")
    return survivors


def is_caught(mutant: Mutant) -> bool:
    """Whether the tests fail with this break."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in mutant.edits:
            file = source / "dovetail" / edit.file
            text = file.read_text()
            if text.count(edit.old) != 1:
                raise SystemExit(f"{mutant.name}: {edit.old!r} occurs {text.count(edit.old)} times in {edit.file}")
            file.write_text(text.replace(edit.old, edit.new))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        environment = os.environ | {
            "PYTHONPATH": str(source),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_PROFILE": "mutation",
        }
        outcome = subprocess.run([*command, *mutant.tests], cwd=ROOT, env=environment, capture_output=True, check=False)
        if outcome.returncode not in {0, 1}:  # a break that does not even import would prove nothing
            raise SystemExit(f"{mutant.name}: pytest ended with {outcome.returncode}:\n{outcome.stdout.decode()}")
        return outcome.returncode != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
