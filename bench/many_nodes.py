"""A cluster of many nodes of ours that could all be consolidated, behind an API server of a process of its own.

Twenty pods a node, of some hundred workloads in four pools. A full node has no cpu left, so that nothing can be done; a
loose one is half as large again as its pods need. `python -m bench.many_nodes 1000 full` serves them and says where; a
POST to /end has one pod deleted. The same size gives the same cluster.
"""

import asyncio
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiohttp import web

from dovetail.api import names
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PODS, Resource
from dovetail.providers.catalogue import ZONES, allocatable, built_in
from tests.harness.claims import condition, node, node_claim, node_class, node_pool

PODS_PER_NODE: Final = 20
POOLS: Final = ("alpha", "beta", "gamma", "delta")
KINDS: Final = ("full", "loose")
_LOOSE: Final = 1.5
_WORKLOADS: Final = 300
_CPU: Final = (100, 250, 500, 1000, 1500)  # thousandths
_MEMORY: Final = (100, 256, 512, 1024, 2048, 4096)  # MiB
_SINCE: Final = "2026-03-01T08:00:00Z"
_KINDS: Final = (KWOK_NODECLASSES, NODEPOOLS, NODECLAIMS, NODES, PODS)
_VERSION: Final = 1_000_000  # of the lists: later than anything in them
_BOOKMARKS_SECONDS: Final = 30  # else a watch is taken for dead

Manifest = dict[str, Any]

# -- machines ----------------------------------------------------------------------------------------------------------


def types() -> tuple[InstanceType, ...]:
    """A hundred: the i-th has i cpus and 2i GiB for its pods; a cpu costs the same everywhere."""
    alike = next(type_ for type_ in built_in() if type_.name == "c-1x-amd64-linux")
    return tuple(_type(alike, size) for size in range(1, 101))


def _type(alike: InstanceType, size: int) -> InstanceType:
    name = _type_name(size)
    more = {names.INSTANCE_TYPE_LABEL: name, names.KWOK_INSTANCE_CPU_LABEL: str(size)}
    return InstanceType(
        name=name,
        requirements=tuple(
            type(entry)(
                key=entry.key, operator=entry.operator, values=[more[entry.key]] if entry.key in more else entry.values
            )
            for entry in alike.requirements
        ),
        offerings=tuple(
            Offering(requirements=entry.requirements, price=entry.price * size) for entry in alike.offerings
        ),
        capacity={"cpu": str(size), "memory": f"{2 * size}Gi", "pods": str(10 * size)},
    )


def _type_name(size: int) -> str:
    return f"size-{size:03}"


# -- objects -----------------------------------------------------------------------------------------------------------


def objects(nodes: int, kind: str) -> Iterator[tuple[Resource[Any], Manifest]]:
    dice, machines = random.Random(nodes), types()
    shapes = [_shape(dice, number) for number in range(_WORKLOADS)]
    yield KWOK_NODECLASSES, _stored(node_class(), "class")
    for pool in POOLS:
        yield NODEPOOLS, _stored(_pool(pool), pool, conditions=[_true("Ready")])
    for number in range(nodes):
        chosen = [dice.choice(shapes) for _ in range(PODS_PER_NODE)]
        size = math.ceil(_needed(chosen) * _LOOSE)
        if kind == "full":
            chosen[-1] = _rest(chosen[:-1])
            size = math.ceil(_needed(chosen))
        yield from _machine(number, dice.choice(ZONES), machines[size - 1])
        for index, shape in enumerate(chosen):
            yield PODS, _pod(number, index, shape)


class _Shape(NamedTuple):
    """A workload: thousandths of a cpu, MiB, and what else its pods ask for."""

    app: str
    cpu: int
    memory: int
    more: Manifest


def _shape(dice: random.Random, number: int) -> _Shape:
    """One in ten spreads over zones, one over hosts, one asks for a zone."""
    app, which = f"app-{number:03}", number % 10
    spread = {
        "maxSkew": 3 if which else 5,
        "topologyKey": names.HOSTNAME_LABEL if which else names.ZONE_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    more: Manifest = {"topologySpreadConstraints": [spread]} if which < 2 else {}
    if which == 2:
        more = {"nodeSelector": {names.ZONE_LABEL: dice.choice(ZONES)}}
    return _Shape(app, dice.choice(_CPU), dice.choice(_MEMORY), more)


def _needed(shapes: list[_Shape]) -> float:
    """In parts of the smallest type."""
    return max(sum(shape.cpu for shape in shapes) / 1000, sum(shape.memory for shape in shapes) / 2048)


def _rest(shapes: list[_Shape]) -> _Shape:
    """One that takes all the cpu that others leave on the smallest node on which they fit."""
    cpu = (math.floor(_needed(shapes)) + 1) * 1000 - sum(shape.cpu for shape in shapes)
    return _Shape(f"rest-{cpu:05}", cpu, 1, {})


def _pool(name: str) -> Manifest:
    wanted = {names.CAPACITY_TYPE_LABEL: "on-demand", names.OS_LABEL: "linux", names.ARCH_LABEL: "amd64"}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()]
    disruption = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    return node_pool(name, template={"requirements": requirements}, disruption=disruption)


