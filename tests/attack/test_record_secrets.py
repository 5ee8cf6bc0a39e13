"""Secrets are planted in every field of every kind: which of them does a dump keep?

With `--anonymize` none. Without, only those in fields that a command reads; what is in any other field is left out.
"""

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from dovetail.api import names
from dovetail.api.documents import Document
from dovetail.api.recorded import LEFT_OUT, RECORDED
from dovetail.views.record.anonymizing import Anonymizer
from dovetail.views.record.recording import recorded
from tests.unit.cli.running import Program

CLUSTER = str(Path(__file__).parents[2] / "examples" / "cluster.yaml")
AT = "2026-03-06T16:20:00Z"
KINDS = [pytest.param(group, kind, id=kind) for group, kind in RECORDED]
TIME = "2026-03-01T00:00:00Z"


class Planter:
    """Makes secrets, each of them once, and remembers where it has put them."""

    def __init__(self) -> None:
        self.needed: dict[str, str] = {}  # in fields that somebody reads
        self.hidden: dict[str, str] = {}  # in others
        self._numbers = count(100)

    def need(self, path: str) -> str:
        secret = f"planted{next(self._numbers)}q"
        self.needed[secret] = path
        return secret

    def hide(self, path: str) -> str:
        secret = f"hidden{next(self._numbers)}q"
        self.hidden[secret] = path
        return secret

    # -- fields that are read ------------------------------------------------------------------------------------------

    def value(self, info: inspect.Type, path: str) -> Any:
        """A value of the type, with a secret wherever text can be, and unknown fields at every level."""
        match info:
            case inspect.StructType(cls=struct, fields=fields):
                return {
                    **self.noise(path),
                    **{name: self.hide(f"{path}.{name}") for cls, name in LEFT_OUT if cls is struct},
                    **{
                        field.encode_name: self.value(field.type, f"{path}.{field.encode_name}")
                        for field in fields
                        if (struct, field.encode_name) not in LEFT_OUT
                    },
                }
            case inspect.UnionType(types=types):
                wanted = [each for each in types if not isinstance(each, inspect.NoneType)]
                return self.value(next((each for each in wanted if isinstance(each, inspect.StrType)), wanted[0]), path)
            case inspect.CollectionType(item_type=item):
                return [self.value(item, f"{path}[]"), self.value(item, f"{path}[]")]
            case inspect.DictType(value_type=inspect.AnyType() | inspect.CustomType()):
                return {"volumeID": self.hide(path), "path": self.hide(path), "nested": {"deep": [self.hide(path)]}}
            case inspect.DictType():
                return self.annotations(path) if path.endswith(".annotations") else self.mapping(path)
            case inspect.DateTimeType():
                return TIME
            case inspect.IntType():
                return 7
            case inspect.BoolType():
                return True
            case inspect.StrType():
                return self.need(path)
        raise AssertionError(f"no value for {info}")

    def mapping(self, path: str) -> dict[str, str]:
        keys = [self.need(f"{path} key"), f"{self.need(f'{path} domain')}.example/{self.need(f'{path} name')}"]
        keys += [f"{self.need(f'{path} subdomain')}.kubernetes.io/{self.need(f'{path} name')}", names.ZONE_LABEL]
        return {key: self.need(f"{path} value") for key in [*keys, names.INSTANCE_TYPE_LABEL, "app", "cpu"]}

    def annotations(self, path: str) -> dict[str, str]:
        whole = ".template.metadata." in path and path.startswith("NodePool")  # the drift of a pool depends on them all
        hide = self.need if whole else self.hide
        return {
            names.DO_NOT_DISRUPT: self.need(path),
            names.DISRUPTION_SCHEDULE: f"0 2 * * *; {self.need(path)} * * * *",
            names.DISRUPTION_SCHEDULE_DURATION: f"1h;{self.need(path)}",
            names.DISRUPTION_COMMAND: json.dumps({"id": self.need(path)}),
            f"karpenter.sh/{self.need(path)}": self.need(path),
            f"{self.need(path)}.karpenter.sh/x": "1",
            hide(path): hide(path),
            f"example.com/{hide(path)}": "1",
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"x": hide(path)}),
        }

    # -- and others ----------------------------------------------------------------------------------------------------

    def noise(self, path: str) -> dict[str, Any]:
        return {
            self.hide(f"{path} field"): self.hide(path),
            "env": [{"name": self.hide(f"{path}.env"), "value": self.hide(f"{path}.env")}],
            "managedFields": [{"manager": self.hide(f"{path}.managedFields"), "fieldsV1": {self.hide(path): {}}}],
        }

    def pod(self) -> dict[str, Any]:
        """A pod as real ones are, with a secret in each field that is left out."""
        hide = self.hide
        container = {
            "name": self.need("container"),
            "image": f"{hide('image registry')}.example/{hide('image')}:1",
            "command": [hide("command")],
            "args": [f"--password={hide('args')}"],
            "workingDir": hide("workingDir"),
            "env": [
                {"name": hide("env name"), "value": hide("env value")},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": hide("secretKeyRef"), "key": hide("key")}}},
            ],
            "envFrom": [{"configMapRef": {"name": hide("configMapRef")}}, {"secretRef": {"name": hide("secretRef")}}],
            "volumeMounts": [{"name": hide("mount"), "mountPath": hide("mountPath"), "subPath": hide("subPath")}],
            "livenessProbe": {
                "httpGet": {"path": hide("probe"), "httpHeaders": [{"name": "A", "value": hide("probe")}]}
            },
            "readinessProbe": {"exec": {"command": [hide("probe")]}},
            "lifecycle": {"preStop": {"exec": {"command": [hide("hook")]}}},
            "securityContext": {
                "seLinuxOptions": {"user": hide("seLinux")},
                "seccompProfile": {"localhostProfile": hide("x")},
            },
            "terminationMessagePath": hide("terminationMessagePath"),
            "ports": [{"name": hide("port"), "containerPort": 1}],
        }
        sources: dict[str, dict[str, Any]] = {
            "secret": {"secretName": hide("secret volume")},
            "configMap": {"name": hide("configMap volume")},
            "projected": {"sources": [{"secret": {"name": hide("projected")}}]},
            "hostPath": {"path": hide("hostPath")},
            "nfs": {"server": hide("nfs server"), "path": hide("nfs path")},
            "csi": {"driver": hide("inline driver"), "volumeAttributes": {"a": hide("attribute")}},
            "awsElasticBlockStore": {"volumeID": hide("inline EBS")},
            "cephfs": {"user": hide("cephfs"), "monitors": [hide("monitor")], "secretRef": {"name": hide("ref")}},
            "iscsi": {"iqn": hide("iqn"), "targetPortal": hide("portal")},
            "flexVolume": {"driver": hide("flex"), "options": {"a": hide("option")}},
            "gitRepo": {"repository": f"https://u:{hide('git password')}@git/x"},
            "downwardAPI": {"items": [{"path": hide("downward")}]},
            "emptyDir": {"medium": hide("medium")},
            "persistentVolumeClaim": {"claimName": self.need("claimName"), "x": hide("claim volume")},
            "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": {"x": hide("wrong type")}}}},
        }
        return {
            "metadata": {
                "name": self.need("pod"),
                "finalizers": [self.need("finalizer")],
                "selfLink": hide("selfLink"),
            },
            "spec": {
                "containers": [container],
                "initContainers": [{**container, "name": self.need("init")}],
                "volumes": [
                    {
                        "name": (self.need if kind in ("persistentVolumeClaim", "ephemeral") else hide)(kind),
                        kind: source,
                    }
                    for kind, source in sources.items()
                ],
                "schedulingGates": [{"name": self.need("gate"), "x": hide("gate")}],
                "schedulerName": self.need("schedulerName"),
                "restartPolicy": {"x": hide("of the wrong type")},
                "imagePullSecrets": [{"name": hide("imagePullSecrets")}],
                "serviceAccountName": hide("serviceAccountName"),
                "hostname": hide("hostname"),
                "subdomain": hide("subdomain"),
                "hostAliases": [{"ip": "1.2.3.4", "hostnames": [hide("hostAliases")]}],
                "dnsConfig": {"searches": [hide("dns")]},
                "readinessGates": [{"conditionType": hide("readinessGate")}],
                "runtimeClassName": hide("runtimeClassName"),
                "securityContext": {"sysctls": [{"name": hide("sysctl"), "value": hide("sysctl")}]},
            },
        }

    def pod_status(self) -> dict[str, Any]:
        hide = self.hide
        return {
            "podIP": hide("podIP"),
            "hostIP": hide("hostIP"),
            "message": hide("status message"),
            "reason": self.need("status reason"),
            "startTime": TIME,
            "conditions": [
                {"type": self.need("type"), "status": "True", "reason": self.need("reason"), "message": hide("m")}
            ],
            "containerStatuses": [
                {
                    "name": "c",
                    "imageID": hide("imageID"),
                    "containerID": hide("containerID"),
                    "image": hide("image"),
                }
            ],
        }

    def node(self) -> dict[str, Any]:
        hide = self.hide
        return {
            "metadata": {"name": self.need("node"), "generateName": self.need("generateName")},
            "spec": {
                "providerID": f"{self.need('scheme')}:///{self.need('zone')}/{self.need('machine')}",
                "podCIDR": hide("podCIDR"),
                "unschedulable": True,
                "configSource": {"configMap": {"name": hide("configSource")}},
                "taints": [{"key": f"{self.need('taint')}.example/{self.need('taint')}", "value": self.need("taint")}],
            },
            "status": {
                "addresses": [{"type": "InternalIP", "address": hide("address")}],
                "nodeInfo": {"machineID": hide("machineID"), "systemUUID": hide("uuid"), "osImage": hide("osImage")},
                "images": [{"names": [hide("images")]}],
                "volumesAttached": [{"name": hide("attached"), "devicePath": hide("device")}],
                "conditions": [
                    {"type": self.need("type"), "reason": self.need("reason"), "message": self.need("message")}
                ],
            },
        }

    def volume(self) -> dict[str, Any]:
        hide = self.hide
        sources = {
            "csi": {
                "driver": self.need("driver"),
                "volumeHandle": hide("handle"),
                "volumeAttributes": {"a": hide("attribute")},
                "nodePublishSecretRef": {"name": hide("secretRef")},
            },
            "awsElasticBlockStore": {"volumeID": hide("volumeID"), "fsType": hide("fsType")},
            "local": {"path": hide("local")},
            "hostPath": {"path": hide("hostPath")},
            "nfs": {"server": hide("nfs"), "path": hide("nfs")},
            "gcePersistentDisk": {"pdName": hide("pdName")},
            "azureDisk": {"diskURI": hide("diskURI")},
            "cephfs": {"secretFile": hide("cephfs")},
        }
        return {
            "metadata": {"name": self.need("volume")},
            "spec": {**sources, "mountOptions": [hide("mountOptions")], "claimRef": {"name": self.need("claimRef")}},
            "status": {"message": hide("message")},
        }

    def storage_class(self) -> dict[str, Any]:
        return {
            "metadata": {"name": self.need("class")},
            "provisioner": self.need("provisioner"),
            "parameters": {"secret": self.hide("parameter"), self.hide("parameter name"): "x"},
            "mountOptions": [self.hide("mountOptions")],
        }


