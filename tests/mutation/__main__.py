"""`make mutate`: break each rule in a copy of the source; the tests must fail every time."""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Print a line a mutant; the exit code is the number that survived."""
    unbroken = Mutant("nothing is broken", (), tuple(dict.fromkeys(path for m in MUTANTS for path in m.tests)))
    if is_caught(unbroken):
        print("the tests fail without any break; mend that first")
        return 1
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, caught in zip(MUTANTS, pool.map(is_caught, MUTANTS), strict=True):
            survivors += not caught
            print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.name}", flush=True)
    print(f"{len(MUTANTS) - survivors} of {len(MUTANTS)} breaks were caught")
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
        environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        outcome = subprocess.run([*command, *mutant.tests], cwd=ROOT, env=environment, capture_output=True, check=False)
        if outcome.returncode not in {0, 1}:  # a break that does not even import would prove nothing
            raise SystemExit(f"{mutant.name}: pytest ended with {outcome.returncode}:\n{outcome.stdout.decode()}")
        return outcome.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
