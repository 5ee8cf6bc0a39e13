"""Which nodes scheduling sees: how Nodes and NodeClaims are merged, what is on them, and which are on their way out."""

import pytest

from dovetail.api import names
from dovetail.ports import CSI_NODES, NODECLAIMS, NODES, PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from dovetail.scheduling.host_ports import HostPort
from dovetail.scheduling.volumes import Attachment
from tests.harness.claims import condition
from tests.harness.placing import (
    AMOUNTS,
    Scene,
    a_claim,
    a_csi_node,
    a_node,
    a_pod,
    a_storage_class,
    a_stranger,
    a_volume,
    a_volume_claim,
    play,
    with_claim,
)
from tests.harness.stage import stage

pytestmark = stage(play)

HELD = ["example.com/hold"]
DISRUPTED = {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"}


# -- who is who (06 §7.2) ----------------------------------------------------------------------------------------------


async def test_a_launched_claim_is_a_node_before_there_is_one(world: Scene) -> None:
    await world.put(a_claim("c", of="n", labels={"team": "a"}, taints=[{"key": "t", "effect": "NoSchedule"}]))
    found = world.node("c")
    assert found.allocatable["cpu"] == 3900
    assert found.capacity["cpu"] == 4000
    assert (found.labels["team"], found.pool) == ("a", "default")
    assert [taint.key for taint in found.taints] == ["t"]
    assert found.open
    assert not found.initialized


async def test_a_claim_without_an_instance_is_a_node_on_which_nothing_fits(world: Scene) -> None:
    await world.put(a_claim("c"))
    assert not world.node("c").allocatable
    assert world.node("c").pool == "default"  # its pool's limit on nodes counts it


async def test_the_claim_speaks_until_the_node_is_registered(world: Scene) -> None:
    taint = {"key": names.UNREGISTERED_TAINT, "effect": "NoExecute"}
    await world.put(a_claim("c", of="n", labels={"says": "claim"}))
    await world.put(a_node("n", unregistered=True, taints=[taint]))
    await world.put(a_pod("early", on="n"))
    assert list(world.nodes()) == ["c"]
    assert world.node("c").labels["says"] == "claim"
    assert world.node("c").taints == ()
    assert world.node("c").requested["cpu"] == 1000
    labels = {names.REGISTERED_LABEL: "true", "says": "node"}
    await world.change(NODES, "n", {"metadata": {"labels": labels}, "spec": {"taints": None}})
    assert list(world.nodes()) == ["n"]
    assert world.node("n").labels["says"] == "node"
    assert not world.node("n").initialized
    await world.change(NODES, "n", {"metadata": {"labels": {names.INITIALIZED_LABEL: "true"}}})
    assert world.node("n").initialized


async def test_an_initialized_node_speaks_without_the_label_that_says_it_is_registered(world: Scene) -> None:
    await world.put(a_claim("c", of="n", labels={"says": "claim"}), a_node("n"))
    for value in ("x", None):
        labels = {names.REGISTERED_LABEL: value, "says": "node"}
        await world.change(NODES, "n", {"metadata": {"labels": labels}})
        assert list(world.nodes()) == ["n"]
        assert world.node("n").labels["says"] == "node"


async def test_a_node_is_not_hidden_by_a_claim_of_its_name_whose_own_node_is_not_registered(world: Scene) -> None:
    await world.put(a_claim("n2", of="n1"), a_node("n1", unregistered=True))
    await world.put(a_claim("c2", of="n2"), a_node("n2"), a_pod("p", on="n2"))
    assert list(world.nodes()) == ["n2"]
    assert world.node("n2").initialized
    assert world.node("n2").requested["cpu"] == 1000


async def test_nodes_of_others_are_nodes_like_any_other(world: Scene) -> None:
    await world.put(a_stranger("old"), a_pod("p", on="old"))
    found = world.node("old")
    assert found.initialized
    assert found.open
    assert found.pool == ""
    assert found.requested["cpu"] == 1000


async def test_a_node_of_a_pool_counts_once_its_instance_is_known(world: Scene) -> None:
    nameless = a_node("n")
    del nameless["spec"]["providerID"]
    await world.put(nameless)
    assert world.nodes() == {}
    await world.change(NODES, "n", {"spec": {"providerID": "kwok://n"}})
    assert list(world.nodes()) == ["n"]


async def test_until_a_new_node_says_its_type_its_claim_stands_for_it(world: Scene) -> None:
    untyped = a_node("n", initialized=False)
    del untyped["metadata"]["labels"][names.INSTANCE_TYPE_LABEL]
    await world.put(a_claim("c", of="n"), untyped)
    assert list(world.nodes()) == ["c"]
    await world.change(NODES, "n", {"metadata": {"labels": {names.INSTANCE_TYPE_LABEL: "x"}}})
    assert list(world.nodes()) == ["n"]


async def test_deleting_one_leaves_the_other(world: Scene) -> None:
    await world.put(a_claim("c", of="n"), a_node("n"))
    assert list(world.nodes()) == ["n"]
    await world.delete(NODES, "n")
    assert list(world.nodes()) == ["c"]
    await world.put(a_node("n"))
    await world.delete(NODECLAIMS, "c")
    assert list(world.nodes()) == ["n"]
    assert world.node("n").open
    await world.delete(NODES, "n")
    assert world.nodes() == {}


async def test_another_instance_is_another_node(world: Scene) -> None:
    await world.put(a_claim("c", of="n"), a_node("n"))
    await world.put(a_claim("c", of="m"))
    assert list(world.nodes()) == ["c", "n"]  # the Node of before has no claim now
    await world.put(a_node("m"))
    assert list(world.nodes()) == ["m", "n"]


async def test_what_two_claim_counts_once(world: Scene) -> None:
    await world.put(a_claim("a", of="n"), a_claim("b", of="n"))
    assert list(world.nodes()) == ["a"]
    await world.put(a_node("n"))
    assert list(world.nodes()) == ["n"]
    await world.delete(NODECLAIMS, "a")
    assert list(world.nodes()) == ["n"]
    place = world.state.place("n")
    assert place is not None
    assert place.claim is not None
    assert place.claim.metadata.name == "b"


async def test_claims_of_another_provider_are_not_looked_at(world: Scene) -> None:
    await world.put(a_claim("c", of="n", nodeClassRef={"group": "x.example", "kind": "Other", "name": "o"}))
    assert world.nodes() == {}
    await world.put(a_node("n"))
    place = world.state.place("n")
    assert place is not None
    assert place.claim is None


async def test_of_two_nodes_of_one_name_it_is_the_one_that_pods_are_bound_to(world: Scene) -> None:
    await world.put(a_claim("n", of="m"), a_stranger("n", cpu="8"))
    assert [node.capacity["cpu"] for node in world.state.places().nodes] == [8000]
    await world.put(a_node("m"))
    assert list(world.nodes()) == ["m", "n"]


# -- what it has (05 §3.3, §4.6) ---------------------------------------------------------------------------------------


async def test_what_a_starting_kubelet_does_not_count_yet_is_as_the_claim_expects_it(world: Scene) -> None:
    expected = {**AMOUNTS, "example.com/gpu": "2"}
    claim = a_claim("c", of="n")
    claim["status"] |= {"capacity": expected, "allocatable": expected}
    young = a_node("n", initialized=False)
    young["status"]["allocatable"] = {**AMOUNTS, "cpu": "3", "example.com/gpu": "0"}
    await world.put(claim, young)
    assert world.node("n").allocatable["cpu"] == 3000
    assert world.node("n").allocatable["example.com/gpu"] == 2
    await world.change(NODES, "n", {"metadata": {"labels": {names.INITIALIZED_LABEL: "true"}}})
    assert world.node("n").allocatable["example.com/gpu"] == 0


async def test_startup_taints_count_once_the_node_is_initialized(world: Scene) -> None:
    startup = {"key": "cni", "effect": "NoSchedule"}
    taints = [
        startup,
        {"key": names.NOT_READY_TAINT, "effect": "NoExecute"},
        {"key": "own", "effect": "NoSchedule"},
    ]
    await world.put(a_claim("c", of="n", startupTaints=[startup]), a_node("n", initialized=False, taints=taints))
    assert [taint.key for taint in world.node("n").taints] == ["own"]
    await world.change(NODES, "n", {"metadata": {"labels": {names.INITIALIZED_LABEL: "true"}}})
    assert {taint.key for taint in world.node("n").taints} == {"cni", names.NOT_READY_TAINT, "own"}


async def test_a_number_that_nobody_can_read_costs_only_itself(world: Scene, caplog: pytest.LogCaptureFixture) -> None:
    odd = a_stranger("n")
    odd["status"]["allocatable"] = {**AMOUNTS, "example.com/x": "many"}
    await world.put(odd, a_stranger("m"), a_pod("p", on="n"))
    assert world.node("n").allocatable["cpu"] == 4000
    assert world.node("m").allocatable["cpu"] == 4000
    told = [record.message for record in caplog.records if "example.com/x" in record.message]
    assert len(told) == 1  # and not again with each pod


# -- what is on it -----------------------------------------------------------------------------------------------------


async def test_what_has_ended_takes_nothing_and_what_ends_still_does(world: Scene) -> None:
    ending = a_pod("ending", on="n", finalizers=HELD)
    await world.put(a_stranger("n"), ending, a_pod("done", on="n", phase="Succeeded"), a_pod("runs", on="n"))
    await world.delete(PODS, "ending")
    found = world.node("n")
    assert found.requested["cpu"] == 2000
    assert found.requested["pods"] == 2
    assert [pod.counts for pod in found.pods] == [False, True]


async def test_what_daemons_request_is_known_apart(world: Scene) -> None:
    daemon = a_pod("d", on="n", cpu="200m", owner=("DaemonSet", "d", "uid-d"))
    await world.put(a_stranger("n"), daemon, a_pod("p", on="n"))
    assert world.node("n").requested["cpu"] == 1200
    assert world.node("n").requested_by_daemons["cpu"] == 200


async def test_ports_of_the_node_that_are_taken(world: Scene) -> None:
    container = {
        "name": "main",
        "image": "example.invalid/main",
        "ports": [{"containerPort": 80, "hostPort": 8080}],
    }
    await world.put(a_stranger("n"), a_pod("p", on="n", containers=[container]))
    assert world.node("n").ports == {HostPort(8080, "TCP", "0.0.0.0")}
    await world.delete(PODS, "p")
    assert world.node("n").ports  # while it ends
    await world.delete(PODS, "p", grace_seconds=0)
    assert world.node("n").ports == frozenset()


async def test_claims_are_attached_by_drivers_as_far_as_the_node_can(world: Scene) -> None:
    await world.put(a_stranger("n"), a_csi_node("n", **{"disks": 2}), a_pod("p", on="n", volumes=with_claim("v")))
    assert world.node("n").attach_limits == {"disks": 2}
    assert world.node("n").attachments == frozenset()  # nobody knows of the claim
    await world.put(a_storage_class("fast", provisioner="disks"))
    await world.put(a_volume_claim("v", class_="fast"))
    assert world.node("n").attachments == {Attachment("disks", "default", "v")}
    await world.delete(STORAGE_CLASSES, "fast")
    assert world.node("n").attachments == frozenset()
    await world.put(a_volume_claim("v", class_="fast", volume="pv"))
    await world.put(a_volume("pv", driver="others"))
    assert world.node("n").attachments == {Attachment("others", "default", "v")}
    await world.delete(VOLUMES, "pv")
    assert world.node("n").attachments == frozenset()
    await world.put(a_volume("pv", driver="others"))
    await world.put(a_pod("q", on="n", volumes=with_claim("v")))
    assert len(world.node("n").attachments) == 1  # shared
    await world.delete(VOLUME_CLAIMS, "v")
    await world.delete(CSI_NODES, "n")
    assert world.node("n").attachments == frozenset()
    assert world.node("n").attach_limits == {}


# -- on their way out (06 §7.4) ----------------------------------------------------------------------------------------


async def test_a_node_whose_claim_is_deleted_takes_no_pods(world: Scene) -> None:
    await world.put(a_claim("c", of="n", finalizers=True), a_node("n"), a_node("other"))
    assert world.node("n").open
    await world.delete(NODECLAIMS, "c")
    assert not world.node("n").open
    assert world.node("other").open


async def test_a_node_of_others_that_is_deleted_takes_no_pods(world: Scene) -> None:
    held = a_stranger("n")
    held["metadata"]["finalizers"] = HELD
    await world.put(held)
    await world.delete(NODES, "n")
    assert not world.node("n").open


async def test_an_instance_that_is_being_ended_takes_no_pods(world: Scene) -> None:
    await world.put(a_claim("c", of="n", true=["InstanceTerminating"]))
    assert not world.node("c").open


async def test_a_registered_claim_whose_node_is_gone_takes_no_pods_until_the_node_is_back(world: Scene) -> None:
    await world.put(a_claim("c", of="n", true=["Registered"]), a_node("n"))
    assert world.node("n").open
    await world.delete(NODES, "n")
    assert not world.node("c").open
    await world.put(a_node("n"))
    assert world.node("n").open


async def test_what_a_command_has_begun_is_seen_by_a_new_leader(world: Scene) -> None:
    await world.put(a_claim("c", of="n", true=["Registered"]), a_node("n", taints=[DISRUPTED]))
    assert world.node("n").open  # a taint alone is no command, and keeps pods away by itself
    status = {"conditions": [condition(each) for each in ("Registered", "DisruptionReason")]}
    await world.change(NODECLAIMS, "c", {"status": status}, subresource="status")
    assert not world.node("n").open


async def test_a_mark_is_set_and_taken_back(world: Scene) -> None:
    await world.put(a_claim("c", of="n"), a_node("n"))
    world.state.mark("c")
    assert not world.node("n").open
    world.state.unmark("c")
    assert world.node("n").open
    world.state.unmark("c")
    world.state.mark("nobody")
    assert world.node("n").open


async def test_a_mark_goes_with_its_claim(world: Scene) -> None:
    await world.put(a_claim("c", of="n"))
    world.state.mark("c")
    await world.delete(NODECLAIMS, "c")
    await world.put(a_claim("c", of="n"))
    assert world.node("c").open


# -- what is told twice is the same ------------------------------------------------------------------------------------


async def test_nothing_new_is_the_same_object(world: Scene) -> None:
    await world.put(a_stranger("n"), a_stranger("m"), a_pod("p", on="n"))
    before = world.state.places()
    assert world.state.places() is before
    await world.change(NODES, "n", {"metadata": {"annotations": {"heard": "from"}}})
    await world.change(PODS, "p", {"status": {"message": "still there"}}, subresource="status")
    assert world.state.places() is before


async def test_only_what_changes_is_another_object(world: Scene) -> None:
    await world.put(a_stranger("l"), a_stranger("m"), a_stranger("n"), a_pod("p", on="m"))
    before = {node.name: node for node in world.state.places().nodes}
    await world.delete(PODS, "p")
    after = {node.name: node for node in world.state.places().nodes}
    assert {name for name in after if after[name] is not before[name]} == {"m"}
    assert before["m"].requested["cpu"] == 1000  # what was told stays as it was
    await world.put(a_stranger("k"))
    more = world.nodes()
    assert all(more[name] is after[name] for name in after)