def planted(planter: Planter, group: str, kind: str) -> Document:
    value = planter.value(inspect.type_info(RECORDED[group, kind]), kind)
    return as_document(group, kind, value)


def as_document(group: str, kind: str, value: dict[str, Any]) -> Document:
    version = f"{group}/v1" if group else "v1"
    return Document("f", 1, None, None, version, kind, msgspec.Raw(msgspec.json.encode(value)))


def all_planted(planter: Planter) -> Iterator[Document]:
    for group, kind in RECORDED:
        yield planted(planter, group, kind)
    yield as_document("", "Pod", {**planter.pod(), "status": planter.pod_status()})
    yield as_document("", "Node", planter.node())
    yield as_document("", "PersistentVolume", planter.volume())
    yield as_document("storage.k8s.io", "StorageClass", planter.storage_class())
    template = {"template": planter.pod(), "selector": {"matchLabels": {"app": planter.need("selector")}}}
    yield as_document("apps", "Deployment", {"metadata": {"name": planter.need("deployment")}, "spec": template})


def dumped(documents: Iterator[Document] | list[Document], *, anonymous: bool) -> str:
    anonymizer = Anonymizer()
    kept = [each for each in map(recorded, documents) if each is not None]
    return msgspec.json.encode([anonymizer.anonymized(each) for each in kept] if anonymous else kept).decode()


