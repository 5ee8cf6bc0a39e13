"""The breaks: each is a mistake that somebody could make, as edits of the source."""

from typing import NamedTuple


class Edit(NamedTuple):
    """Replace this text, which must occur exactly once in the file."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One mistake and the tests that must notice it."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


_RULES = ("tests/unit/rules", "tests/seeds", "tests/unit/model", "tests/unit/views")
_VALUES = ("tests/unit/values", "tests/property/test_windows.py")


def _rule(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, (Edit(file, old, new),), _RULES)


def _value(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, (Edit(file, old, new),), _VALUES)


_ATTACK = ("tests/attack/test_long_values.py",)


def _attack(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, (Edit(file, old, new),), _ATTACK)


def _break(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """`tests`: relative to the folder of the tests."""
    return Mutant(name, (Edit(file, old, new),), tuple(f"tests/{path}" for path in tests))


PROTECTION, BUDGETS, NODES = "rules/protection.py", "rules/budgets.py", "rules/nodes.py"
PDB, DEADLINES, STATES = "rules/pdb.py", "rules/deadlines.py", "rules/states.py"
RECORDS, SNAPSHOT = "model/records.py", "model/snapshot.py"
CRON, INSTANTS = "values/schedule/cron.py", "values/schedule/instants.py"

STORE, DERIVED, JOINS = "state/store.py", "state/derived.py", "state/nodes.py"
PLACES, SCHEDULING, POD_READINGS = "state/schedulable_nodes.py", "state/scheduling.py", "state/pod_requirements.py"
TYPES, DAEMONS, POOLS = "state/instance_types.py", "state/daemons.py", "state/pools.py"
STORE_TESTS = ("unit/state/test_store.py", "unit/controllers/test_cluster.py")
PLACE_TESTS = ("unit/state/test_schedulable_nodes.py", "unit/controllers/test_placing_state_nodes.py")
POD_TESTS, POOL_TESTS = "unit/controllers/test_placing_state_pods.py", "unit/controllers/test_placing_state_pools.py"
SYNC_TESTS = "unit/controllers/test_placing_state_sync.py"

MUTANTS = (
    # -- time
    _value("a protection still holds at the instant it ends", INSTANTS, "return at >= self.at", "return at > self.at"),
    _value("a window is still open at its end", INSTANTS, "hit is not None and now < (", "hit is not None and now <= ("),
    _value("schedules are read in local time, not UTC", CRON, 'load_zone("UTC")\n', 'load_zone("America/New_York")\n'),
    _value("what the clock skips never fires", CRON, "hits |= bool(skipped) << begin", "pass"),
    _value("what the clock repeats fires twice", CRON, "cleared |= repeat << begin if begin >= 0", "cleared |= 0 if begin >= 0"),
    _value("day of month and day of week must both match", CRON, "self._either = not (fields.any_day or fields.any_weekday)", "self._either = False"),
    _value("Sunday is not 7", CRON, "(weekdays | weekdays >> 7)", "(weekdays)"),
    _value("a window lasts a minute less", INSTANTS, "divmod(-(-duration_ns // 1000), _MINUTE_US)", "divmod(-(-duration_ns // 1000) - _MINUTE_US, _MINUTE_US)"),
    _value("any of several sets means all", INSTANTS, "return _combined(any, earliest, kept) or NEVER", "return _combined(all, earliest, kept) or NEVER"),
    # -- long values
    _value("a duration of any length is parsed", "values/duration.py", "if len(text) > limits.DURATION:", "if False:"),
    _value("a cron expression of any length is parsed", CRON, "if len(text) > limits.SCHEDULE:", "if False:"),
    _rule("a schedule of any length is parsed", PROTECTION, "len(schedule) > limits.SCHEDULE\n", "False\n"),
    _rule("a list of durations of any length is parsed", PROTECTION, "len(text) > limits.SCHEDULE\n", "False\n"),
    _attack("a time of any length is parsed", "values/timestamp.py", " if len(text) <= limits.VALUE else None", ""),
    _attack("a deletion cost of any length is parsed", RECORDS, "len(text) <= limits.VALUE and ", ""),
    _attack("a record keeps all of an annotation", RECORDS, "text[:longest]", "text"),
    _attack("labels that no pod has any more are kept", RECORDS, "for key, found in self._mappings.items() if found() is not None}", "for key, found in self._mappings.items()}"),
    Mutant("a pod may have any number of terms", (Edit("model/spec_limits.py", "if count <= TERMS:", "if True:"),), ("tests/attack/test_large_specs.py",)),
    Mutant("a pod may list any number of amounts", (Edit("model/spec_limits.py", "if count > most), ", "if False), "),), ("tests/attack/test_large_specs.py",)),
    # -- do-not-disrupt
    Mutant(
        "protection counts from the start of the pod, not its creation",
        (
            Edit("api/objects.py", '    phase: str = ""\n', '    phase: str = ""\n    start_time: Instant | None = None\n'),
            Edit(RECORDS, "created_at=_utc(meta.creation_timestamp),\n            deleted_at=_utc(meta.deletion_timestamp),\n            phase", "created_at=_utc(pod.status.start_time or meta.creation_timestamp),\n            deleted_at=_utc(meta.deletion_timestamp),\n            phase"),
        ),
        ("tests/unit/cli/test_explain_command.py",),
    ),
    _rule("an unreadable value does not protect", PROTECTION, "return DoNotDisrupt(protects=True, span_ns=None, fault=fault)", "return DoNotDisrupt(protects=False, span_ns=None)"),
    _rule('"false" protects', PROTECTION, "return DoNotDisrupt(protects=False, span_ns=None)", "return DoNotDisrupt(protects=True, span_ns=None)"),
    _rule("a zero span counts as a span", PROTECTION, "if span_ns > 0:", "if span_ns >= 0:"),
    _rule("an unreadable value on a Node blocks", PROTECTION, "if meaning.fault is not None or not meaning.protects:", "if not meaning.protects:"),
    _rule("finished and terminating pods protect", RECORDS, "return self.deleted_at is None and self.phase not in _TERMINAL", "return True"),
    # -- schedules
    _rule("a block schedule allows", PROTECTION, "complement(schedule.window.instants)", "schedule.window.instants"),
    _rule("a bad expression spoils the good ones", PROTECTION, "    if not expressions:\n", "    if len(expressions) < len(texts):\n"),
    _rule("a block window that is too long becomes an hour", PROTECTION, "return LONGEST, f", "return DEFAULT_DURATION, f"),
    _rule("the default duration is a day", PROTECTION, "DEFAULT_DURATION = HOUR", "DEFAULT_DURATION = DAY"),
    _rule("a window of a second is fine", PROTECTION, "SHORTEST, LONGEST = MINUTE, 7 * DAY", "SHORTEST, LONGEST = 1, 7 * DAY"),
    # -- PodDisruptionBudgets
    _rule("two PDBs are no obstacle", PDB, "if len(matching) > 1:", "if len(matching) > 2:"),
    _rule("AlwaysAllow holds for ready pods too", PDB, "if pod.ready is not True:", "if True:"),
    _rule("a PDB binds pods that have not started", PDB, 'return pod.active and pod.phase != "Pending"', "return pod.active"),
    _rule("a PDB that is short of healthy pods lets those go that are not ready", PDB, "and healthy >= desired > 0", "and desired > 0"),
    _rule("a PDB that wants no healthy pod lets those go that are not ready", PDB, "and healthy >= desired > 0", "and healthy >= desired"),
    _rule("PDB percentages are rounded down", PDB, "-(-int(value[:-1]) * total // 100)", "int(value[:-1]) * total // 100"),
    _rule("PDBs reach into other namespaces", PDB, "self._by_namespace.get(pod.namespace)", "[p for ps in self._by_namespace.values() for p in ps]"),
    _rule("DaemonSet pods ask no PDB", PDB, "pod.owner & Owner.NODE", "pod.owner"),
    # -- budgets
    _rule("the default budget applies to named reasons", BUDGETS, "if reading is BudgetSemantics.UPSTREAM:", "if True:"),
    _rule("percentages are rounded down", BUDGETS, "-(-nodes * self.percent // 100)", "nodes * self.percent // 100"),
    _rule("no budget means no disruption", BUDGETS, "    return nodes, None", "    return 0, None"),
    _rule("an unreadable budget is no budget", BUDGETS, "reasons=reasons, active=ALWAYS, fault=fault", "reasons=reasons, active=NEVER, fault=fault"),
    _rule("an unreadable budget blocks every reason", BUDGETS, "BudgetRule(index=index, reasons=reasons, active=ALWAYS, fault", "BudgetRule(index=index, active=ALWAYS, fault"),
    _rule("unhealthy nodes use up no budget", BUDGETS, "elif member.node is None or not member.node.ready:", "elif False:"),
    _rule("nodes whose Node is gone use up no budget", BUDGETS, "elif member.node is None or not member", "elif member.node is not None and not member"),
    _rule("nodes in S3 use up no budget", STATES, "IN_DISRUPTION = frozenset({NodeState.DISRUPTING, ", "IN_DISRUPTION = frozenset({"),
    _rule("uninitialized nodes count", BUDGETS, "        if not is_initialized(member):\n            continue\n", ""),
    _rule("the largest budget wins", BUDGETS, "return min(active)", "return max(active)"),
    _rule("budgets never say until when", BUDGETS, "until=unchanged.until(now)", "until=None"),
    # -- nodes
    _rule("only the first blocker is told", NODES, "for verdict in verdicts if not verdict.allowed)\n    return", "for verdict in verdicts[:1] if not verdict.allowed)\n    return"),
    _rule("consolidation overrides protected pods", NODES, "return None if reason in CONSOLIDATION or member.claim is None else", "return None if member.claim is None else"),
    _rule("drift overrides protected pods without a limit", NODES, "member.claim is None else member.claim.grace_period_ns\n", "member.claim is None else member.claim.grace_period_ns or 0\n"),
    _rule("expiration asks the budgets", NODES, "    if forced.contains(now):", "    if False:"),
    _rule("consolidateAfter is ignored", NODES, "if reason in CONSOLIDATION else []", "if False else []"),
    _rule("DaemonSet pods make a node non-empty", RECORDS, "if self.owner & (Owner.DAEMONSET | Owner.NODE):", "if self.owner & Owner.NODE:"),
    # -- deadlines
    _rule("the grace period counts from creation", DEADLINES, "add(claim.deleted_at, claim.grace_period_ns)", "add(claim.created_at or claim.deleted_at, claim.grace_period_ns)"),
    _rule("the recorded timestamp is ignored", DEADLINES, "if claim.termination_timestamp is not None:", "if False:"),
    _rule("pods are deleted only at the deadline", DEADLINES, "deadline - timedelta(seconds=pod.grace_seconds)", "deadline"),
    _rule("a pod may get no grace at all", DEADLINES, "LEAST_GRACE_SECONDS = 1", "LEAST_GRACE_SECONDS = 0"),
    _rule("a pod gets more than its own grace", DEADLINES, "min(left, pod.grace_seconds)", "left"),
    # -- states and joins
    _rule("the taint alone means S3", STATES, "if claim.is_true(ConditionType.DISRUPTION_REASON) and ", "if "),
    _rule("a node that never registered is a candidate", STATES, "or not (node.registered or claim.is_true(ConditionType.REGISTERED))", ""),
    _rule("NodeClaims without an instance meet Nodes without one", SNAPSHOT, "        if record.provider_id:\n", "        if True:\n"),
    # -- state: the stores
    _break("a snapshot of a store stays the same after a change", STORE, "self._items, self._version, self._contents = items, version, None", "self._items, self._version = items, version", *STORE_TESTS),
    Mutant(
        "a subscriber sees a part of a batch of changes",
        (
            Edit(STORE, "            take_in(change, items)\n", "            take_in(change, items)\n            self.notify(change)\n"),
            Edit(STORE, "        for change in changes:\n            self.notify(change)\n", ""),
        ),
        ("tests/unit/state/test_store.py",),
    ),
    _break("an index keeps an object under its former text", STORE, "if self._text_of(old.value) != self._text_of(new.value):", "if False:", *STORE_TESTS),
    _break("an index lists its objects in the order of their changes", STORE, "[group[key] for key in sorted(group)]", "list(group.values())", *STORE_TESTS),
    _break("a deletion that the watch has already shown stays in flight", STORE, " and not _is_deleting(known.value):", ":", *STORE_TESTS),
    _break("a new object with the name of a deleted one stays in flight", STORE, "self._deleted.get(key) != new.uid or _is_deleting(new.value)", "_is_deleting(new.value)", *STORE_TESTS),
    # -- state: derived values and joins
    _break("a value is not derived again when a value that it depends on changes", DERIVED, "for dependent in self.dependents:", "for dependent in ():", "unit/state/test_derived.py"),
    _break("the same error is reported every time", DERIVED, "self._broken.add(key)", "pass", "unit/state/test_derived.py"),
    _break("a Node with two NodeClaims belongs to the first", JOINS, "alone = len(claims) == 1 and", "alone = len(claims) >= 1 and", "unit/state/test_nodes.py"),
    _break("a Node of another controller's NodeClaim is ours", JOINS, " and self._cluster.claim_of(node) is None", "", "unit/state/test_nodes.py"),
    _break("a NodeClaim that comes after its Node is not joined with it", JOINS, "self._touch_instance(claim.status.provider_id)", "pass", "unit/controllers/test_disruption_board.py"),
    # -- state: nodes, pods, pools and types for scheduling
    _break("the mark of a deleted NodeClaim passes to the next one with its name", PLACES, "self._marked.discard(change.key[1])", "pass", *PLACE_TESTS),
    _break("a node that a command disrupts still takes pods", PLACES, " or (claim is not None and claim.metadata.name in self._marked)", "", *PLACE_TESTS),
    _break("a node whose machine is being terminated takes pods", PLACES, "if claim is not None and claim.is_true(ConditionType.INSTANCE_TERMINATING):", "if False:", *PLACE_TESTS),
    _break("a registered NodeClaim whose Node is gone takes pods", PLACES, "if node is None and claim is not None and claim.is_true(ConditionType.REGISTERED):", "if False:", *PLACE_TESTS),
    _break("a finished pod still takes room on its node", PLACES, " if not pod.terminal]", "]", *PLACE_TESTS),
    _break("a node is not read again when one of its pods finishes", PLACES, "        and (old.active, old.terminal) == (new.active, new.terminal)\n", "", *PLACE_TESTS),
    _break("a Node of a NodePool counts before it has a provider ID", PLACES, "return bool(node.spec.provider_id) and known", "return known", *PLACE_TESTS),
    _break("a launch still postpones decisions at the end of the pause", SCHEDULING, "now - created < self._pause", "now - created <= self._pause", SYNC_TESTS),
    _break("a second nomination shortens the first", SCHEDULING, "max(until, self._nominated.get(key, until))", "min(until, self._nominated.get(key, until))", SYNC_TESTS),
    _break("a nomination still holds at its end", SCHEDULING, "if at < until}", "if at <= until}", SYNC_TESTS),
    _break("the nomination of a deleted NodeClaim passes to the next one with its name", SCHEDULING, "self._unlaunched.pop(key[1], None)\n                self._nominated.pop(key[1], None)", "self._unlaunched.pop(key[1], None)", SYNC_TESTS),
    _break("each change of a disrupted Node triggers provisioning", SCHEDULING, " and not has_disrupted_taint(old.value):", ":", POD_TESTS),
    _break("pods with one spec are the same in every namespace", POD_READINGS, "return pod.namespace, tuple(", 'return "", tuple(', POD_TESTS),
    _break("bound pods are not read again when the labels of a namespace change", POD_READINGS, "        if others:\n", "        if False:\n", POD_TESTS),
    _break("a pod with one alternative without a NodePool wants no node of ours", "state/unplaceable.py", "return all(each.optional", "return any(each.optional", POD_TESTS),
    _break("the oldest pod of a DaemonSet speaks for it", DAEMONS, "_age_key(pod) >= _age_key(newest)", "_age_key(pod) <= _age_key(newest)", POOL_TESTS),
    _break("the lightest NodePool comes first", POOLS, "-pool.weight", "pool.weight", POOL_TESTS),
    _break("a NodePool with replicas grows for pods", POOLS, "pool.spec.replicas is None and pool", "pool", POOL_TESTS),
    _break("an answer of the provider is kept for longer than its time", TYPES, "at - known.at >= keep_seconds", "at - known.at > keep_seconds", "unit/state/test_instance_types.py"),
    _break("a failure of the provider takes the prices of machines away", TYPES, "prices=prices, flaw=flaw, failed=True", "flaw=flaw, failed=True", "unit/state/test_instance_types.py"),
    _break("a judgement of pods is still used at the instant it ends", "state/protections.py", "known.until <= now)", "known.until < now)", "unit/controllers/test_pod_protections.py"),
    _break("a place is sought for pods with two PodDisruptionBudgets", "state/protections.py", "keeps=several or any(", "keeps=any(", POD_TESTS),
    _break("the sum of limits counts the pods themselves", "state/pod_sums.py", "limits - ONE_POD", "limits", "unit/controllers/test_object_metrics.py", "unit/controllers/test_cluster_metrics.py"),
)  # fmt: skip
