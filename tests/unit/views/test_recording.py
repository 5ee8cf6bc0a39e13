"""Does a dump hold all that is read, and nothing else?"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from dovetail.api import names
from dovetail.api.documents import Document, InputError, read_documents
from dovetail.api.recorded import LEFT_OUT, RECORDED
from dovetail.views.record.recording import IMAGE, recorded

PLANTED = "planted"
NOISE = {PLANTED: {PLANTED: PLANTED}, "annotation": PLANTED, "env": [{"name": PLANTED, "value": PLANTED}]}
KINDS = [pytest.param(group, kind, id=kind) for group, kind in RECORDED]
EXAMPLES = Path(__file__).parents[3] / "examples"


def full(info: inspect.Type) -> Any:
    """A value with every field that the type has, and at every level some that it has not."""
    match info:
        case inspect.StructType(cls=struct, fields=fields):
            known = {f.encode_name: full(f.type) for f in fields if (struct, f.encode_name) not in LEFT_OUT}
            left_out = {name: PLANTED for cls, name in LEFT_OUT if cls is struct}
            return {**NOISE, **left_out, **known}
        case inspect.UnionType(types=types):
            return full(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.CollectionType(item_type=item):
            return [full(item), full(item)]
        case inspect.DictType(value_type=inspect.AnyType() | inspect.CustomType()):
            return dict(NOISE)
        case inspect.DictType():
            return {"karpenter.sh/kept": "1"}
        case inspect.DateTimeType():
            return "2026-03-01T00:00:00.123456Z"
        case inspect.IntType():
            return 7
        case inspect.BoolType():
            return True
        case inspect.StrType():
            return "text"
    raise AssertionError(f"no value for {info}")


def document(group: str, kind: str, value: dict[str, Any]) -> Document:
    version = f"{group}/v1" if group else "v1"
    return Document("f", 1, None, None, version, kind, msgspec.Raw(msgspec.json.encode(value)))


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_all_that_is_read_is_kept_and_nothing_else(group: str, kind: str) -> None:
    struct = RECORDED[group, kind]
    original = full(inspect.type_info(struct))
    kept = recorded(document(group, kind, original))
    assert kept is not None
    assert PLANTED in msgspec.json.encode(original).decode()
    assert PLANTED not in msgspec.json.encode(kept).decode()
    assert (kept["apiVersion"].rpartition("/")[0], kept["kind"]) == (group, kind)
    before, after = (msgspec.convert(_without_open(each), struct) for each in (original, kept))
    assert after == before


def _without_open(value: Any) -> Any:
    """Of open mappings only the presence is compared; what is meant to be left out is."""
    if isinstance(value, dict):
        opened, left_out = ("ephemeral", "awsElasticBlockStore", "local", "hostPath"), {name for _, name in LEFT_OUT}
        return {key: {} if key in opened else _without_open(each) for key, each in value.items() if key not in left_out}
    return [_without_open(each) for each in value] if isinstance(value, list) else value


def test_annotations_are_kept_by_name() -> None:
    annotations = {
        names.DO_NOT_DISRUPT: "true",
        "compute.karpenter.sh/x": "provider",
        names.POD_DELETION_COST: "1",
        "dovetail.dev/run-for": "1h",
        "notkarpenter.sh/x": PLANTED,
        "karpenter.sh.example.com/x": PLANTED,
        "kubectl.kubernetes.io/last-applied-configuration": PLANTED,
        "plain": PLANTED,
    }
    kept = recorded(document("", "Pod", {"metadata": {"name": "p", "annotations": annotations}}))
    assert kept is not None
    assert kept["metadata"]["annotations"] == {key: value for key, value in annotations.items() if value != PLANTED}


def test_volumes_that_bind_a_pod_to_no_place_are_left_out() -> None:
    volumes = [
        {"name": "a", "secret": {"secretName": PLANTED}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "s", "selector": NOISE}}}},
    ]
    kept = recorded(document("", "Pod", {"metadata": {"name": "p"}, "spec": {"volumes": volumes}}))
    assert kept is not None
    assert kept["spec"]["volumes"] == [
        {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "s"}}}},
    ]


def test_containers_have_an_image_that_says_nothing() -> None:
    spec = {"containers": [{"name": "c", "image": PLANTED}], "initContainers": [{"name": "i", "image": PLANTED}]}
    kept = recorded(document("", "Pod", {"metadata": {"name": "p"}, "spec": spec}))
    assert kept is not None
    assert kept["spec"] == {
        "containers": [{"name": "c", "image": IMAGE}],
        "initContainers": [{"name": "i", "image": IMAGE}],
    }


@pytest.mark.parametrize(("version", "kind"), [("v1", "Secret"), ("v1", "ConfigMap"), ("example.com/v1", "Pod")])
def test_other_kinds_are_not_kept(version: str, kind: str) -> None:
    value = {"metadata": {"name": "x"}, "data": {"password": PLANTED}}
    assert recorded(Document("f", 1, None, None, version, kind, None, value)) is None


def test_what_stands_in_a_wrong_place_is_refused() -> None:
    value = {"metadata": {"name": "p"}, "spec": {"containers": {"password": PLANTED}}}
    with pytest.raises(InputError, match=r"spec\.containers"):
        recorded(document("", "Pod", value))


@pytest.mark.parametrize("value", [{}, {"metadata": {"namespace": "n"}}, {"metadata": None}])
def test_what_has_no_name_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"metadata\.name: is required"):
        recorded(document("", "Pod", value))


def test_nulls_are_absent() -> None:
    assert recorded(document("", "Pod", {"metadata": {"name": "p", "labels": None}, "spec": None})) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
    }


def test_recording_twice_changes_nothing() -> None:
    data = (EXAMPLES / "cluster.yaml").read_bytes()
    once = [recorded(each) for each in read_documents(data, "cluster.yaml")]
    again = read_documents(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": once}), "again")
    assert [recorded(each) for each in again] == once
