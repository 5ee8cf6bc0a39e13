"""While nothing can be done, nothing is done: no rule that a clock can predict is polled (R1, R43)."""

from dovetail.api import names
from dovetail.ports import EVENTS, NODECLAIMS, NODES, Delete
from tests.harness import manifests
from tests.harness.stage import stage
from tests.harness.termination import GUARDED, Setting, play

pytestmark = stage(play)

NODES_DRAINING = 20
PODS_EACH = 5
HOUR_SECONDS = 3600


def reconciles(setting: Setting) -> dict[str, float]:
    """How often each controller has looked at something."""
    counted: dict[str, float] = {}
    for metric in setting.metrics.reconciles.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                name = sample.labels["controller"]
                counted[name] = counted.get(name, 0) + sample.value
    return counted


async def test_an_hour_of_blocked_drains_costs_a_look_at_each_budget_now_and_then(setting: Setting) -> None:
    sim = setting.sim
    for number in range(NODES_DRAINING):
        pods = [manifests.pod(f"p{number}-{index}", annotations=GUARDED if index else {}) for index in range(PODS_EACH)]
        for pod in pods:
            pod["metadata"]["labels"] = {"app": "web"}
        await setting.launch(f"c{number}", pods=pods)
    await sim.apply(manifests.pdb("web", maxUnavailable=0))
    await sim.run_for("1m")
    for number in range(NODES_DRAINING):
        await sim.api.write(Delete(NODECLAIMS, f"c{number}"))
    await sim.run_for("10m")
    assert all("deletionTimestamp" in node["metadata"] for node in sim.objects(NODES))

    before, sent = reconciles(setting), len(setting.sent)
    await sim.run_for("1h")
    looks = {name: count - before.get(name, 0) for name, count in reconciles(setting).items()}
    asked = [
        entry.request
        for entry in setting.sent[sent:]
        if entry.request.verb not in ("list", "watch") and entry.request.resource.plural != EVENTS.plural
    ]
    # The net: one pod of the one budget, every 30 s.
    assert {request.verb for request in asked} <= {"evict"}
    assert 0 < len(asked) <= HOUR_SECONDS / 30
    assert looks.pop("eviction-queue") <= 2 * HOUR_SECONDS / 30
    # Tells again what it waits for, because the server forgets events; nothing else.
    assert sum(looks.values()) <= 1, looks
    assert len(sim.pods()) == NODES_DRAINING * PODS_EACH


async def test_an_hour_of_steady_nodes_costs_nothing(setting: Setting) -> None:
    for number in range(5):
        await setting.launch(f"c{number}", pods=[manifests.pod(f"p{number}")])
    await setting.sim.run_for("10m")
    before, sent = reconciles(setting), len(setting.sent)
    await setting.sim.run_for("1h")
    assert reconciles(setting) == before
    asked = [entry.request for entry in setting.sent[sent:]]
    # The garbage collector asks the cloud, which for kwok is the API server; watches are renewed.
    assert {(request.verb, request.resource.plural) for request in asked if request.verb != "watch"} <= {
        ("list", "nodes")
    }
    assert names.TERMINATION_FINALIZER in setting.sim.objects(NODES)[0]["metadata"]["finalizers"]
