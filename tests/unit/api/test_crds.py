"""Are the definitions what the API server demands, what 01 says, and what names.py and objects.py expect?"""

import re
import types
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
import yaml

from dovetail.api import names, objects
from dovetail.api.crds import crd_text, load_crds
from dovetail.api.schema import defaulted, violations
from dovetail.rules.reasons import DISRUPTION_REASONS
from tests.unit.api.crd_cases import CASES, Case, nodeclaim, nodeclass, nodepool

Schema = dict[str, Any]

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in load_crds()}
SCHEMAS: dict[str, Schema] = {
    kind: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind, crd in CRDS.items()
}
RULES = "x-kubernetes-validations"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
MAP_KEYS = "x-kubernetes-list-map-keys"

# Everything else the API server either forbids in a structural schema or we have no use for.
KEYWORDS = {
    *(
        "type",
        "description",
        "properties",
        "additionalProperties",
        "items",
        "required",
        "default",
        "enum",
        "format",
        "pattern",
    ),
    *("minLength", "maxLength", "minimum", "maximum", "maxItems", "maxProperties", "anyOf"),
    *(RULES, INT_OR_STRING, LIST_TYPE, MAP_KEYS, "x-kubernetes-map-type"),
}
PYTHON_TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


class Place(NamedTuple):
    """A schema and where it stands; `above` are the schemas around it, the outermost first."""

    path: str
    schema: Schema
    above: tuple[Schema, ...]


def places(schema: Schema, path: str, above: tuple[Schema, ...] = ()) -> Iterator[Place]:
    """The schema and all schemas inside it."""
    yield Place(path, schema, above)
    inside = (*above, schema)
    for name, part in schema.get("properties", {}).items():
        yield from places(part, f"{path}.{name}", inside)
    if "items" in schema:
        yield from places(schema["items"], f"{path}[]", inside)
    if "additionalProperties" in schema:
        yield from places(schema["additionalProperties"], f"{path}{{}}", inside)


PLACES = [place for kind, schema in SCHEMAS.items() for place in places(schema, kind)]


def at(kind: str, path: str) -> Schema:
    """The schema at a path such as `spec.disruption.budgets[].nodes`."""
    return next(place.schema for place in PLACES if place.path == f"{kind}.{path}")


def errors(schema: Schema, value: Any) -> list[str]:
    """The paths of what is wrong with the value, defaults filled in."""
    return [violation.field for violation in violations(defaulted(value, schema), schema)]


# -- the definitions as such -------------------------------------------------------------------------------------------


def test_there_is_one_definition_a_kind() -> None:
    assert list(CRDS) == [names.NODEPOOL_KIND, names.NODECLAIM_KIND, names.KWOK_NODECLASS_KIND]


def test_the_text_is_the_same_definitions() -> None:
    assert list(yaml.safe_load_all(crd_text())) == load_crds()


def test_every_load_gives_new_documents() -> None:
    load_crds()[0]["spec"].clear()
    assert load_crds()[0]["spec"]


@pytest.mark.parametrize(
    ("kind", "group", "version", "plural", "short_names"),
    [
        (names.NODEPOOL_KIND, names.GROUP, names.VERSION, names.NODEPOOL_PLURAL, None),
        (names.NODECLAIM_KIND, names.GROUP, names.VERSION, names.NODECLAIM_PLURAL, None),
        (
            names.KWOK_NODECLASS_KIND,
            names.KWOK_GROUP,
            names.KWOK_VERSION,
            names.KWOK_NODECLASS_PLURAL,
            ["kwoknc", "kwokncs"],
        ),
    ],
)
def test_identity(kind: str, group: str, version: str, plural: str, short_names: list[str] | None) -> None:
    crd = CRDS[kind]
    assert (crd["apiVersion"], crd["kind"]) == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert crd["metadata"] == {"name": f"{plural}.{group}"}
    spec = crd["spec"]
    assert (spec["group"], spec["scope"]) == (group, "Cluster")
    expected = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "categories": ["karpenter"],
    }
    assert spec["names"] == (expected | {"shortNames": short_names} if short_names else expected)
    assert [(v["name"], v["served"], v["storage"]) for v in spec["versions"]] == [(version, True, True)]


def test_subresources() -> None:
    found = {kind: crd["spec"]["versions"][0]["subresources"] for kind, crd in CRDS.items()}
    assert found == {
        "NodePool": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
        },
        "NodeClaim": {"status": {}},
        "KWOKNodeClass": {"status": {}},
    }
    assert at("NodePool", "spec.replicas")["type"] == at("NodePool", "status.nodes")["type"] == "integer"