def test_an_anonymous_dump_holds_no_secret() -> None:
    planter = Planter()
    text = dumped(list(all_planted(planter)), anonymous=True)
    assert len(planter.needed) + len(planter.hidden) >= 90
    kept = {path for secret, path in (planter.needed | planter.hidden).items() if secret in text.lower()}
    assert kept == set()


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_of_each_kind_an_anonymous_dump_holds_no_secret(group: str, kind: str) -> None:
    planter = Planter()
    text = dumped([planted(planter, group, kind)], anonymous=True)
    assert {path for secret, path in (planter.needed | planter.hidden).items() if secret in text.lower()} == set()
    assert "planted" not in text.lower()
    assert "hidden" not in text.lower()


def test_a_dump_holds_only_what_is_read() -> None:
    planter = Planter()
    text = dumped(list(all_planted(planter)), anonymous=False)
    assert len(planter.hidden) >= 91
    assert {path for secret, path in planter.hidden.items() if secret in text} == set()
    # Nothing that is read is missing, or the first test would say nothing.
    assert {path for secret, path in planter.needed.items() if secret not in text} == set()


def test_what_is_kept_of_an_anonymous_dump_is_public_by_its_form() -> None:
    pod = {"metadata": {"name": "p", "labels": {"app": "1234567890123", "a": "10.1.2.3", "b": "15"}}}
    pod["metadata"]["uid"] = "8f3c2e1a-1f2e-4c3d-9a8b-0123456789ab"
    text = dumped([as_document("", "Pod", pod)], anonymous=True)
    assert "1234567890123" not in text  # a number of an account, say
    assert "10.1.2.3" not in text
    assert '"15"' in text
    assert "8f3c2e1a-1f2e-4c3d-9a8b-0123456789ab" in text


