"""Objects that the API server must accept or refuse, for the unit tests and for the contract tests on a real one."""

from typing import Any, Literal, NamedTuple


class Case(NamedTuple):
    """What becomes of `new` when it is created, or, if `old` is given, when it replaces `old`."""

    name: str
    new: dict[str, Any]
    # A piece of the refusal: the field's path if the schema refuses, the rule's message if CEL does. None = accepted.
    error: str | None = None
    by: Literal["schema", "cel"] | None = None
    old: dict[str, Any] | None = None


REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def nodepool(spec: dict[str, Any] | None = None, *, template: Any = None, metadata: Any = None) -> dict[str, Any]:
    """A NodePool: the least that is valid, overlaid with fields of its spec, its template's spec and metadata."""
    base: dict[str, Any] = {"spec": {"nodeClassRef": REF, "requirements": []} | (template or {})}
    if metadata is not None:
        base["metadata"] = metadata
    return _object("karpenter.sh/v1", "NodePool", {"template": base} | (spec or {}))


def nodeclaim(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A NodeClaim: the least that is valid, overlaid with fields of its spec."""
    claim = _object("karpenter.sh/v1", "NodeClaim", {"nodeClassRef": REF, "requirements": []} | (spec or {}))
    return claim | ({"status": status} if status else {})


def nodeclass(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """A KWOKNodeClass."""
    return _object("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", spec)


def _object(api_version: str, kind: str, spec: dict[str, Any] | None) -> dict[str, Any]:
    document: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "example"}}
    return document if spec is None else document | {"spec": spec}


def _without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    """The document without one field."""
    *above, last = path
    here = document = {**document}
    for key in above:
        here[key] = {**here[key]}
        here = here[key]
    del here[last]
    return document


def _budget(**fields: Any) -> dict[str, Any]:
    return nodepool({"disruption": {"budgets": [fields]}})


def _requirement(key: str, operator: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {}) | more


def _durations() -> list[Case]:
    good = ("0s", "90s", "1h30m", "5s5s", "720h", "30m1h")
    bad = ("", "1d", "2w", "-1h", "+1h", "1.5h", "1h ", " 1h", "1h\n", "90", "100ms", "h", "1H")
    cases = []
    for text in good:
        cases += [
            Case(f"expireAfter {text!r}", nodepool(template={"expireAfter": text})),
            Case(f"terminationGracePeriod {text!r}", nodepool(template={"terminationGracePeriod": text})),
            Case(f"consolidateAfter {text!r}", nodepool({"disruption": {"consolidateAfter": text}})),
            Case(f"gracefulExpireAfter {text!r}", nodepool({"disruption": {"gracefulExpireAfter": text}})),
            Case(f"nodeRegistrationDelay {text!r}", nodeclass({"nodeRegistrationDelay": text})),
            Case(f"claim terminationGracePeriod {text!r}", nodeclaim({"terminationGracePeriod": text})),
        ]
    cases += [
        Case("expireAfter Never", nodepool(template={"expireAfter": "Never"})),
        Case("claim expireAfter Never", nodeclaim({"expireAfter": "Never"})),
        Case("consolidateAfter Never", nodepool({"disruption": {"consolidateAfter": "Never"}})),
        Case("gracefulExpireAfter Never", nodepool({"disruption": {"gracefulExpireAfter": "Never"}})),
    ]
    for text in (*bad, "never", "NeverNever", "1hNever"):
        cases += [
            _refused(
                f"expireAfter {text!r}", nodepool(template={"expireAfter": text}), "spec.template.spec.expireAfter"
            ),
            _refused(f"claim expireAfter {text!r}", nodeclaim({"expireAfter": text}), "spec.expireAfter"),
            _refused(
                f"consolidateAfter {text!r}",
                nodepool({"disruption": {"consolidateAfter": text}}),
                "spec.disruption.consolidateAfter",
            ),
            _refused(
                f"gracefulExpireAfter {text!r}",
                nodepool({"disruption": {"gracefulExpireAfter": text}}),
                "spec.disruption.gracefulExpireAfter",
            ),
        ]
    for text in (*bad, "Never"):
        cases += [
            _refused(
                f"terminationGracePeriod {text!r}",
                nodepool(template={"terminationGracePeriod": text}),
                "spec.template.spec.terminationGracePeriod",
            ),
            _refused(
                f"claim terminationGracePeriod {text!r}",
                nodeclaim({"terminationGracePeriod": text}),
                "spec.terminationGracePeriod",
            ),
            _refused(
                f"nodeRegistrationDelay {text!r}",
                nodeclass({"nodeRegistrationDelay": text}),
                "spec.nodeRegistrationDelay",
            ),
        ]
    return cases


def _refused(name: str, new: dict[str, Any], path: str) -> Case:
    return Case(name, new, path, "schema")


def _budgets() -> list[Case]:
    item = "spec.disruption.budgets[0]"
    both = "a budget needs both schedule and duration, or neither"
    cases = [
        Case("no budgets at all", nodepool({"disruption": {"budgets": []}})),
        Case("50 budgets", nodepool({"disruption": {"budgets": [{"nodes": "1"}] * 50}})),
        _refused("51 budgets", nodepool({"disruption": {"budgets": [{"nodes": "1"}] * 51}}), "spec.disruption.budgets"),
        Case("budget of nothing but the default", _budget()),
        Case("budget without reasons, written out", _budget(nodes="5", reasons=[])),
        Case("reasons, seed 004", _budget(nodes="15", reasons=["drifted", "underutilized"])),
        _refused("reason twice", _budget(nodes="5", reasons=["Empty", "Empty"]), f"{item}.reasons[1]"),
        Case("schedule without duration", _budget(nodes="0", schedule="@daily"), both, "cel"),
        Case("duration without schedule", _budget(nodes="0", duration="1h"), both, "cel"),
        Case(
            "schedule without duration in the second budget",
            nodepool({"disruption": {"budgets": [{"nodes": "1"}, {"nodes": "2", "schedule": "@daily"}]}}),
            both,
            "cel",
        ),
    ]
    cases += [
        Case(f"budget nodes {nodes!r}", _budget(nodes=nodes)) for nodes in ("0", "0%", "7%", "99%", "100%", "1000")
    ]
    cases += [
        _refused(f"budget nodes {nodes!r}", _budget(nodes=nodes), f"{item}.nodes")
        for nodes in ("", "-1", "101%", "110%", "1000%", "1.5", "10.5%", "%", "ten", "5 ", 5)
    ]
    reasons = ("Empty", "Drifted", "Underutilized", "Expired")
    cases += [
        Case(f"reason {text}", _budget(reasons=[text])) for reason in reasons for text in (reason, reason.lower())
    ]
    cases += [
        _refused(f"reason {reason!r}", _budget(reasons=[reason]), f"{item}.reasons[0]")
        for reason in ("", "EMPTY", "Unhealthy", "interrupted", "Underutilised")
    ]
    schedules = (
        "@daily",
        "@annually",
        "0 9 * * 1-5",
        "*/5 * * * *",
        "0 0 31 2 *",
        "TZ=UTC @hourly",
        "CRON_TZ=Asia/Tokyo 0 9 * * *",
    )
    cases += [Case(f"schedule {text!r}", _budget(schedule=text, duration="1h")) for text in schedules]
    cases += [
        _refused(f"schedule {text!r}", _budget(schedule=text, duration="1h"), f"{item}.schedule")
        for text in ("", "@every", "daily", "* * * *", "TZ=UTC")
    ]
    cases += [
        Case(f"budget duration {text!r}", _budget(schedule="@daily", duration=text))
        for text in ("8h", "45m", "1h30m", "1h30m0s")
    ]
    cases += [
        _refused(f"budget duration {text!r}", _budget(schedule="@daily", duration=text), f"{item}.duration")
        for text in ("", "30s", "1h30s", "30m1h", "1h1h", "1.5h", "-1h", "1d", "Never")
    ]
    return cases


def _pools() -> list[Case]:
    static = nodepool({"replicas": 3})
    cases = [
        Case("the least NodePool", nodepool()),
        _refused("NodePool without spec", _without(nodepool(), "spec"), "spec"),
        _refused("NodePool without template", _without(nodepool(), "spec", "template"), "spec.template"),
        _refused("template without spec", _without(nodepool(), "spec", "template", "spec"), "spec.template.spec"),
        Case("disruption of nothing", nodepool({"disruption": {}})),
        Case("static pool", static),
        Case("static pool of none", nodepool({"replicas": 0})),
        _refused("static pool of fewer", nodepool({"replicas": -1}), "spec.replicas"),
        _refused("replicas as text", nodepool({"replicas": "3"}), "spec.replicas"),
        Case("static pool scaled", nodepool({"replicas": 5}), old=static),
        Case("static to dynamic", nodepool(), "replicas can be neither added", "cel", static),
        Case("dynamic to static", static, "replicas can be neither added", "cel", nodepool()),
        Case("static pool, empty limits", nodepool({"replicas": 3, "limits": {}})),
        Case("static pool, limit of nodes", nodepool({"replicas": 3, "limits": {"nodes": "5"}})),
        Case("dynamic pool, limits and weight", nodepool({"limits": {"cpu": "1k", "nodes": "5"}, "weight": 1})),
        Case("limits in numbers", nodepool({"limits": {"cpu": 1000, "example.com/gpu": 4}})),
        _refused("limits that are no quantity", nodepool({"limits": {"cpu": "many"}}), "spec.limits.cpu"),
        _refused("limits that are no number", nodepool({"limits": {"cpu": True}}), "spec.limits.cpu"),
    ]
    cases += [
        Case(
            f"static pool, limits {limits}",
            nodepool({"replicas": 3, "limits": limits}),
            "no limits but limits.nodes",
            "cel",
        )
        for limits in ({"cpu": "10"}, {"nodes": "5", "cpu": "10"})
    ]
    cases.append(Case("static pool, weight", nodepool({"replicas": 3, "weight": 10}), "may have no weight", "cel"))
    cases += [Case(f"weight {weight}", nodepool({"weight": weight})) for weight in (1, 100)]
    cases += [
        _refused(f"weight {weight!r}", nodepool({"weight": weight}), "spec.weight") for weight in (0, 101, "5", 1.5)
    ]
    policies = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
    cases += [
        Case(f"policy {policy}", nodepool({"disruption": {"consolidationPolicy": policy}})) for policy in policies
    ]
    cases += [
        _refused(
            f"policy {policy!r}",
            nodepool({"disruption": {"consolidationPolicy": policy}}),
            "spec.disruption.consolidationPolicy",
        )
        for policy in ("", "whenempty", "WhenUnderutilized")
    ]
    return cases


def _labels() -> list[Case]:
    def labelled(key: str, value: str = "x") -> dict[str, Any]:
        return nodepool(metadata={"labels": {key: value}})

    where = "spec.template.metadata.labels"
    hundred = {f"example.com/l{n}": "x" for n in range(100)}
    cases = [
        Case("100 labels", nodepool(metadata={"labels": hundred})),
        _refused("101 labels", nodepool(metadata={"labels": hundred | {"one": "more"}}), where),
        Case("annotations", nodepool(metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})),
        _refused("label of 64 characters", labelled("team", "x" * 64), f"{where}.team"),
        _refused("label with a space", labelled("team", "a b"), f"{where}.team"),
        _refused("label with a dash at its end", labelled("team", "a-"), f"{where}.team"),
        Case(
            "pool's own label",
            labelled("karpenter.sh/nodepool"),
            "karpenter.sh/nodepool is set by the controller and may not be set here",
            "cel",
        ),
        Case("hostname label", labelled("kubernetes.io/hostname"), "kubernetes.io/hostname may not be set", "cel"),
    ]
    good = (
        "karpenter.sh/capacity-type",
        "node-restriction.kubernetes.io/team",
        "topology.kubernetes.io/zone",
        "kops.k8s.io/instancegroup",
        "example.com/karpenter.sh",
    )
    cases += [Case(f"label {key}", labelled(key)) for key in good]
    cases += [Case("label of 63 characters", labelled("team", "x" * 63)), Case("label of none", labelled("team", ""))]
    cases += [
        Case(
            f"label {key}",
            labelled(key),
            "of the label domain karpenter.sh only karpenter.sh/capacity-type may be set",
            "cel",
        )
        for key in ("karpenter.sh/initialized", "sub.karpenter.sh/x", "karpenter.sh/disrupted")
    ]
    return cases


def _requirements() -> list[Case]:
    def pool(*requirements: dict[str, Any]) -> dict[str, Any]:
        return nodepool(template={"requirements": list(requirements)})

    def claim(*requirements: dict[str, Any]) -> dict[str, Any]:
        return nodeclaim({"requirements": list(requirements)})

    where = "spec.template.spec.requirements"
    needs_value = "operator In needs at least one value"
    needs_number = "needs exactly one value, a whole number of 0 or more"
    needs_more = "needs at least minValues values"
    pool_domain = "of the label domain karpenter.sh only karpenter.sh/capacity-type may be required"
    claim_domain = "only karpenter.sh/capacity-type and karpenter.sh/nodepool may be required"
    kwok_domain = "of the label domain karpenter.kwok.sh only"
    many = [_requirement("example.com/a", "Exists")] * 100
    family = "karpenter.kwok.sh/instance-family"
    cases = [
        _refused("no requirements field", _without(nodepool(), "spec", "template", "spec", "requirements"), where),
        Case("100 requirements", pool(*many)),
        _refused("101 requirements", pool(*many, many[0]), where),
        Case("In", pool(_requirement("a", "In", "x"))),
        Case("In without values", pool(_requirement("a", "In")), needs_value, "cel"),
        Case("In with an empty list", pool(_requirement("a", "In", values=[])), needs_value, "cel"),
        Case("claim, In without values", claim(_requirement("a", "In")), needs_value, "cel"),
        Case("second is wrong", pool(_requirement("a", "Exists"), _requirement("b", "In")), needs_value, "cel"),
        Case("NotIn without values", pool(_requirement("a", "NotIn"))),
        Case("DoesNotExist", pool(_requirement("a", "DoesNotExist"))),
        Case(
            "600 values", claim(_requirement("node.kubernetes.io/instance-type", "In", *(f"t-{n}" for n in range(600))))
        ),
        _refused("unknown operator", pool(_requirement("a", "Equals", "x")), f"{where}[0].operator"),
        _refused("operator in lower case", pool(_requirement("a", "in", "x")), f"{where}[0].operator"),
        _refused("no operator", pool({"key": "a"}), f"{where}[0].operator"),
        _refused("no key", pool({"operator": "Exists"}), f"{where}[0].key"),
        _refused("values that are numbers", pool(_requirement("a", "In", values=[1])), f"{where}[0].values[0]"),
        Case("two values with minValues 2", pool(_requirement(family, "In", "a", "b", minValues=2))),
        Case("minValues with Exists", pool(_requirement(family, "Exists", minValues=50))),
        Case("one value with minValues 2", pool(_requirement(family, "In", "a", minValues=2)), needs_more, "cel"),
        Case("claim, minValues", claim(_requirement(family, "In", "a", minValues=2)), needs_more, "cel"),
        Case(
            "nodepool in a pool",
            pool(_requirement("karpenter.sh/nodepool", "Exists")),
            "karpenter.sh/nodepool is set by the controller and may not be required",
            "cel",
        ),
        Case("nodepool in a claim", claim(_requirement("karpenter.sh/nodepool", "In", "default"))),
        Case("initialized in a claim", claim(_requirement("karpenter.sh/initialized", "Exists")), claim_domain, "cel"),
        Case("capacity type", pool(_requirement("karpenter.sh/capacity-type", "In", "spot", "on-demand"))),
    ]
    for operator in ("Gt", "Lt", "Gte", "Lte"):
        cases += [
            Case(f"{operator} 0", pool(_requirement("karpenter.kwok.sh/instance-cpu", operator, "0"))),
            Case(f"{operator} without values", pool(_requirement("a", operator)), needs_number, "cel"),
            Case(f"{operator} with two", pool(_requirement("a", operator, "1", "2")), needs_number, "cel"),
            Case(f"{operator} -1", pool(_requirement("a", operator, "-1")), needs_number, "cel"),
            Case(f"{operator} 1.5", pool(_requirement("a", operator, "1.5")), needs_number, "cel"),
            Case(f"claim, {operator} text", claim(_requirement("a", operator, "x")), needs_number, "cel"),
        ]
    cases += [
        _refused(f"minValues {n!r}", pool(_requirement("a", "Exists", minValues=n)), f"{where}[0].minValues")
        for n in (0, 51, "1")
    ]
    cases += [
        _refused(f"key {key!r}", pool(_requirement(key, "Exists")), f"{where}[0].key")
        for key in ("", "-a", "a-", "a b", "Example.com/a", "a/b/c", "/a", "a/", "x" * 317)
    ]
    for make, what, own_domain in ((pool, "pool", pool_domain), (claim, "claim", claim_domain)):
        hostname = _requirement("kubernetes.io/hostname", "Exists")
        cases.append(Case(f"{what}, hostname", make(hostname), "kubernetes.io/hostname may not be required", "cel"))
        cases += [
            Case(f"{what}, key {key}", make(_requirement(key, "Exists")), own_domain, "cel")
            for key in ("karpenter.sh/registered", "sub.karpenter.sh/x", "karpenter.sh/do-not-disrupt")
        ]
        cases += [
            Case(f"{what}, key {key}", make(_requirement(key, "Exists")), kwok_domain, "cel")
            for key in ("karpenter.kwok.sh/interrupted", "sub.karpenter.kwok.sh/instance-cpu")
        ]
        cases += [
            Case(f"{what}, key karpenter.kwok.sh/{name}", make(_requirement(f"karpenter.kwok.sh/{name}", "Exists")))
            for name in ("kwoknodeclass", "instance-cpu", "instance-memory", "instance-family", "instance-size")
        ]
        cases += [
            Case(f"{what}, key {key}", make(_requirement(key, "Exists")))
            for key in (
                "node-restriction.kubernetes.io/a",
                "kops.k8s.io/instancegroup",
                "kubernetes.io/arch",
                "a",
                "x" * 63,
            )
        ]
    return cases


def _taints() -> list[Case]:
    cases = []
    for field in ("taints", "startupTaints"):
        where = f"spec.template.spec.{field}[0]"
        good: tuple[dict[str, Any], ...] = (
            {"key": "example.com/gpu", "effect": "NoSchedule"},
            {"key": "gpu", "value": "yes", "effect": "PreferNoSchedule"},
            {"key": "gpu", "effect": "NoExecute", "timeAdded": "2026-03-06T16:20:00Z"},
        )
        bad: tuple[tuple[str, dict[str, Any]], ...] = (
            ("key", {"effect": "NoSchedule"}),
            ("key", {"key": "", "effect": "NoSchedule"}),
            ("key", {"key": "a b", "effect": "NoSchedule"}),
            ("value", {"key": "a", "value": "a b", "effect": "NoSchedule"}),
            ("effect", {"key": "a"}),
            ("effect", {"key": "a", "effect": ""}),
            ("effect", {"key": "a", "effect": "noschedule"}),
        )
        cases += [Case(f"{field} {taint}", nodepool(template={field: [taint]})) for taint in good]
        cases += [Case(f"claim {field} {taint}", nodeclaim({field: [taint]})) for taint in good]
        cases += [
            _refused(f"{field} {taint}", nodepool(template={field: [taint]}), f"{where}.{part}") for part, taint in bad
        ]
    return cases


def _references() -> list[Case]:
    def pool(**ref: Any) -> dict[str, Any]:
        return nodepool(template={"nodeClassRef": REF | ref})

    where = "spec.template.spec.nodeClassRef"
    cases = [
        _refused("no nodeClassRef", _without(nodepool(), "spec", "template", "spec", "nodeClassRef"), where),
        _refused("group with a slash", pool(group="a/v1"), f"{where}.group"),
        Case("nodeClassRef.name changed", pool(name="other"), old=nodepool()),
        Case("nodeClassRef.group changed", pool(group="other"), "nodeClassRef.group is immutable", "cel", nodepool()),
        Case("nodeClassRef.kind changed", pool(kind="Other"), "nodeClassRef.kind is immutable", "cel", nodepool()),
    ]
    for part in REF:
        without = {key: value for key, value in REF.items() if key != part}
        empty = f"nodeClassRef.{part} may not be empty"
        cases += [
            _refused(f"no nodeClassRef.{part}", nodepool(template={"nodeClassRef": without}), f"{where}.{part}"),
            Case(f"nodeClassRef.{part} empty", pool(**{part: ""}), empty, "cel"),
            Case(f"claim, nodeClassRef.{part} empty", nodeclaim({"nodeClassRef": REF | {part: ""}}), empty, "cel"),
        ]
    return cases


def _claims() -> list[Case]:
    condition = {"type": "Launched", "status": "True", "lastTransitionTime": "2026-03-06T16:20:00Z"}

    def with_condition(**fields: Any) -> dict[str, Any]:
        return nodeclaim(conditions=[condition | fields])

    where = "status.conditions[0]"
    changes: tuple[dict[str, Any], ...] = (
        {"expireAfter": "1h"},
        {"terminationGracePeriod": "1h"},
        {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        {"nodeClassRef": REF | {"name": "other"}},
        {"resources": {"requests": {"cpu": "1"}}},
    )
    cases = [
        Case("the least NodeClaim", nodeclaim()),
        Case("claim without change", nodeclaim(), old=nodeclaim()),
        Case("claim, status changed", nodeclaim(nodeName="a"), old=nodeclaim(nodeName="")),
        _refused("NodeClaim without spec", _without(nodeclaim(), "spec"), "spec"),
        _refused("NodeClaim without requirements", _without(nodeclaim(), "spec", "requirements"), "spec.requirements"),
        _refused("NodeClaim without nodeClassRef", _without(nodeclaim(), "spec", "nodeClassRef"), "spec.nodeClassRef"),
        Case("requests", nodeclaim({"resources": {"requests": {"cpu": "1500m", "memory": "2Gi", "pods": 12}}})),
        _refused("bad request", nodeclaim({"resources": {"requests": {"cpu": "1x"}}}), "spec.resources.requests.cpu"),
        Case("condition without reason and message", with_condition()),
        Case("condition with an empty reason", with_condition(reason="", message="")),
        Case("state S3", with_condition(type="DisruptionState", reason="S3")),
        _refused("condition with a bad reason", with_condition(reason="no spaces"), f"{where}.reason"),
        _refused("condition with a bad status", with_condition(status="Maybe"), f"{where}.status"),
        _refused("condition with a bad type", with_condition(type="a b"), f"{where}.type"),
        _refused("condition with a long message", with_condition(message="x" * 32769), f"{where}.message"),
        _refused("condition twice", nodeclaim(conditions=[condition, condition]), "status.conditions[1]"),
        _refused("last pod event at no time", nodeclaim(lastPodEventTime="yesterday"), "status.lastPodEventTime"),
    ]
    cases += [
        Case(f"claim, {next(iter(change))} changed", nodeclaim(change), "spec is immutable", "cel", nodeclaim())
        for change in changes
    ]
    return cases


def _statuses() -> list[Case]:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-03-06T16:20:00Z",
    }
    where = "status.conditions[0]"
    cases = [
        Case("the least KWOKNodeClass", nodeclass()),
        Case("KWOKNodeClass with an empty spec", nodeclass({})),
    ]
    for make, what in ((nodepool, "NodePool"), (nodeclass, "KWOKNodeClass")):
        cases += [
            Case(f"{what} is ready", make() | {"status": {"conditions": [ready]}}),
            _refused(
                f"{what}, empty reason",
                make() | {"status": {"conditions": [ready | {"reason": ""}]}},
                f"{where}.reason",
            ),
            _refused(
                f"{what}, no message",
                make() | {"status": {"conditions": [{k: v for k, v in ready.items() if k != "message"}]}},
                f"{where}.message",
            ),
        ]
    return cases


CASES: list[Case] = [
    *_durations(),
    *_budgets(),
    *_pools(),
    *_labels(),
    *_requirements(),
    *_taints(),
    *_references(),
    *_claims(),
    *_statuses(),
]