def columns(kind: str, *, wide: bool) -> dict[str, str]:
    found = CRDS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert len({column["name"] for column in found}) == len(found)
    return {column["name"]: column["jsonPath"] for column in found if column.get("priority", 0) == int(wide)}


def label_path(key: str) -> str:
    return ".metadata.labels." + key.replace(".", "\\.")


def condition_path(condition: names.ConditionType, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{condition}")].{field}'


AGE = ".metadata.creationTimestamp"


def test_columns_of_nodepools() -> None:
    assert columns("NodePool", wide=False) == {
        "NodeClass": ".spec.template.spec.nodeClassRef.name",
        "Nodes": ".status.nodes",
        "Ready": condition_path(names.ConditionType.READY),
        "Age": AGE,
    }
    assert columns("NodePool", wide=True) == {
        "Weight": ".spec.weight",
        "CPU": ".status.resources.cpu",
        "Memory": ".status.resources.memory",
    }


def test_columns_of_nodeclaims_show_the_state() -> None:
    assert columns("NodeClaim", wide=False) == {
        "Type": label_path(names.INSTANCE_TYPE_LABEL),
        "Capacity": label_path(names.CAPACITY_TYPE_LABEL),
        "Zone": label_path(names.ZONE_LABEL),
        "Node": ".status.nodeName",
        "Ready": condition_path(names.ConditionType.READY),
        "State": condition_path(names.ConditionType.DISRUPTION_STATE, "reason"),  # R21
        "Age": AGE,
    }
    assert columns("NodeClaim", wide=True) == {
        "ImageID": ".status.imageID",
        "ID": ".status.providerID",
        "NodePool": label_path(names.NODEPOOL_LABEL),
        "NodeClass": ".spec.nodeClassRef.name",
        "Drifted": condition_path(names.ConditionType.DRIFTED),
    }


@pytest.mark.parametrize("kind", CRDS)
def test_columns_show_fields_that_exist(kind: str) -> None:
    known = {place.path for place in PLACES}
    for path in [*columns(kind, wide=False).values(), *columns(kind, wide=True).values()]:
        if not path.startswith(".metadata."):
            plain = re.sub(r"\[.*\]", "[]", path).removesuffix(".cpu").removesuffix(".memory")
            assert f"{kind}{plain}" in known


# -- structural schemas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.path)
def test_schema_is_structural(place: Place) -> None:
    schema = place.schema
    assert set(schema) <= KEYWORDS
    if INT_OR_STRING in schema:  # the only place where the API server allows a missing type and a nested one
        assert schema[INT_OR_STRING] is True
        assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        assert "type" not in schema
    else:
        assert schema["type"] in PYTHON_TYPES
        assert "anyOf" not in schema
    assert ("items" in schema) == (schema.get("type") == "array")
    assert not {"properties", "additionalProperties"} <= set(schema)
    assert set(schema.get("required", ())) <= set(schema.get("properties", {}))
    assert schema.get("minimum", 0) <= schema.get("maximum", 2**63)
    assert len(schema.get("enum", ())) == len(set(schema.get("enum", ())))


@pytest.mark.parametrize("place", [p for p in PLACES if p.schema.get("type") == "object"], ids=lambda place: place.path)
def test_objects_say_what_is_in_them(place: Place) -> None:
    is_metadata = len(place.above) == 1 and place.path.endswith(".metadata")
    assert is_metadata == (not {"properties", "additionalProperties"} & set(place.schema))
    if is_metadata:
        assert place.schema == {"type": "object"}


def test_numbers_or_text_are_quantities_only() -> None:
    """People write `cpu: 1000`, and Kubernetes reads quantities so; nothing else may be both."""
    found = {place.path for place in PLACES if INT_OR_STRING in place.schema}
    assert found == {
        "NodePool.spec.limits{}",
        "NodePool.status.resources{}",
        "NodeClaim.spec.resources.requests{}",
        "NodeClaim.status.capacity{}",
        "NodeClaim.status.allocatable{}",
    }
    assert len({place.schema["pattern"] for place in PLACES if place.path in found}) == 1


@pytest.mark.parametrize("place", [p for p in PLACES if p.schema.get("type") == "array"], ids=lambda place: place.path)
def test_lists_say_how_they_merge(place: Place) -> None:
    kind, items = place.schema[LIST_TYPE], place.schema["items"]
    merging = {"reasons": "set", "conditions": "map", "disruptions": "map"}
    expected = merging.get(place.path.rpartition(".")[2], "atomic")
    assert kind == expected
    assert (kind == "map") == (MAP_KEYS in place.schema)
    if kind == "set":
        assert items["type"] == "string"
    for key in place.schema.get(MAP_KEYS, ()):
        assert key in items["required"]
        assert items["properties"][key]["type"] == "string"


@pytest.mark.parametrize("place", [p for p in PLACES if "default" in p.schema], ids=lambda place: place.path)
def test_defaults_are_valid(place: Place) -> None:
    assert errors(place.schema, place.schema["default"]) == []


@pytest.mark.parametrize("place", [p for p in PLACES if "pattern" in p.schema], ids=lambda place: place.path)
def test_patterns_are_anchored_and_mean_the_same_in_go(place: Place) -> None:
    pattern = place.schema["pattern"]
    re.compile(pattern)
    assert pattern.startswith("^")
    assert pattern.endswith("$")
    assert "(?" not in pattern
    assert not re.search(r"\\[1-9AbBzZ]", pattern)


@pytest.mark.parametrize(
    "place",
    [p for p in PLACES if p.above and "properties" in p.above[-1] and not p.path.endswith(".metadata")],
    ids=lambda place: place.path,
)
def test_every_field_is_explained(place: Place) -> None:
    text = place.schema["description"]
    assert re.fullmatch(r"[A-Z0-9].*\.", text, re.DOTALL)
    if not place.path.endswith("terminationGracePeriod"):
        assert "\n" not in text
        assert len(text) <= 240


@pytest.mark.parametrize("path", ["NodePool.spec.template.spec", "NodeClaim.spec"])
def test_termination_grace_period_warns(path: str) -> None:
    """The warnings that seed 002 wants to be called out."""
    kind, _, rest = path.partition(".")
    text = at(kind, f"{rest}.terminationGracePeriod")["description"]
    for word in (
        "Warning",
        "PodDisruptionBudgets",
        names.DO_NOT_DISRUPT,
        "terminationGracePeriodSeconds",
        "drifted",
        "0s",
    ):
        assert word in text
    assert ("every node of the pool" in text) == (kind == "NodePool")


# -- defaults, and agreement with names.py -----------------------------------------------------------------------------


def test_defaults_of_a_nodepool() -> None:
    stored = defaulted(nodepool(), SCHEMAS["NodePool"])
    assert stored["spec"]["template"]["spec"]["expireAfter"] == "720h"
    assert stored["spec"]["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": names.ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED,
        "gracefulExpireAfter": names.NEVER,  # R20
        "budgets": [{"nodes": "10%"}],  # R30
    }
    assert "status" not in stored
    assert at("NodePool", "status.nodes")["default"] == 0


def test_defaults_do_not_depend_on_how_little_is_written() -> None:
    stored = defaulted(nodepool(), SCHEMAS["NodePool"])
    assert defaulted(nodepool({"disruption": {}}), SCHEMAS["NodePool"]) == stored
    assert defaulted(nodepool({"disruption": {"budgets": [{}]}}), SCHEMAS["NodePool"]) == stored


def test_limits_of_budgets() -> None:
    budgets = at("NodePool", "spec.disruption.budgets")
    assert budgets["maxItems"] == budgets["items"]["properties"]["reasons"]["maxItems"] == 50  # R30, 01 §3.1
    assert budgets["items"]["required"] == ["nodes"]


def test_an_empty_list_of_budgets_stays_empty() -> None:
    stored = defaulted(nodepool({"disruption": {"budgets": []}}), SCHEMAS["NodePool"])
    assert stored["spec"]["disruption"]["budgets"] == []  # R30: unbounded


def test_defaults_of_a_nodeclaim() -> None:
    assert defaulted(nodeclaim(), SCHEMAS["NodeClaim"])["spec"]["expireAfter"] == "720h"


def test_a_kwoknodeclass_starts_out_ready() -> None:
    assert defaulted(nodeclass(), SCHEMAS["KWOKNodeClass"])["status"]["conditions"] == [
        {
            "type": names.ConditionType.READY,
            "status": "True",
            "reason": names.ConditionType.READY,
            "message": "",
            "lastTransitionTime": "2024-01-01T01:01:01Z",
        }
    ]


def test_choices_are_those_of_names() -> None:
    assert set(at("NodePool", "spec.disruption.consolidationPolicy")["enum"]) == set(names.ConsolidationPolicy)
    reasons = set(DISRUPTION_REASONS)  # R28
    allowed = set(at("NodePool", "spec.disruption.budgets[].reasons[]")["enum"])
    assert allowed == reasons | {reason.lower() for reason in reasons}
    for field in ("taints", "startupTaints"):
        assert set(at("NodePool", f"spec.template.spec.{field}[].effect")["enum"]) == set(names.TaintEffect)


QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"


@pytest.mark.parametrize("kind", CRDS)
def test_conditions_are_those_of_kubernetes(kind: str) -> None:
    """As metav1.Condition, except that a NodeClaim's may lack reason and message, or have an empty reason (01 §5.3)."""
    lenient = kind == "NodeClaim"
    schema = at(kind, "status.conditions[]")
    required = {"type", "status", "lastTransitionTime"} | (set() if lenient else {"reason", "message"})
    assert set(schema["required"]) == required
    fields = {k: {a: b for a, b in v.items() if a != "description"} for k, v in schema["properties"].items()}
    reason = {"pattern": f"^({REASON})?$"} if lenient else {"pattern": f"^{REASON}$", "minLength": 1}
    assert fields == {
        "type": {"type": "string", "maxLength": 316, "pattern": QUALIFIED_NAME},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string", "maxLength": 1024, **reason},
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
    }


def test_formats() -> None:
    formats = {place.path: place.schema["format"] for place in PLACES if "format" in place.schema}
    instants = {path for path, form in formats.items() if form == "date-time"}
    assert {path.rpartition(".")[2] for path in instants} == {
        "timeAdded",
        "lastTransitionTime",
        "lastPodEventTime",
        "nextChange",
    }
    numbers = {path: form for path, form in formats.items() if path not in instants}
    assert {path: form for path, form in numbers.items() if not path.endswith("observedGeneration")} == {
        "NodePool.spec.weight": "int32",
        "NodePool.spec.replicas": "int64",
        "NodePool.status.nodes": "int64",
        "NodePool.status.nodeClassObservedGeneration": "int64",
        "NodePool.status.disruptions[].limit": "int64",
        "NodePool.status.disruptions[].inUse": "int64",
        "NodePool.status.disruptions[].allowed": "int64",
    }


def test_labels_of_a_template_are_replaced_as_a_whole() -> None:
    atomic = {place.path for place in PLACES if place.schema.get("x-kubernetes-map-type") == "atomic"}
    assert atomic == {"NodePool.spec.template.metadata.labels"}  # 01 §4: annotations are merged one by one


def test_a_template_asks_for_what_a_claim_asks_for() -> None:
    """Both files spell the same spec out; apart from the stricter rules of a pool they must not drift apart."""

    def common(schema: Schema) -> Any:
        keep = {k: v for k, v in schema.items() if k not in (RULES, "description")}
        if "properties" in keep:
            keep["properties"] = {k: common(v) for k, v in keep["properties"].items() if k != "resources"}
        if "items" in keep:
            keep["items"] = common(keep["items"])
        return keep

    assert common(at("NodePool", "spec.template.spec")) == common(at("NodeClaim", "spec"))


# -- CEL rules ---------------------------------------------------------------------------------------------------------

PLACED_RULES = [(place, rule) for place in PLACES for rule in place.schema.get(RULES, ())]
each_rule = pytest.mark.parametrize(("place", "rule"), PLACED_RULES, ids=lambda part: getattr(part, "path", None))


def rules_saying(case: Case) -> list[dict[str, str]]:
    """The rules of the case's kind whose message is the case's error."""
    ours = [rule for place, rule in PLACED_RULES if place.path.startswith(case.new["kind"])]
    return [rule for rule in ours if (case.error or "") in rule["message"]]


def rules_at(kind: str, path: str) -> str:
    return "\n".join(rule["rule"] for rule in at(kind, path)[RULES])


@each_rule
def test_rules_say_what_is_wrong(place: Place, rule: dict[str, str]) -> None:
    assert set(rule) == {"rule", "message"}
    assert "\n" not in rule["message"] + rule["rule"]
    assert [r["message"] for r in place.schema[RULES]].count(rule["message"]) == 1


@each_rule
def test_rules_are_well_formed(place: Place, rule: dict[str, str]) -> None:
    text = re.sub(r"'[^']*'", "''", rule["rule"])
    assert text.count("'") % 2 == 0
    for left, right in ("()", "[]"):
        assert text.count(left) == text.count(right)
    assert "self" in text, place.path


@each_rule
def test_rules_name_fields_that_exist(place: Place, rule: dict[str, str]) -> None:
    text = re.sub(r"'[^']*'", "''", rule["rule"])
    within = place.schema.get("properties", {})
    each = place.schema.get("items", {}).get("properties", {})
    for variable, field in re.findall(r"\b(\w+)\.(\w+)\b(?!\()", text):
        assert field in (within if variable in ("self", "oldSelf") else each)


@each_rule
def test_rules_are_bounded(place: Place, rule: dict[str, str]) -> None:
    """The API server estimates a rule's cost from the largest object that the schema admits, and refuses dear ones."""
    if ".all(" in rule["rule"]:
        limits = {"maxItems", "maxProperties"} & set(place.schema)
        assert [place.schema[limit] <= 100 for limit in limits] == [True]
    if place.schema["type"] == "string":
        assert place.schema["maxLength"] <= 316
    for above in place.above:
        assert above["type"] != "array" or above["maxItems"] <= 100


@each_rule
def test_every_rule_has_an_object_that_breaks_it(place: Place, rule: dict[str, str]) -> None:
    kind = place.path.partition(".")[0]
    broken = [case for case in CASES if case.by == "cel" and case.new["kind"] == kind and rule in rules_saying(case)]
    assert broken
    assert ("oldSelf" in rule["rule"]) == all(case.old is not None for case in broken)


@pytest.mark.parametrize(
    ("kind", "path", "words"),
    [
        ("NodePool", "spec", ("has(self.replicas) == has(oldSelf.replicas)", "self.limits", "'nodes'", "self.weight")),
        ("NodePool", "spec.disruption.budgets", ("has(b.schedule) == has(b.duration)",)),
        ("NodePool", "spec.template.spec.nodeClassRef", ("self.group == oldSelf.group", "self.kind == oldSelf.kind")),
        (
            "NodePool",
            "spec.template.metadata.labels",
            (names.NODEPOOL_LABEL, names.HOSTNAME_LABEL, names.CAPACITY_TYPE_LABEL),
        ),
        ("NodeClaim", "spec", ("self == oldSelf",)),
    ],
)
def test_rules_of_the_specification(kind: str, path: str, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in rules_at(kind, path)


@pytest.mark.parametrize(("kind", "spec"), [("NodePool", "spec.template.spec"), ("NodeClaim", "spec")])
def test_rules_of_requirements_and_references(kind: str, spec: str) -> None:
    requirements = rules_at(kind, f"{spec}.requirements")
    for word in ("'In'", "'Gt', 'Lt', 'Gte', 'Lte'", "r.minValues", "int(r.values[0]) >= 0"):
        assert word in requirements
    keys = rules_at(kind, f"{spec}.requirements[].key")
    allowed = {
        names.CAPACITY_TYPE_LABEL,
        names.NODEPOOL_LABEL,
        names.HOSTNAME_LABEL,
        names.KWOK_NODECLASS_LABEL,
        names.KWOK_INSTANCE_CPU_LABEL,
        names.KWOK_INSTANCE_MEMORY_LABEL,
        names.KWOK_INSTANCE_FAMILY_LABEL,
        names.KWOK_INSTANCE_SIZE_LABEL,
    }
    assert set(re.findall(r"'([a-z.]+/[a-z-]+)'", keys)) == allowed
    assert (f"self != '{names.NODEPOOL_LABEL}'" in keys) == (kind == "NodePool")  # 01 §4.1: legal in a claim
    for part in ("group", "kind", "name"):
        assert rules_at(kind, f"{spec}.nodeClassRef.{part}") == "self != ''"


# -- objects -----------------------------------------------------------------------------------------------------------


def test_the_table_is_a_table() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    assert all((case.error is None) == (case.by is None) for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_objects(case: Case) -> None:
    """What the schema refuses is refused at the right field; what only a CEL rule refuses is in form."""
    schema = SCHEMAS[case.new["kind"]]
    assert errors(schema, case.new) == ([case.error] if case.by == "schema" else [])
    if case.old is not None:
        assert errors(schema, case.old) == []
    if case.by == "cel":
        assert len(rules_saying(case)) == 1


def test_a_field_that_is_not_in_the_schema_is_found() -> None:
    assert errors(SCHEMAS["NodePool"], nodepool({"wieght": 5})) == ["spec.wieght"]


# -- agreement with the structs ----------------------------------------------------------------------------------------

STRUCTS: list[type[msgspec.Struct]] = [objects.NodePool, objects.NodeClaim, objects.KWOKNodeClass]


def struct_problems(struct: type[msgspec.Struct], schema: Schema, path: str) -> Iterator[str]:
    """What the struct reads and the schema does not hold, or holds as another type."""
    hints = get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        where = f"{path}.{field.encode_name}"
        part = schema["properties"].get(field.encode_name)
        if part is None:
            yield f"{where}: not in the CRD"
        elif part != {"type": "object"}:  # metadata
            yield from type_problems(hints[field.name], part, where)


def type_problems(hint: Any, schema: Schema, path: str) -> Iterator[str]:
    members = [m for m in get_args(hint) if m is not type(None)] if is_union(hint) else [hint]
    wanted = ["integer", "string"] if schema.get(INT_OR_STRING) else [schema["type"]]
    for kind in wanted:
        member = next((m for m in members if json_type(m) == kind), None)
        if member is None:
            yield f"{path}: {hint} cannot read {kind}"
        elif isinstance(member, type) and issubclass(member, msgspec.Struct):
            yield from struct_problems(member, schema, path)
        elif kind == "array":
            yield from type_problems(get_args(member)[0], schema["items"], f"{path}[]")
        elif kind == "object":
            yield from type_problems(get_args(member)[1], schema["additionalProperties"], f"{path}{{}}")


def is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def json_type(hint: Any) -> str | None:
    origin = get_origin(hint) or hint
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return "object"
    kinds = {
        str: "string",
        datetime: "string",
        int: "integer",
        bool: "boolean",
        list: "array",
        tuple: "array",
        dict: "object",
    }
    return kinds.get(origin)


def unread(struct: type[msgspec.Struct], schema: Schema, path: str) -> Iterator[str]:
    """Required fields of the schema that the struct does not read."""
    hints = get_type_hints(struct)
    known = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}
    yield from (f"{path}.{name}" for name in schema.get("required", ()) if name not in known)
    for name, hint in known.items():
        part = schema["properties"].get(name, {})
        inner = part.get("items", part)
        for member in (hint, *get_args(hint)):
            if isinstance(member, type) and issubclass(member, msgspec.Struct) and "properties" in inner:
                yield from unread(member, inner, f"{path}.{name}")


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_structs_read_what_the_schema_holds(struct: type[msgspec.Struct]) -> None:
    assert list(struct_problems(struct, SCHEMAS[struct.__name__], struct.__name__)) == []


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_structs_read_every_required_field_of_a_spec(struct: type[msgspec.Struct]) -> None:
    spec = next(field for field in msgspec.structs.fields(struct) if field.name == "spec")
    assert list(unread(spec.type, SCHEMAS[struct.__name__]["properties"]["spec"], "spec")) == []


class Sample(msgspec.Struct, rename="camel"):
    """Reads one field of each kind; the test below takes its schema apart."""

    a_text: str = ""
    a_number: int | None = None
    an_instant: datetime | None = None
    a_quantity: dict[str, str] = {}
    some_texts: list[str] = []


SAMPLE: Schema = {
    "type": "object",
    "required": ["aText", "unknown"],
    "properties": {
        "aText": {"type": "string"},
        "aNumber": {"type": "integer"},
        "anInstant": {"type": "string"},
        "aQuantity": {"type": "object", "additionalProperties": {"type": "string"}},
        "someTexts": {"type": "array", "items": {"type": "string"}},
        "unknown": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    ("name", "schema", "problem"),
    [
        ("aText", None, "not in the CRD"),
        ("aText", {"type": "integer"}, "cannot read integer"),
        ("aNumber", {"type": "string"}, "cannot read string"),
        ("aQuantity", {"type": "object", "additionalProperties": {INT_OR_STRING: True}}, "cannot read integer"),
        ("someTexts", {"type": "array", "items": {"type": "boolean"}}, "cannot read boolean"),
    ],
)
def test_the_comparison_with_structs_can_fail(name: str, schema: Schema | None, problem: str) -> None:
    assert list(struct_problems(Sample, SAMPLE, "")) == []
    assert list(unread(Sample, SAMPLE, "")) == [".unknown"]
    changed = {k: v for k, v in SAMPLE["properties"].items() if k != name} | ({name: schema} if schema else {})
    (found,) = struct_problems(Sample, SAMPLE | {"properties": changed}, "")
    assert problem in found
