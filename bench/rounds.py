"""Does one round of provisioning suffice? Random sets of pods on an empty cluster, in virtual time.

`python -m bench rounds` plays forty sets; `python -m bench rounds 200` plays two hundred. Each has ten Deployments of
250m to 3 cpu, some with spread constraints. A set needs a second round if NodeClaims are created more than once.
"""

import random
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bench.plans import START, pool, workload
from dovetail.api import names
from dovetail.api.documents import Document
from dovetail.ports import NODECLAIMS, PODS, Resource
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.sim.server.store import Change
from dovetail.values.timestamp import format_time

_SPAN = timedelta(minutes=4)


class RoundFigures(msgspec.Struct, kw_only=True):
    """One set of pods."""

    pods: int = 0
    rounds: int = 0
    nodes: int = 0
    price: float = 0.0  # dollars per hour
    seconds: float = 0.0  # until the last pod was bound


def documents(seed: int) -> list[Document]:
    draw = random.Random(f"rounds {seed}")
    objects: list[dict[str, Any]] = [pool()]
    for number in range(10):
        objects += workload(draw, number, kinds=("Deployment",))
    scenario = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Scenario",
        "start": format_time(START),
        "for": f"{_SPAN.total_seconds():.0f}s",
        "seed": seed,
    }
    return [
        Document("bench", index, None, None, body["apiVersion"], body["kind"], value=body)
        for index, body in enumerate([*objects, scenario], 1)
    ]


def play(seed: int) -> RoundFigures:
    """One set."""
    created: list[datetime] = []
    bound: dict[str, datetime] = {}
    with Play(read_scenario(documents(seed), now=START, span=_SPAN)) as playing:

        def observe(resource: Resource[Any], change: Change) -> None:
            body: Mapping[str, Any] = change.new.body
            if resource.plural == NODECLAIMS.plural and change.old is None:
                created.append(playing.now)
            if resource.plural == PODS.plural and body["spec"].get("nodeName"):
                bound.setdefault(body["metadata"]["name"], playing.now)

        playing.sim.server.registry.store.observers.append(observe)
        playing.advance(START + _SPAN)
        machines = playing.cloud.machines.values()
        price = sum(float(machine.instance.labels.get(names.INSTANCE_PRICE_LABEL, 0.0)) for machine in machines)
    return RoundFigures(
        pods=len(bound),
        rounds=len(set(created)),
        nodes=len(created),
        price=price,
        seconds=(max(bound.values()) - START).total_seconds(),
    )


def print_rounds(sets: float = 40) -> None:
    """Print how many sets need more than one round."""
    began = time.process_time()
    figures = [play(seed) for seed in range(int(sets))]
    again = sum(row.rounds > 1 for row in figures)
    print(f"{len(figures)} random sets of pods, {sum(row.pods for row in figures)} pods")
    print(f"a second round in {again}, {100 * again / len(figures):.1f} %; the last pod is bound after")
    seconds = sorted(row.seconds for row in figures)
    print(f"{seconds[len(seconds) // 2]:.0f} s (median), {seconds[-1]:.0f} s (longest)")
    print(f"{sum(row.nodes for row in figures)} nodes, ${sum(row.price for row in figures):.2f} an hour")
    print(f"{time.process_time() - began:.0f} s of CPU\n", flush=True)
