"""Where volumes can be used, and how many a node takes. Docstrings cite 05 §13."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements
from dovetail.scheduling.volumes import (
    MAX_ALTERNATIVES,
    Attachment,
    PodVolumes,
    Storage,
    VolumeError,
    VolumeFlaw,
    attach_limits,
    attachments,
    over_limit,
    pod_volumes,
)
from tests.unit.scheduling.wire import allof, pod, required

EBS = "ebs.csi.aws.com"
DELETED = "2026-03-01T00:00:00Z"


def claim(
    name: str,
    *,
    volume: str = "",
    class_: str | None = None,
    bound: bool = True,
    deleted: str | None = None,
    phase: str = "Bound",
) -> PersistentVolumeClaim:
    annotations = {names.PVC_BIND_COMPLETED: "yes"} if volume and bound else {}
    meta = {"name": name, "namespace": "shop", "annotations": annotations, "deletionTimestamp": deleted}
    spec = {"volumeName": volume, "storageClassName": class_}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": phase}}, PersistentVolumeClaim)


def volume(
    name: str, *terms: dict[str, list[str]], deleted: str | None = None, source: dict[str, Any] | None = None
) -> PersistentVolume:
    """Each term: labels and the values that they may have."""
    written = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values} for key, values in term.items()]}
        for term in terms
    ]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": written}}} if terms else {}
    spec = {**(source or {"csi": {"driver": EBS}}), **affinity}
    return msgspec.convert({"metadata": {"name": name, "deletionTimestamp": deleted}, "spec": spec}, PersistentVolume)


def class_(
    name: str, *terms: dict[str, list[str]], provisioner: str = EBS, mode: str = "WaitForFirstConsumer"
) -> StorageClass:
    topologies = [
        {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]} for term in terms
    ]
    body = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        "allowedTopologies": topologies,
    }
    return msgspec.convert(body, StorageClass)


def storage(*objects: PersistentVolumeClaim | PersistentVolume | StorageClass) -> Storage:
    return Storage(
        claims={("shop", each.metadata.name): each for each in objects if isinstance(each, PersistentVolumeClaim)},
        volumes={each.metadata.name: each for each in objects if isinstance(each, PersistentVolume)},
        classes={each.metadata.name: each for each in objects if isinstance(each, StorageClass)},
    )


def using(*claims: str, name: str = "web-1") -> Any:
    return pod(name, volumes=[{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims])


def zones(*each: str) -> Requirements:
    return allof(required(names.ZONE_LABEL, "In", *each))


# -- places ------------------------------------------------------------------------------------------------------------


def test_a_pod_without_claims_can_go_anywhere() -> None:
    assert pod_volumes(pod(volumes=[{"name": "tmp", "emptyDir": {}}]), Storage()) == PodVolumes()
    assert PodVolumes().alternatives == (NO_REQUIREMENTS,)


def test_each_zone_of_a_volume_is_an_alternative_in_order() -> None:
    """05 §13.54."""
    known = storage(claim("data", volume="pv"), volume("pv", {names.ZONE_LABEL: ["b"]}, {names.ZONE_LABEL: ["a"]}))
    assert pod_volumes(using("data"), known).alternatives == (zones("b"), zones("a"))


def test_the_places_where_a_class_can_make_a_volume() -> None:
    old = "failure-domain.beta.kubernetes.io/zone"
    made = class_("fast", {old: ["a", "b"]}, {names.ZONE_LABEL: ["c"]})
    known = storage(claim("data", class_="fast", phase="Pending"), made)
    assert pod_volumes(using("data"), known).alternatives == (zones("a", "b"), zones("c"))


def test_branches_that_contradict_each_other_are_dropped() -> None:
    """05 §13.55."""
    known = storage(
        claim("one", volume="pv-1"),
        claim("two", volume="pv-2"),
        volume("pv-1", {names.ZONE_LABEL: ["a"]}, {names.ZONE_LABEL: ["b"]}),
        volume("pv-2", {names.ZONE_LABEL: ["b"]}, {names.ZONE_LABEL: ["c"]}),
    )
    assert pod_volumes(using("one", "two"), known).alternatives == (zones("b"),)


def test_a_pod_whose_volumes_all_contradict_each_other_fits_nowhere() -> None:
    """05 §13.55."""
    known = storage(
        claim("one", volume="pv-1"),
        claim("two", volume="pv-2"),
        volume("pv-1", {names.ZONE_LABEL: ["a"]}),
        volume("pv-2", {names.ZONE_LABEL: ["b"]}),
    )
    (torn,) = pod_volumes(using("one", "two"), known).alternatives
    assert torn.impossible


@pytest.mark.parametrize("source", ["local", "hostPath"])
def test_the_hostname_of_a_local_volume_is_ignored(source: str) -> None:
    """05 §13.56."""
    term = {names.HOSTNAME_LABEL: ["node-1"], names.ZONE_LABEL: ["a"]}
    known = storage(claim("data", volume="pv"), volume("pv", term, source={source: {"path": "/data"}}))
    assert pod_volumes(using("data"), known).alternatives == (zones("a"),)
    only = storage(
        claim("data", volume="pv"), volume("pv", {names.HOSTNAME_LABEL: ["node-1"]}, source={source: {"path": "/data"}})
    )
    assert pod_volumes(using("data"), only).alternatives == (NO_REQUIREMENTS,)


def test_the_hostname_of_any_other_volume_counts() -> None:
    known = storage(claim("data", volume="pv"), volume("pv", {names.HOSTNAME_LABEL: ["node-1"]}))
    (place,) = pod_volumes(using("data"), known).alternatives
    assert list(place.keys()) == [names.HOSTNAME_LABEL]


def test_an_ephemeral_volume_has_a_claim_of_the_pods_name() -> None:
    asked = pod("web-1", volumes=[{"name": "scratch", "ephemeral": {}}])
    known = storage(claim("web-1-scratch", volume="pv"), volume("pv", {names.ZONE_LABEL: ["a"]}))
    assert pod_volumes(asked, known).alternatives == (zones("a"),)
    with pytest.raises(VolumeError, match="claim web-1-scratch does not exist"):
        pod_volumes(asked, Storage())


def test_too_many_combinations_are_refused() -> None:
    keys = [f"example.com/rack-{number}" for number in range(11)]
    known = storage(
        *(claim(f"c{index}", volume=f"pv-{index}") for index in range(11)),
        *(volume(f"pv-{index}", {key: ["a"]}, {key: ["b"]}) for index, key in enumerate(keys)),
    )
    assert 2 ** len(keys) > MAX_ALTERNATIVES
    with pytest.raises(VolumeError) as refused:
        pod_volumes(using(*(f"c{index}" for index in range(11))), known)
    assert refused.value.flaw is VolumeFlaw.TOO_MANY
    assert len(pod_volumes(using(*(f"c{index}" for index in range(9))), known).alternatives) == 512


TERMS = st.lists(st.sets(st.sampled_from("abcd"), min_size=1), max_size=3)


@given(st.lists(TERMS, min_size=1, max_size=4))
def test_a_zone_will_do_if_and_only_if_it_does_for_each_volume(volumes: list[list[set[str]]]) -> None:
    known = storage(
        *(claim(f"c{index}", volume=f"pv-{index}") for index in range(len(volumes))),
        *(
            volume(f"pv-{index}", *({names.ZONE_LABEL: sorted(term)} for term in terms))
            for index, terms in enumerate(volumes)
        ),
    )
    found = pod_volumes(using(*(f"c{index}" for index in range(len(volumes)))), known).alternatives
    assert len(set(found)) == len(found)
    for zone in "abcd":
        does = all(not terms or any(zone in term for term in terms) for terms in volumes)
        assert any(each.get(names.ZONE_LABEL).has(zone) for each in found) == does


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "flaw"),
    [
        (storage(), VolumeFlaw.CLAIM_MISSING),
        (storage(claim("data", volume="pv", deleted=DELETED), volume("pv")), VolumeFlaw.CLAIM_DELETING),
        (storage(claim("data", volume="pv", phase="Lost"), volume("pv")), VolumeFlaw.CLAIM_LOST),
        (storage(claim("data", volume="pv")), VolumeFlaw.VOLUME_MISSING),
        (storage(claim("data", volume="pv"), volume("pv", deleted=DELETED)), VolumeFlaw.VOLUME_DELETING),
        (storage(claim("data", volume="pv", bound=False), volume("pv")), VolumeFlaw.NOT_YET_BOUND),
        (storage(claim("data")), VolumeFlaw.NO_CLASS),
        (storage(claim("data", class_="")), VolumeFlaw.NO_CLASS),
        (storage(claim("data", class_="fast")), VolumeFlaw.CLASS_MISSING),
        (storage(claim("data", class_="fast"), class_("fast", mode="Immediate")), VolumeFlaw.BOUND_BEFOREHAND),
    ],
)
def test_claims_with_which_a_pod_is_refused(known: Storage, flaw: VolumeFlaw) -> None:
    """05 §13.57."""
    with pytest.raises(VolumeError) as refused:
        pod_volumes(using("data"), known)
    assert (refused.value.claim, refused.value.flaw) == ("data", flaw)
    assert str(refused.value) == f"claim data {flaw}"


def test_a_bound_claim_needs_no_class_any_more() -> None:
    """05 §13.57."""
    assert pod_volumes(using("data"), storage(claim("data", volume="pv", class_="gone"), volume("pv"))).alternatives


def test_a_class_that_says_nothing_binds_immediately() -> None:
    silent = msgspec.convert({"metadata": {"name": "fast"}, "provisioner": EBS}, StorageClass)
    with pytest.raises(VolumeError, match="binds volumes before"):
        pod_volumes(using("data"), storage(claim("data", class_="fast"), silent))


def test_an_affinity_that_cannot_be_read_is_refused() -> None:
    bad = {"matchExpressions": [{"key": "rack", "operator": "Near", "values": ["a"]}]}
    spec = {"csi": {"driver": EBS}, "nodeAffinity": {"required": {"nodeSelectorTerms": [bad]}}}
    broken = msgspec.convert({"metadata": {"name": "pv"}, "spec": spec}, PersistentVolume)
    with pytest.raises(VolumeError, match="label 'rack': 'Near' is no operator") as refused:
        pod_volumes(using("data"), storage(claim("data", volume="pv"), broken))
    assert refused.value.flaw is VolumeFlaw.UNREADABLE


# -- attaching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "driver"),
    [
        (storage(claim("data", volume="pv"), volume("pv")), EBS),
        (
            storage(claim("data", volume="pv"), volume("pv", source={"awsElasticBlockStore": {"volumeID": "vol-1"}})),
            EBS,
        ),
        (storage(claim("data", volume="pv"), volume("pv", source={"nfs": {"server": "files"}})), None),
        (storage(claim("data", class_="c"), class_("c", provisioner="kubernetes.io/gce-pd")), "pd.csi.storage.gke.io"),
        (storage(claim("data", class_="c"), class_("c", provisioner="example.com/own")), "example.com/own"),
        (storage(claim("data", class_="c")), None),
        (storage(claim("data", class_="")), None),
        (storage(claim("data", volume="gone")), None),
        (storage(), None),
    ],
)
def test_the_driver_of_a_claim(known: Storage, driver: str | None) -> None:
    expected = set() if driver is None else {Attachment(driver, "shop", "data")}
    assert attachments(using("data"), known) == expected


def test_two_pods_on_one_claim_count_once() -> None:
    """05 §13.53."""
    known = storage(*(claim(name, volume=f"pv-{name}") for name in ("one", "two")), volume("pv-one"), volume("pv-two"))
    first, second, both = (pod_volumes(using(*each), known).attachments for each in (["one"], ["two"], ["one", "two"]))
    limits = {EBS: 1}
    assert over_limit(first, first, limits) is None
    assert over_limit(second, first, limits) == EBS
    assert over_limit(both, frozenset(), limits) == EBS
    assert over_limit(both, first | second, limits) is None  # nothing that is not there already
    assert over_limit(both, frozenset(), {"other": 0}) is None


def test_the_limits_of_a_node() -> None:
    drivers = [{"name": EBS, "allocatable": {"count": 25}}, {"name": "own"}, {"name": "none", "allocatable": {}}]
    found = msgspec.convert({"metadata": {"name": "node-1"}, "spec": {"drivers": drivers}}, CSINode)
    assert attach_limits(found) == {EBS: 25}
    assert attach_limits(None) == {}