def _machine(number: int, zone: str, type_: InstanceType) -> Iterator[tuple[Resource[Any], Manifest]]:
    """A claim and its Node."""
    name, pool, room = f"node-{number:05}", POOLS[number % len(POOLS)], allocatable(type_)
    labels = {
        names.INSTANCE_TYPE_LABEL: type_.name,
        names.ZONE_LABEL: zone,
        names.CAPACITY_TYPE_LABEL: "on-demand",
        names.OS_LABEL: "linux",
        names.ARCH_LABEL: "amd64",
        names.KWOK_NODECLASS_LABEL: "default",
    }
    amounts = {"capacity": dict(type_.capacity), "allocatable": room}
    ready = ("Launched", "Registered", "Initialized", "Ready", "Consolidatable")
    claim = node_claim(name, pool=pool, labels=labels, finalizers=True)
    yield (
        NODECLAIMS,
        _stored(
            claim,
            name,
            **amounts,
            providerID=f"{names.KWOK_PROVIDER_ID_PREFIX}{name}",
            nodeName=name,
            conditions=[_true(condition) for condition in ready],
        ),
    )
    yield NODES, _stored(node(name, pool=pool, labels=labels), f"{name}-node", **amounts, conditions=[_true("Ready")])


def _pod(node: int, index: int, shape: _Shape) -> Manifest:
    name = f"{shape.app}-{node:05}-{index:02}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": shape.app, "uid": shape.app, "controller": True}
    requests = {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi"}
    container = {"name": "main", "image": "example.invalid/main", "resources": {"requests": requests}}
    meta = {"name": name, "namespace": "default", "labels": {"app": shape.app}, "ownerReferences": [owner]}
    spec = {"nodeName": f"node-{node:05}", "containers": [container], **shape.more}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return _stored(body, name, phase="Running", conditions=[_true("Ready"), _true("PodScheduled")])


def _true(type_: str) -> Manifest:
    return condition(type_, lastTransitionTime=_SINCE)


def _stored(body: Manifest, uid: str, **status: Any) -> Manifest:
    """As a server would have it."""
    meta = {**body["metadata"], "uid": uid, "resourceVersion": "1", "generation": 1, "creationTimestamp": _SINCE}
    return {**body, "metadata": meta, **({"status": status} if status else {})}


# -- the server --------------------------------------------------------------------------------------------------------


class Server:
    """Lists, and a watch of pods that tells of those that are deleted; of other kinds it tells nothing more."""

    def __init__(
        self, nodes: int, kind: str, edit: Callable[[str, Manifest], Manifest] = lambda _plural, body: body
    ) -> None:
        """`edit`: what becomes of each object, by the plural of its kind."""
        self._bodies: dict[str, list[str]] = {kind.plural: [] for kind in _KINDS}
        self._told: asyncio.Queue[str] = asyncio.Queue()
        self._version = _VERSION
        for resource, body in objects(nodes, kind):
            self._bodies[resource.plural].append(json.dumps(edit(resource.plural, body)))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rpartition("/")[2]
        if request.query.get("watch"):
            return await self._watch(request, plural)
        bodies, start = self._bodies.get(plural, []), int(request.query.get("continue", "0"))
        stop = start + int(request.query.get("limit", "500"))
        more = str(stop) if stop < len(bodies) else ""
        meta, items = json.dumps({"resourceVersion": str(_VERSION), "continue": more}), ",".join(bodies[start:stop])
        return web.Response(
            text=f'{{"kind": "List", "apiVersion": "v1", "metadata": {meta}, "items": [{items}]}}',
            content_type="application/json",
        )

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        told = self._told if plural == PODS.plural else asyncio.Queue[str]()
        with suppress(ConnectionResetError):  # nobody listens any more
            while True:
                await response.write(f"{await self._next(told)}\n".encode())
        return response

    async def _next(self, told: asyncio.Queue[str]) -> str:
        try:
            return await asyncio.wait_for(told.get(), _BOOKMARKS_SECONDS)
        except TimeoutError:
            meta = {"resourceVersion": str(self._version)}
            return json.dumps({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": meta}})

    @staticmethod
    async def accept(request: web.Request) -> web.Response:
        """Takes an event."""
        return web.Response(text=await request.text(), status=201, content_type="application/json")

    async def end(self, request: web.Request) -> web.Response:
        """The name of the pod that is deleted: one of a node in the middle, and each time of another one."""
        pods = self._bodies[PODS.plural]
        body = json.loads(pods.pop(int(request.query["number"]) % len(pods)))
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self._told.put_nowait(json.dumps({"type": "DELETED", "object": body}))
        return web.Response(text=body["metadata"]["name"])


async def run_server(server: Server) -> None:
    """Say where it serves, and serve until the process ends."""
    app = web.Application()
    app.router.add_post("/end", server.end)
    app.router.add_get("/{path:.*}", server.answer)
    app.router.add_post("/{path:.*}/events", server.accept)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run_server(Server(int(sys.argv[1]), sys.argv[2])))
