"""Do pods that nobody has a node for get to run, on a real control plane, and on no more nodes than they need?

How long it takes depends on the machine, and is told at the end of the run; what must hold on any is asserted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dovetail.api import names
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.provisioning import workloads
from tests.cluster.provisioning.scale_out import (
    PEER_BASIC,
    UPSTREAM_BASIC,
    Placement,
    scaled_out,
    table,
)
from tests.cluster.provisioning.workloads import TEAM, ZONES
from tests.conftest import MEASURED

HOST, ZONE = names.HOSTNAME_LABEL, names.ZONE_LABEL


@pytest.fixture
def plane(tmp_path: Any) -> Iterator[ControlPlane]:
    """Without nodes, and where no pods are but ours."""
    with ControlPlane(tmp_path / "plane", flags=PATIENT) as plane:
        plane.install_crds()
        yield plane


def test_many_pods_of_two_sizes(plane: ControlPlane, record_property: Callable[[str, object], None]) -> None:
    """A quarter of upstream's basic suite (08 §2), beside what its peer needed (08 §11). `make bench` runs all."""
    outcome = asyncio.run(scaled_out(plane, workloads.basic(125), workloads.pool(), 250))
    record_property(MEASURED, table("125 small and 125 large pods", outcome))
    outcome.assert_all_have_a_place()
    assert len(outcome.placement.pods) == 250
    placement, asked, peer = outcome.placement, UPSTREAM_BASIC, PEER_BASIC
    assert placement.share("cpu") >= (asked.cpu_share or 0)
    assert placement.share("memory") >= (asked.memory_share or 0)
    assert len(placement.nodes) <= 1.3 * (peer.nodes or 0) / 4  # fewer pods leave a larger part of the nodes half full


def test_pods_with_every_kind_of_rule(plane: ControlPlane, record_property: Callable[[str, object], None]) -> None:
    bodies = workloads.mixed()
    count = sum(body["spec"].get("replicas", 0) for body in bodies)
    assert count == 200
    outcome = asyncio.run(scaled_out(plane, bodies, workloads.pools_of_two_teams(), count))
    record_property(MEASURED, table("200 pods with every kind of rule", outcome))
    _assert_rules(outcome.placement)
    outcome.assert_all_have_a_place()


def _assert_rules(found: Placement) -> None:
    """As the manifests have them, on where the pods are in the end."""
    zonal = Counter(found.domains("zonal", ZONE))
    assert max(zonal.values()) - min(zonal[zone] for zone in ZONES) <= 1, zonal
    both = Counter(found.domains("both", ZONE))
    assert max(both.values()) - min(both[zone] for zone in ZONES) <= 1, both
    assert max(Counter(found.domains("hosts", HOST)).values()) <= 2
    assert max(Counter(found.domains("both", HOST)).values()) == 1
    assert max(Counter(found.domains("apart", HOST)).values()) == 1
    assert sorted(found.domains("one-each", ZONE)) == list(ZONES)
    assert len({*found.domains("flock", ZONE), *found.domains("followers", ZONE)}) == 1
    assert not set(found.domains("shy", HOST)) & set(found.domains("plain", HOST))
    assert set(found.domains("picky", ZONE)) == {ZONES[1]}
    assert set(found.domains("picky", names.KWOK_INSTANCE_FAMILY_LABEL)) == {"s"}
    assert set(found.domains("elsewhere", ZONE)) <= set(ZONES[2:])
    assert set(found.domains("team", TEAM)) == {"blue"}
    assert sorted(pod["spec"]["nodeName"] for pod in found.of("agent")) == sorted(found.names)
