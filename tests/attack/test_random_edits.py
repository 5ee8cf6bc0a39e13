"""Somebody edits and deletes objects of all kinds at random while all controllers run.

No pass and no reconcile raises, no controller ends, and the cluster comes to rest once the edits stop. Every run is
determined by its seed, which is the test's parameter. `HYPOTHESIS_PROFILE=soak` runs 500 of them.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from dovetail.api import names
from dovetail.ports import EVENTS, LEASES, NODES
from dovetail.sim.checkers.checkers import RULES
from tests.attack.random_edits import RandomEdits
from tests.harness import manifests, provisioning
from tests.harness.disruption import EVER
from tests.harness.placing import a_csi_node, a_storage_class, a_volume
from tests.harness.provisioning import BIG, Setting, pool_of_four
from tests.harness.soak import SOAK
from tests.harness.termination import Sent, claimed_volume, volume_claim

SEEDS, EDITS = (500, 60) if SOAK else (6, 30)
SECONDS_BETWEEN: Final = 10.0
LATE_AT_MOST: Final = 40  # writes that are shown
TOLD_AT_MOST: Final = 200  # characters of each edit


async def build(setting: Setting) -> None:
    """Two pools that consolidate, a static one, and workloads of several kinds on them."""
    disruption = {"consolidateAfter": "30s", "budgets": [EVER]}
    await setting.begin(
        pool_of_four(disruption=disruption, template={"expireAfter": "2h", "terminationGracePeriod": "10m"}),
        pool_of_four("other", disruption=disruption, weight=10, limits={"cpu": "12"}),
        pool_of_four("static", replicas=1),
    )
    await setting.sim.apply(
        manifests.deployment("web", replicas=3, cpu=BIG),
        manifests.deployment("small", replicas=4, cpu="500m"),
        manifests.workload("StatefulSet", "db", fields={"replicas": 2, "serviceName": "db"}, cpu="1"),
        manifests.workload("DaemonSet", "agent", cpu="100m"),
        manifests.pdb("web", maxUnavailable=1),
        manifests.pod("alone", cpu="200m"),
        manifests.priority_class("low", -10),
        a_storage_class("fast", provisioner="disks", mode="Immediate"),
        a_volume("pv0", driver="disks"),
        {**volume_claim("data", "pv0"), "spec": {**volume_claim("data", "pv0")["spec"], "storageClassName": "fast"}},
        manifests.pod("stores", cpu="200m", volumes=[claimed_volume("data", "data")]),
        {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": names.LEADER_ELECTION_LEASE}},
    )
    await setting.sim.run_for("3m")
    await setting.sim.apply(*(a_csi_node(each["metadata"]["name"], disks=2) for each in setting.sim.objects(NODES)))


def written(requests: Sequence[Sent]) -> list[str]:
    """Writes of the program.

    Events do not count, which people are told now and then again, and neither do attempts to evict a pod whose PDB does
    not allow it (R43).
    """
    return [
        f"{each.at:%H:%M:%S} {asked.verb} {asked.resource.plural} {asked.name}"
        for each in requests
        if (asked := each.request).verb not in ("get", "list", "watch", "evict")
        and asked.resource.plural != EVENTS.plural
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_controllers_survive_random_edits_and_come_to_rest(seed: int) -> None:
    edits: list[RandomEdits] = []

    async def scenario(setting: Setting) -> None:
        await build(setting)
        made = RandomEdits(setting.sim, seed)
        edits.append(made)
        for _ in range(EDITS):
            await made.next()
            await setting.sim.clock.sleep(made.pause(SECONDS_BETWEEN))
        assert made.accepted > EDITS / 2
        await made.end()
        await setting.sim.run_for("2h30m")
        before = len(setting.sent)
        await setting.sim.run_for("30m")
        late = written(setting.sent[before:])
        assert not late, "\n".join(late[:LATE_AT_MOST])

    try:
        provisioning.play(scenario, disrupting=True, kwok=bool(seed % 2), seed=seed, shuffle=True, except_for=RULES)
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *(told[:TOLD_AT_MOST] for each in edits for told in each.told)]))
        raise
