"""When will each node be free, expire or be forced out, and what will the budgets allow, over a span of time?

The rules name the instants at which their answers change, and only these are visited: nothing is sampled.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from dovetail.api import names, objects
from dovetail.api.documents import Document, decode
from dovetail.model.problem import Problem
from dovetail.model.snapshot import Snapshot
from dovetail.rules.budgets import Reading
from dovetail.rules.pdb import PdbIndex
from dovetail.views.explain.problems import snapshot_problems
from dovetail.views.forecast.data import Forecast, Machine
from dovetail.views.forecast.drains import Drain
from dovetail.views.forecast.moves import Moves
from dovetail.views.forecast.nodes import Future, node_forecast
from dovetail.views.forecast.outlook import outlooks
from dovetail.views.forecast.pools import herds, pool_forecast
from dovetail.views.pools import read_pools

__all__ = ["Forecast", "Machine", "forecast", "machines_of"]


def forecast(
    snapshot: Snapshot,
    at: datetime,
    end: datetime,
    *,
    reading: Reading = Reading.SEED,
    machines: Mapping[str, Machine] | None = None,
    problems: Iterable[Problem] = (),
) -> Forecast:
    """Step from change to change up to the end. `machines`: by the names of nodes."""
    pdbs = PdbIndex(snapshot.pdbs, snapshot.pods)
    pools = read_pools(snapshot, at, reading)
    looks = outlooks(snapshot, pools, pdbs, at)
    future = Future(at, end, pdbs)
    begun = {look.member.name: drained for look in looks if (drained := future.begun(look)) is not None}
    moves = Moves(snapshot, looks, pools.values(), at, drained=filter(None, map(_first, begun.values())))
    known = machines or {}
    nodes = tuple(
        node_forecast(look, future, moves, begun.get(look.member.name), known.get(look.member.name)) for look in looks
    )
    found = snapshot_problems(snapshot, ((look.member, look.standing) for look in looks), pools.values(), at)
    sizes = Counter(look.member.pool for look in looks)
    return Forecast(
        at=at,
        end=end,
        exact_until=end if moves.earliest is None else min(moves.earliest, end),
        nodes=nodes,
        nodepools=tuple(pool_forecast(pool, at, end) for pool in pools.values()),
        herds=tuple(herds(nodes, sizes)),
        problems=(*problems, *snapshot.problems, *found),
    )


def machines_of(documents: Iterable[Document]) -> dict[str, Machine]:
    """What the Nodes among the documents run on. Raises InputError."""
    nodes = (decode(each, objects.Node) for each in documents if (each.api_version, each.kind) == ("v1", "Node"))
    return {node.metadata.name: machine_of(node) for node in nodes}


def machine_of(node: objects.Node) -> Machine:
    """What it runs on, by its labels."""
    labels = node.metadata.labels
    return Machine(
        instance_type=labels.get(names.INSTANCE_TYPE_LABEL),
        capacity_type=labels.get(names.CAPACITY_TYPE_LABEL),
        zone=labels.get(names.ZONE_LABEL),
    )


def _first(drained: Drain) -> datetime | None:
    """When something first happens in it."""
    return min((event.at for event in drained.events), default=drained.gone_at)