# -- the same answers --------------------------------------------------------------------------------------------------


def shape(value: Any) -> Any:
    """The answer without names: numbers, times and words of the program; lists without their order."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in sorted(value.items()) if key not in ("message", "id")}
    if isinstance(value, list):
        return sorted((shape(each) for each in value), key=repr)
    if isinstance(value, str) and not re.fullmatch(r"\d{4}-.*Z|S[1-6]|[A-Z][a-z]+", value):
        return ""
    return value


@pytest.mark.parametrize(
    "command",
    [("explain", "--for", "7d"), ("forecast", "--for", "7d"), ("plan",), ("plan", "--remove")],
    ids=" ".join,
)
def test_an_anonymous_dump_gives_the_same_answers(dovetail: Program, command: tuple[str, ...]) -> None:
    answers = []
    for options in ((), ("--anonymize",)):
        file = str(dovetail.folder / f"dump{len(options)}.json")
        assert dovetail("record", "-q", "-f", CLUSTER, "-o", file, *options).code == 0
        items = json.loads(Path(file).read_text())["items"]
        node = next(each["metadata"]["name"] for each in items if each["kind"] == "Node")
        named = [node] if command[-1] == "--remove" else []
        outcome = dovetail(*command, *named, "-f", file, "--at", AT, "-o", "json")
        assert outcome.code in (0, 1), outcome.err
        answer = json.loads(outcome.out)
        # The hash of a template is made of names, and is left out.
        answer["problems"] = [problem for problem in answer["problems"] if problem["rule"] != "HashDiffers"]
        # The Deployment of a pod is known by its name only.
        if "blockers" in answer:
            answer["blockers"] = sorted({each["rule"] for each in answer["blockers"]})
        answers.append(shape(answer))
    assert answers[0] == answers[1]
