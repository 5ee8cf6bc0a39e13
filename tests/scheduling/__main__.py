"""`python -m tests.scheduling SEED... | --from A --to B`: do the engines agree on these, and keep the rules?"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from dovetail.scheduling import reference
from dovetail.scheduling.placement import PlacementRequest, Solution
from tests.scheduling.checker import violations
from tests.scheduling.comparison import FAST, difference, engines_of, report, shown, shrunk, shrunk_difference
from tests.scheduling.generator import MAX_NODES, MAX_PODS, random_problem

_MOST_SHOWN = 3


class Outcome(NamedTuple):
    """Of one seed: what is wrong, if anything is, and where the pods went."""

    seed: int
    wrong: str
    counts: Counter[str]


def attempt(seed: int, *, engine: str, nodes: int, pods: int, shrink: float) -> Outcome:
    """Solve the problem with both engines."""
    problem = random_problem(seed, nodes=nodes, pods=pods)
    wanted = reference.solve(problem)
    counts = Counter(
        pods=len(problem.pods),
        existing=sum(map(len, wanted.existing.values())),
        new=sum(len(claim.pods) for claim in wanted.new_claims),
        claims=len(wanted.new_claims),
        errors=len(wanted.errors),
    )
    return Outcome(seed, _wrong(seed, problem, wanted, engine, shrink), counts)


def _wrong(seed: int, problem: PlacementRequest, wanted: Solution, engine: str, shrink: float) -> str:
    """For people, and of a problem as small as can be."""
    if violations(problem, wanted):
        smallest = shrunk(problem, lambda each: bool(violations(each, reference.solve(each))), shrink)
        found = violations(smallest, reference.solve(smallest))
        return f"seed {seed}: the reference breaks the rules on\n{shown(smallest)}\n{shown(tuple(found))}"
    for solve in engines_of(engine):
        if difference(problem, solve, wanted) is not None:
            return report(seed, *shrunk_difference(problem, solve, shrink))
    return ""


def run(outcomes: Iterable[Outcome], *, keep_going: bool) -> list[int]:
    """Print what is wrong, and how far it has come. The seeds of which something is wrong."""
    total, wrong, done, started = Counter[str](), list[int](), 0, time.monotonic()
    for outcome in outcomes:
        done += 1
        total += outcome.counts
        if outcome.wrong:
            wrong.append(outcome.seed)
            print(outcome.wrong, end="\n\n", flush=True)
        if done % 500 == 0:
            print(f"{done} problems in {time.monotonic() - started:.0f} s, {len(wrong)} wrong", flush=True)
        if len(wrong) >= _MOST_SHOWN and not keep_going:
            break
    print(f"{done} problems: " + ", ".join(f"{count} {what}" for what, count in total.items()))
    print(f"{len(wrong)} wrong" + (f": seeds {' '.join(map(str, wrong))}" if wrong else ""))
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scheduling", description=__doc__)
    add = parser.add_argument
    add("seeds", nargs="*", type=int)
    add("--from", dest="first", type=int, default=0)
    add("--to", dest="last", type=int, help="the first seed that is not tried")
    add("--nodes", type=int, default=MAX_NODES, help=f"at most so many (default {MAX_NODES})")
    add("--pods", type=int, default=MAX_PODS, help=f"at most so many (default {MAX_PODS})")
    add("--engine", default=FAST, help=f"the module to compare with the reference (default {FAST})")
    add("--jobs", type=int, default=1, help="processes; 0: one for each core")
    add("--shrink", type=float, default=60.0, help="seconds to make a problem smaller (default 60)")
    add("--keep-going", action="store_true", help=f"do not end after {_MOST_SHOWN} that are wrong")
    options = parser.parse_args()
    seeds = options.seeds or range(options.first, options.last or options.first + 500)
    work = partial(attempt, engine=options.engine, nodes=options.nodes, pods=options.pods, shrink=options.shrink)
    if options.jobs == 1:
        return 1 if run(map(work, seeds), keep_going=options.keep_going) else 0
    with ProcessPoolExecutor(options.jobs or os.cpu_count()) as workers:
        wrong = run(workers.map(work, seeds, chunksize=10), keep_going=options.keep_going)
        workers.shutdown(cancel_futures=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
