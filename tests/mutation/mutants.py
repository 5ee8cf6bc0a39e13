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
RECORDS = "model/pod_records.py"
CRON, INSTANTS = "values/schedule/cron.py", "values/schedule/instants.py"

STORE, DERIVED, JOINS = "state/store.py", "state/derived.py", "state/nodes.py"
PLACES, SCHEDULING, POD_READINGS = "state/schedulable_nodes.py", "state/scheduling.py", "state/pod_requirements.py"
TYPES, DAEMONS, POOLS = "state/instance_types.py", "state/daemons.py", "state/pools.py"
PENDING, PENDING_TESTS = "planning/disruption/pending_pods.py", "unit/planning/disruption/test_pending_pods.py"
LANDING, LANDING_TESTS = "planning/disruption/landing.py", "unit/planning/disruption/test_landing.py"
ARRIVALS, FAST_LANDING, METHODS = "planning/landing.py", "scheduling/fast/landing.py", "planning/disruption/methods.py"
WAVES, WAVE_TESTS = "controllers/pod/waves.py", "unit/controllers/test_waves.py"
SPARE, SPARE_TESTS = "planning/provisioning/spare_room.py", "unit/planning/test_spare_room.py"
ROLLING, ROLLING_TESTS = "planning/rolling.py", "unit/planning/test_rolling.py"
HOLDING, HOLDING_TESTS = "planning/beside/holding.py", "unit/planning/beside"
MARKS, MARK_TESTS = "planning/beside/marks.py", "unit/planning/beside/test_marks.py"
INTAKE, INTAKE_TESTS = "state/intake.py", "unit/state/test_intake.py"
REPLACEABLE, REPLACEABLE_TESTS = "planning/disruption/replaceable.py", "unit/planning/disruption/test_replaceable.py"
AWAITED, AWAITED_TESTS = "rules/replacements.py", "unit/rules/test_replacements.py"
MENDING, SPELLING, MENDING_TESTS = "values/mending.py", "values/spelling.py", "unit/values/test_mending.py"
WORTH, WORTH_TESTS = "planning/disruption/worth.py", "unit/planning/disruption/test_worth.py"
SPREAD, SPREAD_TESTS = "state/default_spread.py", "unit/state/test_default_spread.py"
STORE_TESTS = ("unit/state/test_store.py", "unit/controllers/test_cluster.py")
PLACE_TESTS = ("unit/state/test_schedulable_nodes.py", "unit/controllers/test_placing_state_nodes.py")
POD_TESTS, POOL_TESTS = "unit/controllers/test_placing_state_pods.py", "unit/controllers/test_placing_state_pools.py"
SYNC_TESTS = "unit/controllers/test_placing_state_sync.py"

CONDITIONS, CLEANING, DRAIN = "planning/conditions.py", "planning/cleaning.py", "planning/node/drain.py"
HEALTH, CONSOLIDATABLE = "planning/node/health.py", "planning/nodeclaim/consolidatable.py"
DRIFT, LIFECYCLE = "planning/nodeclaim/drift.py", "planning/nodeclaim/lifecycle.py"
REGISTRATION, REPLICAS = "planning/nodepool/registration_health.py", "planning/nodepool/static_capacity.py"
BATCHING, NEW_CLAIMS = "planning/provisioning/batching.py", "planning/provisioning/claims.py"
BOARD, METHODS, BACKOFF = (f"planning/disruption/{name}.py" for name in ("board", "methods", "backoff"))
ACCOUNTS, SAVINGS = "planning/disruption/accounts.py", "planning/disruption/savings_backoff.py"
ACCOUNT_TESTS = "unit/planning/disruption/test_accounts.py"
COMMANDS, COMMAND_RECORDS = "planning/disruption/commands.py", "planning/disruption/records.py"
REPLACING, CONSOLIDATION = "planning/disruption/replacing.py", "planning/disruption/consolidation.py"
ASSESSMENT, VALIDATION = "planning/disruption/assessment.py", "planning/disruption/validation.py"
METHOD_TESTS = "unit/planning/disruption/test_methods.py"
REPLACING_TESTS = "unit/planning/disruption/test_replacing.py"
VALIDATION_TESTS = "unit/planning/disruption/test_validation.py"
QUIET, QUIET_TESTS = "planning/disruption/quiet.py", "unit/planning/disruption/test_quiet.py"
RECORD_TESTS = "unit/controllers/test_disruption_commands.py"

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
    _break("labels that no pod has any more are kept", RECORDS, "for key, mapping in self._mappings.items() if mapping() is not None}", "for key, mapping in self._mappings.items()}", "unit/model/test_records.py"),
    Mutant("a pod may have any number of terms", (Edit("model/spec_limits.py", "if count <= TERMS:", "if True:"),), ("tests/attack/test_large_specs.py",)),
    Mutant("a pod may list any number of amounts", (Edit("model/spec_limits.py", "if count > most), ", "if False), "),), ("tests/attack/test_large_specs.py",)),
    # -- do-not-disrupt
    Mutant(
        "protection counts from the start of the pod, not its creation",
        (
            Edit("api/objects.py", '    phase: str = ""\n', '    phase: str = ""\n    start_time: Instant | None = None\n'),
            Edit(RECORDS, "created_at=utc(meta.creation_timestamp),\n            deleted_at=utc(meta.deletion_timestamp),\n            phase", "created_at=utc(pod.status.start_time or meta.creation_timestamp),\n            deleted_at=utc(meta.deletion_timestamp),\n            phase"),
        ),
        ("tests/unit/cli/test_explain_command.py",),
    ),
    _rule("an unreadable value does not protect", PROTECTION, "return DoNotDisrupt(protects=unreadable_protects, span_ns=None, fault=fault)", "return DoNotDisrupt(protects=False, span_ns=None)"),
    _rule("Karpenter protects by what it cannot read", PROTECTION, "return DoNotDisrupt(protects=unreadable_protects, span_ns=None, fault=fault)", "return DoNotDisrupt(protects=True, span_ns=None, fault=fault)"),
    _rule("Karpenter reads schedules", PROTECTION, "return not pod.settings.schedules and", "return False and"),
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
    _rule("an underutilized node goes although it is NotReady", NODES, "if member.node is not None and not member.node.ready:", "if False:"),
    _rule("replacements hold consolidation back", NODES, "(claim := member.claim) is not None and not claim.replacement\n", "(claim := member.claim) is not None\n"),
    _rule("a starting node holds consolidation back for ever", NODES, "now < claim.created_at + LONGEST_BOOT", "True"),
    _rule("a scale-out holds consolidation back for ever", NODES, ", began_at + LONGEST_SCALE_OUT)", ", began_at + 100 * LONGEST_SCALE_OUT)"),
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
    _break("a deletion that the watch has already shown stays in flight", STORE, " and not _is_deleting(stored.value):", ":", *STORE_TESTS),
    _break("a new object with the name of a deleted one stays in flight", STORE, "self._deleted.get(key) != new.uid or _is_deleting(new.value)", "_is_deleting(new.value)", *STORE_TESTS),
    # -- state: derived values and joins
    _break("a value is not derived again when a value that it depends on changes", DERIVED, "for dependent in self.dependents:", "for dependent in ():", "unit/state/test_derived.py"),
    _break("the same error is reported every time", DERIVED, "self._broken.add(key)", "pass", "unit/state/test_derived.py"),
    _break("a Node with two NodeClaims belongs to the first", JOINS, "alone = len(claims) == 1 and", "alone = len(claims) >= 1 and", "unit/state/test_nodes.py"),
    _break("NodeClaims without an instance meet Nodes without one", STORE, "        if text := self._text_of(kept.value):\n            self._groups", "        text = self._text_of(kept.value)\n        if True:\n            self._groups", "unit/state/test_snapshot.py"),
    _break("another controller's NodeClaim counts beside ours", JOINS, "if self._cluster.manages_claim(claim)] or claims", "] or claims", "unit/state/test_nodes.py"),
    _break("a second Node of a NodeClaim's instance is ours", JOINS, " and self._cluster.claim_of(node) is None", "", "unit/state/test_nodes.py"),
    _break("a NodeClaim that comes after its Node is not joined with it", JOINS, "self._touch_instance(claim.status.provider_id)", "pass", "unit/controllers/test_disruption_board.py"),
    # -- state: nodes, pods, pools and types for scheduling
    _break("the mark of a deleted NodeClaim passes to the next one with its name", PLACES, "self._marked.discard(change.key[1])", "pass", *PLACE_TESTS),
    _break("a node that a command disrupts still takes pods", PLACES, " or (claim is not None and claim.metadata.name in self._marked)", "", *PLACE_TESTS),
    _break("a node whose machine is being terminated takes pods", PLACES, "if claim is not None and claim.is_true(ConditionType.INSTANCE_TERMINATING):", "if False:", *PLACE_TESTS),
    _break("a registered NodeClaim whose Node is gone takes pods", PLACES, "if node is None and claim is not None and claim.is_true(ConditionType.REGISTERED):", "if False:", *PLACE_TESTS),
    _break("a finished pod still takes room on its node", PLACES, " if not pod.terminal]", "]", *PLACE_TESTS),
    _break("a node is not read again when one of its pods finishes", PLACES, "        and (old.active, old.terminal) == (new.active, new.terminal)\n", "", *PLACE_TESTS),
    _break("a Node of a NodePool counts before it has a provider ID", PLACES, "return bool(node.spec.provider_id) and has_type", "return has_type", *PLACE_TESTS),
    _break("a launch still postpones decisions at the end of the pause", SCHEDULING, "now - created < self._pause", "now - created <= self._pause", SYNC_TESTS),
    _break("a second nomination shortens the first", SCHEDULING, "max(until, self._nominated.get(key, until))", "min(until, self._nominated.get(key, until))", SYNC_TESTS),
    _break("a nomination still holds at its end", SCHEDULING, "if at < until}", "if at <= until}", SYNC_TESTS),
    _break("the nomination of a deleted NodeClaim passes to the next one with its name", SCHEDULING, "self._unlaunched.pop(key[1], None)\n                self._nominated.pop(key[1], None)", "self._unlaunched.pop(key[1], None)", SYNC_TESTS),
    _break("each change of a disrupted Node triggers provisioning", SCHEDULING, " and not has_disrupted_taint(old.value):", ":", POD_TESTS),
    _break("pods with one spec are the same in every namespace", POD_READINGS, "return pod.namespace, values, spread", 'return "", values, spread', POD_TESTS),
    _break("default spread constraints outlive a change of a Service", SPREAD, "        if self._services.synced:\n", "        if False:\n", SPREAD_TESTS),
    _break("default spread constraints outlive a change of the owner's selector", SPREAD, "versions[0].spec != versions[1].spec", "False", SPREAD_TESTS),
    _break("pods with constraints of their own get default ones", SPREAD, "        if pod.scheduling.spec.topology_spread_constraints:\n", "        if False:\n", SPREAD_TESTS),
    _break("bound pods are not read again when the labels of a namespace change", POD_READINGS, "        if others:\n", "        if False:\n", POD_TESTS),
    _break("a pod with one alternative without a NodePool wants no node of ours", "state/unplaceable.py", "return all(values.optional", "return any(values.optional", POD_TESTS),
    _break("the oldest pod of a DaemonSet speaks for it", DAEMONS, "_age_key(pod) >= _age_key(newest)", "_age_key(pod) <= _age_key(newest)", POOL_TESTS),
    _break("the lightest NodePool comes first", POOLS, "-pool.weight", "pool.weight", POOL_TESTS),
    _break("a NodePool with replicas grows for pods", POOLS, "pool.spec.replicas is None and pool", "pool", POOL_TESTS),
    _break("an answer of the provider is kept for longer than its time", TYPES, "at - answer.at >= keep_seconds", "at - answer.at > keep_seconds", "unit/state/test_instance_types.py"),
    _break("a failure of the provider takes the prices of machines away", TYPES, "prices=prices, flaw=flaw, failed=True", "flaw=flaw, failed=True", "unit/state/test_instance_types.py"),
    _break("a judgement of pods is still used at the instant it ends", "state/protections.py", "judgement.until <= now)", "judgement.until < now)", "unit/controllers/test_pod_protections.py"),
    _break("a place is sought for pods with two PodDisruptionBudgets", "state/protections.py", "keeps=several or any(", "keeps=any(", POD_TESTS),
    _break("the sum of limits counts the pods themselves", "state/pod_sums.py", "limits - ONE_POD", "limits", "unit/controllers/test_object_metrics.py", "unit/controllers/test_cluster_metrics.py"),
    _break("a value that fails a second time is not reported", DERIVED, "            self._broken.discard(key)\n", "            pass\n", "unit/state/test_derived.py"),
    _break("the dump of a removed kind passes without a word", INTAKE, "                problems.append(_removed(document))\n", "                pass\n", INTAKE_TESTS),
    _break("an object that is there twice is not reported", INTAKE, "    if repeated:\n", "    if False:\n", INTAKE_TESTS),
    _break("an object without a name counts", INTAKE, "            if not wire.metadata.name:\n", "            if False:\n", INTAKE_TESTS),
    # -- planning: nodes
    _break("a pending pod holds consolidation back for ever", PENDING, " and now < pod.created + LONGEST_BOOT\n", "\n", PENDING_TESTS),
    _break("an empty node goes although a pending pod could use it", PENDING, "    if pods := pending.by_node.get(candidate.node):", "    if pods := ():", PENDING_TESTS),
    _break("pods that no node can take are waited for", PENDING, "if key:  # else no node can take it", "if True:", PENDING_TESTS),
    _break("a pending pod keeps a node that is still starting", PENDING, "node is not None and node.initialized", "node is not None", PENDING_TESTS),
    _break("nodes are kept only until the first of several pods is old", PENDING, "max(first.until, waiting[pod.uid])", "min(first.until, waiting[pod.uid])", PENDING_TESTS),
    _break("empty nodes wait for pods that need new nodes", PENDING, "reason is Reason.UNDERUTILIZED and (pods", "(pods", PENDING_TESTS),
    _break("pods of nodes that leave hold consolidation back", PENDING, "pod.origin is Origin.PENDING and ", "", PENDING_TESTS),
    _break("critical pods are evicted first", DRAIN, "2 * pod.critical", "2 * (not pod.critical)", "unit/planning/test_drain.py"),
    _break("pods that tolerate the disrupted taint are drained", DRAIN, "pod.owner & Owner.NODE or pod.tolerates_disrupted", "pod.owner & Owner.NODE", "unit/planning/test_drain.py"),
    _break("a pod is not yet stuck at the end of its time", DRAIN, "now >= _stuck_at(", "now > _stuck_at(", "unit/planning/test_drain.py"),
    _break("a pod is not yet deleted at the instant for the deadline", DRAIN, "forced.at <= now:", "forced.at < now:", "unit/planning/test_drain.py"),
    _break("a pod that waits for its group misses its forced deletion", DRAIN, 'why="others go first", until=force_at', 'why="others go first", until=None', "unit/planning/test_drain.py"),
    _break("the repair guard rounds down", HEALTH, "-(-len(all_) * TOLERATED_PERCENT // 100)", "len(all_) * TOLERATED_PERCENT // 100", "unit/planning/test_health.py"),
    _break("the fault that is due last counts", HEALTH, "return min(faults, key=", "return max(faults, key=", "unit/planning/test_health.py"),
    # -- planning: NodeClaims
    _break("a pod of a DaemonSet restarts consolidateAfter", CONSOLIDATABLE, "if not new.node_name or _is_daemon(new):", "if not new.node_name:", "unit/planning/test_consolidatable.py"),
    _break("the first of several pod events counts", CONSOLIDATABLE, "last_at = max(events", "last_at = min(events", "unit/planning/test_consolidatable.py"),
    _break("a hash of another version is drift", DRIFT, "if ours[0] != theirs[0]:", "if False:", "unit/planning/test_drift.py"),
    _break("a NodeClaim whose reservation has ended drifts", DRIFT, "if labels.get(names.CAPACITY_TYPE_LABEL) == CapacityType.RESERVED:", "if False:", "unit/planning/test_drift.py"),
    _break("the instance type of a young NodeClaim is checked", DRIFT, "return max(old_at, offered_at", "return min(old_at, offered_at", "unit/planning/test_drift.py"),
    _break("a removed startup taint comes back", LIFECYCLE, "for wanted in () if synced else (*", "for wanted in (*", "unit/planning/test_lifecycle.py"),
    _break("a node with startup taints is initialized", LIFECYCLE, "if any(map(taint.matches, claim.spec.startup_taints)):", "if False:", "unit/planning/test_lifecycle.py"),
    _break("a NodeClaim survives the instant of its timeout", LIFECYCLE, "if now >= at:", "if now > at:", "unit/planning/test_lifecycle.py"),
    _break("labels of the provider replace those of the NodeClaim", LIFECYCLE, "{**labels, **claim.metadata.labels}", "{**claim.metadata.labels, **labels}", "unit/planning/test_lifecycle.py"),
    _break("a condition that is set again is a transition", CONDITIONS, "if before is not None and before.status == status and", "if before is not None and before.status != status and", "unit/planning/test_conditions.py"),
    _break("an object is ready by conditions of an earlier generation", CONDITIONS, "if len(current) == len(entries) and all(", "if all(", "unit/planning/test_conditions.py"),
    _break("a Node that is being deleted takes pods after a clean-up", CLEANING, " and not is_going(claim) and not is_going(node):", " and not is_going(claim):", "unit/planning/test_cleaning.py"),
    _break("a clean-up undoes the commands of another controller", CLEANING, " and is_ours(claim) and not any(map(is_going", " and not any(map(is_going", "unit/planning/test_cleaning.py"),
    # -- planning: NodePools
    _break("a NodeClaim counts twice in the registration history", REGISTRATION, "return self if result in self.results else", "return", "unit/planning/test_registration_health.py"),
    _break("registrations of another NodePool count", REGISTRATION, "if pool.metadata.uid not in latest.owner_uids:", "if False:", "unit/planning/test_registration_health.py"),
    _break("a new hash hides the drift of a NodeClaim", "planning/nodepool/hash.py", "if any(entry.type == names.ConditionType.DRIFTED for entry in claim.status.conditions):", "if False:", "unit/planning/test_pool_hash.py", "unit/controllers/test_nodepool_hash.py"),
    _break("a starting node has no capacity", "planning/nodepool/usage.py", "actual.get(name) or expected.get(name, _NOTHING)", "actual.get(name, _NOTHING)", "unit/planning/test_pool_usage.py"),
    _break("a startup taint may equal a permanent one", "planning/nodepool/validation.py", "    for name, taints in lists.items():\n", "    for name, taints in lists.items():\n        seen = set()\n", "unit/planning/test_pool_validation.py"),
    _break("NodeClaims that are being deleted leave room below the limit", REPLICAS, " + self.deleting + ", " + ", "unit/planning/test_static_capacity.py"),
    _break("a NodeClaim that is being replaced is replaced twice", REPLICAS, " - census.pending_disruption - census.reserved", " - census.reserved", "unit/planning/test_static_capacity.py"),
    _break("replacements of commands are surplus", REPLICAS, " if member.claim and member.claim.name not in census.awaited)", " if member.claim)", "unit/planning/test_static_capacity.py"),
    _break("healthy nodes are removed before broken ones", REPLICAS, "return initialized, ready,", "return not initialized, not ready,", "unit/planning/test_static_capacity.py"),
    # -- planning: quiet clusters
    _break("a pod on a node of the command changes unseen", QUIET, "        pods=node.pods,\n", "", QUIET_TESTS),
    _break("conditions that controllers write keep a command waiting", QUIET, "conditions={}, ", "", QUIET_TESTS),
    _break("the mark of a candidate keeps a command waiting", QUIET, "msgspec.structs.replace(seen, taints=())", "seen", QUIET_TESTS),
    _break("nodes that get pods change unseen", QUIET, "nodes = {*command.nodes, *(where.node for where in command.landing.values() if where.node)}", "nodes = {*command.nodes}", QUIET_TESTS),
    _break("budgets change unseen", QUIET, "(self.record, self.nodes, self.consumers) == (record, counts.nodes, _names(counts))", "True", QUIET_TESTS),
    _break("nodes that use a budget change unseen", QUIET, "(self.record, self.nodes, self.consumers) == (record, counts.nodes, _names(counts))", "(self.record, self.nodes) == (record, counts.nodes)", QUIET_TESTS),
    _break("every look counts as a change", QUIET, "known.changed_at if known is not None and same else now", "now", QUIET_TESTS),
    # -- planning: provisioning
    _break("a pod that is added again extends the batch", BATCHING, "if uid in self._uids:", "if False:", "unit/planning/test_batching.py"),
    _break("a batch is open for as long as pods come", BATCHING, "return min(self._grew_at", "return max(self._grew_at", "unit/planning/test_batching.py"),
    _break("a NodePool at its limit exceeds it", NEW_CLAIMS, "if used[name] > limits[name]]", "if used[name] >= limits[name]]", "unit/planning/test_provisioning.py"),
    _break("nodes that are being disrupted count against the limit", NEW_CLAIMS, "if node.pool and node.open:", "if node.pool:", "unit/planning/test_provisioning.py"),
    _break("a name of a NodeClaim is too long for a label", NEW_CLAIMS, "_NAME_AT_MOST - len(letters) - 1]", "_NAME_AT_MOST - len(letters)]", "unit/planning/test_provisioning.py"),
    _break("a NodeClaim names its node class as its owner", NEW_CLAIMS, '"name": meta.name, "uid": meta.uid}', '"name": class_.name, "uid": meta.uid}', "unit/planning/test_provisioning.py"),
    # -- planning: candidates and budgets
    _break("a node that expects pods of another one is disrupted", BOARD, " and candidate.node not in self.expecting", "", METHOD_TESTS),
    _break("each of several nodes has the whole budget", BOARD, " and all(number <= self.left(pool) for pool, number in wanted.items())", "", VALIDATION_TESTS, METHOD_TESTS),
    _break("a disrupted node uses no budget of the same pass", BOARD, "self._left[candidate.pool] -= 1", "pass", METHOD_TESTS),
    _break("empty nodes leave the budgets of other reasons untouched", BOARD, "max(0, allowance.allowed - taken[pool])", "allowance.allowed", METHOD_TESTS),
    _break("a back-off keeps empty nodes", BOARD, "not (replaced and candidate.pool in self._pools_in_backoff)", "candidate.pool not in self._pools_in_backoff", METHOD_TESTS),
    _break("a node in a command counts twice against its budget", "planning/disruption/pool_budgets.py", "member.name not in counted and ", "", "unit/planning/disruption/test_pool_budgets.py"),
    _break("the replacement of a command is removed as empty", ASSESSMENT, "claim.metadata.name in awaited or ", "", "unit/controllers/test_disruption_board.py"),
    _break("a node with a nomination is disrupted", ASSESSMENT, "if nominated_until is not None:", "if False:", "sim/disruption/test_protections.py"),
    _break("a new reason is not seen at its instant", "planning/disruption/evaluation.py", "now < known.wanted_until)", "now <= known.wanted_until)", "unit/planning/disruption/test_evaluation.py"),
    # -- planning: methods
    _break("consolidation waits until there is no empty node", METHODS, "if method is not Method.EMPTINESS:", "if True:", METHOD_TESTS),
    _break("drift starts before the validation of empty nodes", METHODS, "if commands and not decision.validated_first:", "if False:", METHOD_TESTS),
    _break("nodes with pods are replaced before nodes without", METHODS, "(not candidate.bare, candidate.since", "(candidate.bare, candidate.since", METHOD_TESTS),
    _break("a static NodePool at its limit replaces one more node", METHODS, "left is not None and left <= 0", "left is not None and left < 0", METHOD_TESTS),
    _break("a static NodePool with surplus nodes replaces them", METHODS, "pool.claims > (pool.replicas or 0) or ", "", METHOD_TESTS),
    _break("pods go to empty nodes that are removed", "planning/disruption/emptiness.py", "    board = board.after(taken, Solution())\n", "", METHOD_TESTS),
    _break("an unknown price counts as nothing saved", COMMANDS, "return None if None in prices else sum(", "return sum(", METHOD_TESTS),
    _break("the order of its nodes changes the name of a command", COMMANDS, "*sorted(candidate.claim_uid for candidate in candidates)", "*(candidate.claim_uid for candidate in candidates)", METHOD_TESTS),
    # -- planning: consolidation
    _break("a new node of the same price is cheaper", REPLACING, "if worst < limit]", "if worst <= limit]", REPLACING_TESTS),
    _break("a saving of exactly a twentieth is too small", REPLACING, "saved * _LEAST_SAVING < price", "saved * _LEAST_SAVING <= price", REPLACING_TESTS),
    _break("the best price of a launch counts, not the worst", REPLACING, "max(way.price, prices.get(capacity_type, 0))", "min(way.price, prices.get(capacity_type, way.price))", REPLACING_TESTS),
    _break("a launch tries on-demand before spot", REPLACING, "(CapacityType.RESERVED, CapacityType.SPOT, CapacityType.ON_DEMAND)", "(CapacityType.RESERVED, CapacityType.ON_DEMAND, CapacityType.SPOT)", REPLACING_TESTS),
    _break("fifteen spot types are too few", REPLACING, "if len(replacement.types) < _FEWEST_SPOT_TYPES:", "if len(replacement.types) <= _FEWEST_SPOT_TYPES:", REPLACING_TESTS),
    _break("two nodes become one of the type of the more expensive one", REPLACING, "min(same)) if same", "max(same)) if same", REPLACING_TESTS),
    _break("consolidation takes the room of pods that need a place anyway", REPLACING, "if (crowded := crowded_out(board, solution)) is not None:", "if False:", REPLACING_TESTS),
    _break("the node that saves least comes first", CONSOLIDATION, "key=lambda candidate: (-candidate.savings_ratio", "key=lambda candidate: (candidate.savings_ratio", "unit/planning/disruption/test_consolidation.py"),
    _break("a Balanced NodePool refuses a move that is worth exactly half", "planning/disruption/worth.py", "if score < (least :=", "if score <= (least :=", "unit/planning/disruption/test_worth.py"),
    _break("a Balanced NodePool counts the savings of other NodePools", "planning/disruption/worth.py", "move.savings * share", "move.savings", "unit/planning/disruption/test_worth.py"),
    _break("a back-off is not over at its end", BACKOFF, "if left.until > now}", "if left.until >= now}", "unit/planning/disruption/test_backoff.py"),
    _break("a back-off never grows", BACKOFF, "else before.times + 1", "else before.times", "unit/planning/disruption/test_backoff.py"),
    _break("a pod that waits after the watched time starts a back-off", BACKOFF, "if self._watched.pop(kind, now) <= now:", "if self._watched.pop(kind, None) is None:", "unit/planning/disruption/test_backoff.py"),
    _break("a drifted node starts a back-off of consolidation", BACKOFF, "if command.reason in CONSOLIDATION:", "if True:", "unit/planning/disruption/test_backoff.py"),
    _break("a node for other pods is charged to a command", ACCOUNTS, "(size - excused) / whole", "1.0", ACCOUNT_TESTS),
    _break("pods from outside excuse nothing", ACCOUNTS, "excused = min(size, account.outside)", "excused = 0.0", ACCOUNT_TESTS),
    _break("pods from outside excuse several nodes", ACCOUNTS, "account.outside -= excused", "pass", ACCOUNT_TESTS),
    _break("a successor counts as a pod from outside", ACCOUNTS, " and pod.uid not in self._successors", "", ACCOUNT_TESTS),
    _break("a node that a later command removes is not charged", ACCOUNTS, "            self._settle(claim, now, removed=True)\n            return", "            self._settle(claim, now, removed=True)", ACCOUNT_TESTS),
    _break("a command that is given up saves its nodes", ACCOUNTS, "self._settle(claim, now, removed=False)", "self._settle(claim, now, removed=True)", ACCOUNT_TESTS),
    _break("an account is closed with the first node", ACCOUNTS, "if not account.standing:", "if True:", ACCOUNT_TESTS),
    _break("an account is closed at once", ACCOUNTS, "account.ended_at + WATCHED <= now", "account.ended_at <= now", ACCOUNT_TESTS),
    _break("a pod that is moved after more than an hour counts again", ACCOUNTS, "before.account is not None and now - before.moved_at <= AGAIN_WITHIN", "before.account is not None", ACCOUNT_TESTS),
    _break("a command is judged twice", ACCOUNTS, "account.is_judged = True", "pass", ACCOUNT_TESTS),
    _break("a command that moved no pods is judged", ACCOUNTS, "(is_final and account.moved)", "is_final", ACCOUNT_TESTS),
    _break("half of the promise is not enough", SAVINGS, "if 2 * sums.realised >= sums.promised:", "if 2 * sums.realised > sums.promised:", ACCOUNT_TESTS),
    _break("a back-off of savings never grows", SAVINGS, "watch.backoff.times + 1", "watch.backoff.times", ACCOUNT_TESTS),
    _break("a command from before prolongs the back-off", SAVINGS, " or (watch is not None and now < watch.backoff.until)", "", ACCOUNT_TESTS),
    _break("pods that come and go reset a pool", SAVINGS, "watched.changes[kind] += size", "watched.changes[kind] += abs(size)", ACCOUNT_TESTS),
    _break("growth cancels shrinking", SAVINGS, "sum(map(abs, self.changes.values()))", "abs(sum(self.changes.values()))", ACCOUNT_TESTS),
    _break("a back-off of savings keeps empty nodes", SAVINGS, "if backoff is None or not candidate.pods:", "if backoff is None:", ACCOUNT_TESTS),
    # -- plans that hold: landing, waves, worth, spare room
    _break("a move whose pods find no room is started", LANDING, "turns[pod.uid] == most:\n            return pod", "turns[pod.uid] == most:\n            return ()", LANDING_TESTS),
    _break("a pod without room goes later than the others", LANDING, "sorted(waves, reverse=True)", "sorted(waves)", LANDING_TESTS),
    _break("pods that need a place anyway are forgotten", LANDING, "others=(*board.arriving, *board.owed)", "others=board.arriving", LANDING_TESTS),
    _break("pods of the other commands of a pass are forgotten", LANDING, "others=(*board.arriving, *board.owed)", "others=board.owed", LANDING_TESTS),
    _break("a pod without room in any case refuses a move", LANDING, "        homeless=_homeless(board.world, board.owed),\n", "", LANDING_TESTS),
    _break("the node that goes counts as room", LANDING, "without=(*sorted(board.gone), *(candidate.node for candidate in move.candidates))", "without=tuple(sorted(board.gone))", LANDING_TESTS),
    _break("a replacement is no room", LANDING, "coming=(*board.coming, *replacement_nodes(board, move.replacements))", "coming=board.coming", LANDING_TESTS),
    _break("a set keeps the node whose pod finds no room", LANDING, "if all(pod.ref != why.pod for pod in candidate.pods)]", "]", LANDING_TESTS),
    _break("the last look ignores the waves", LANDING, "turns = {uid: len(waves) - number for", "turns = {uid: 0 for", LANDING_TESTS),
    _break("savings have no unit", LANDING, "would save ${price_text(savings)}/h", "would save {price_text(savings)}", LANDING_TESTS),
    _break("a drain without waves gets a command that needs them", LANDING, "most = _MOST_WAVES if rules.in_waves else 0", "most = _MOST_WAVES", LANDING_TESTS),
    _break("pods of a drifted node may take each other's room", METHODS, "if not isinstance(pod, PodInfo):\n            return solution\n        gone", "if True:\n            return solution\n        gone", "unit/planning/disruption/test_methods.py"),
    _break("drift has no waves", METHODS, "waves_of_replaced(before, this.rules, candidate, new) if len(commands) < _WITH_WAVES else ()", "()", "unit/planning/disruption/test_methods.py"),
    _break("all drifted nodes of a pass are checked for waves", METHODS, "_WITH_WAVES: Final = 20", "_WITH_WAVES: Final = 5000", "unit/planning/disruption/test_methods.py"),
    _break("only one order is tried", ARRIVALS, "    yield ArrivalOrder((*others, *chain(*largest)), seed=seed)\n", "    return\n", LANDING_TESTS),
    _break("a replacement may come in one zone only", ARRIVALS, "for type_, offer in cheapest)", "for type_, offer in cheapest[:1])", LANDING_TESTS),
    _break("pods of StatefulSets arrive with the others", ARRIVALS, "return names.STATEFULSET_POD_LABEL in pod.labels", "return False", LANDING_TESTS),
    _break("a replacement is modelled as its dearest type", ARRIVALS, "key=lambda way: (way[1].price, *_room", "key=lambda way: (-way[1].price, *_room", LANDING_TESTS),
    _break("kube-scheduler prefers full nodes", FAST_LANDING, "cpu = max(0, free_cpu) * 100 // all_cpu", "cpu = 100 - max(0, free_cpu) * 100 // all_cpu", LANDING_TESTS),
    _break("a pod is tried once", FAST_LANDING, "while waiting and len(waiting) < before:", "if waiting:", LANDING_TESTS),
    _break("waves never end", WAVES, "        if now >= progress.ends_at:\n            return True\n", "", WAVE_TESTS),
    _break("a wave ends before its pods are evicted", WAVES, "            return False\n        if all(self._bound", "            pass\n        if all(self._bound", WAVE_TESTS),
    _break("a workload that became smaller stops the drain", WAVES, "return now >= progress.gone_at + WITHOUT_SUCCESSOR", "return False", WAVE_TESTS),
    _break("a pending successor has landed", WAVES, "return bool(pod.node_name) and pod.active", "return pod.active", WAVE_TESTS),
    _break("a new leader forgets the pods that are terminating", WAVES, "expected = {kind: self._bound[kind] + owed[kind] for", "expected = {kind: self._bound[kind] for", WAVE_TESTS),
    _break("waves delay a node that goes before its replacement is there", WAVES, " or not all(map(self._is_initialized, record.replacements))", "", WAVE_TESTS),
    _break("a pod that others crowd out gets no node of its own", SPARE, "return _together(planned, spare.claims)", "return planned", SPARE_TESTS),
    _break("room to spare exceeds the limits", SPARE, " if self._allowed(more) else left", "", SPARE_TESTS),
    _break("a pod with spare room keeps its first place too", SPARE, "[uid for uid in claim.pods if uid not in last]", "claim.pods", SPARE_TESTS),
    _break("large batches get room to spare", SPARE, " or len(waiting.pods) > _MOST_PODS", "", SPARE_TESTS),
    _break("room to spare is sought after the time limit", SPARE, "if not self._go_on():", "if False:", SPARE_TESTS),
    _break("each round has room to spare of its own", SPARE, " // _ONE_FOR - waiting.spare if", " // _ONE_FOR if", SPARE_TESTS),
    _break("nodes that start are full", SPARE, "coming=(*self._starting, *coming)", "coming=coming", SPARE_TESTS),
    _break("spare nodes that nobody needs are created", SPARE, "len(without) <= len(rest)", "len(without) < 0", SPARE_TESTS),
    _break("what a plan owes is never made good", SPARE, "(planned.new_claims or waiting.owed)", "planned.new_claims", SPARE_TESTS),
    _break("all new nodes start at the same instant", SPARE, "expected, one_by_one=True", "expected, one_by_one=False", SPARE_TESTS),
    _break("an offer that is sold out may be launched", ARRIVALS, "if offer.available and claim", "if claim", LANDING_TESTS, SPARE_TESTS),
    _break("other pods arrive after the last wave only", ARRIVALS, "order.insert(draw(f\"{seed} {pod.uid}\") % (len(order) + 1), pod)", "order.append(pod)", LANDING_TESTS, SPARE_TESTS),
    _break("a move may disrupt any part of a pool for little", WORTH, "_LEAST: Final = 0.25", "_LEAST: Final = 0.0", WORTH_TESTS),
    _break("a pool that is not Balanced asks for a half", WORTH, "_BALANCED if balanced else _LEAST", "_BALANCED", WORTH_TESTS),
    _break("what a move saves beyond its cost ignores the cost", WORTH, "return move.savings - _asked(move.candidates, pools)", "return move.savings", "unit/planning/disruption/test_worth.py", "unit/planning/disruption/test_consolidation.py"),
    _break("a pair is tried only if both nodes come first", CONSOLIDATION, "combinations(order, 2)", "combinations(order[:2], 2)", "unit/planning/disruption/test_consolidation.py"),
    # -- remedies: what a text was meant to be
    _break("no text is a number without a unit", MENDING, "return digits.isascii() and digits.isdigit() and len(digits) <= 9 and int(digits) > 1", "return False", MENDING_TESTS),
    _break("5M is five minutes", MENDING, " or _MINUTES_OR_MONTHS.fullmatch(words)", "", MENDING_TESTS),
    _break("any second is left out of a schedule", MENDING, '(not first or words[0] == "0") and ', "", MENDING_TESTS),
    _break("a certain year is left out of a schedule", MENDING, ' and (not last or words[-1] in ("*", "?"))', "", MENDING_TESTS),
    _break("two errors lead to a time zone", MENDING, "zone_names(), most_errors=1)", "zone_names(), most_errors=2)", MENDING_TESTS),
    _break("a window over midnight has the hours of the day", MENDING, "(high + 24 - low) * HOUR", "(low - high) * HOUR", MENDING_TESTS),
    _break("a range past the end loses its second half", MENDING, 'return ",".join(ends)', "return ends[0]", MENDING_TESTS),
    _break("the first of several near words is meant", SPELLING, "return nearest[0] if len(nearest) == 1 else None", "return nearest[0] if nearest else None", "unit/values", "unit/views"),
    _break("short words may have two errors", SPELLING, "0 if len(plain) <= 4 else 1 if len(plain) <= 7 else 2", "2", "unit/values", "unit/views"),
    _break("swapped letters are two errors", SPELLING, "                cost = min(cost, before[at - 2] + 1)\n", "                pass\n", "unit/values", "unit/views"),
    # -- replacements: awaited, and whether one can be had
    _break("a replacement that is deleted is waited for", AWAITED, 'return "it is being deleted"', "pass", AWAITED_TESTS),
    _break("a replacement is given up at no time", AWAITED, "until=awaits.deadline,", "until=None,", AWAITED_TESTS),
    _break("one ready replacement is enough", AWAITED, "    if not lacking:\n", "    if len(lacking) < len(progress):\n", AWAITED_TESTS),
    _break("a pool in back-off replaces nodes", REPLACEABLE, "if candidate.pool in backoffs:", "if False:", REPLACEABLE_TESTS),
    _break("a static pool with a surplus replaces nodes", REPLACEABLE, "if pool.claims > replicas:", "if False:", REPLACEABLE_TESTS),
    _break("a static pool exceeds its limit of nodes", REPLACEABLE, "pool.free_claims <= 0", "pool.free_claims < 0", REPLACEABLE_TESTS),
    _break("unknown instance types have no room", REPLACEABLE, "if types_known else _unknown(candidate)", "", REPLACEABLE_TESTS),
    # -- planning: beside Karpenter
    _break("a node in a command is asked for again", ROLLING, "        or names.DISRUPTION_COMMAND in claim.metadata.annotations\n", "", ROLLING_TESTS),
    _break("a node that guard replaces for its age is asked for too", ROLLING, " or is_stamped(annotations):\n        return RollStep(RollOutcome.ALREADY_ASKED)", ":\n        return RollStep(RollOutcome.ALREADY_ASKED)", ROLLING_TESTS),
    _break("an undone request leaves the stamp for Karpenter", ROLLING, "            back[names.NODEPOOL_HASH] = before\n", "            pass\n", ROLLING_TESTS),
    _break("an undone request writes a hash that is no stamp", ROLLING, "        if is_stamped(annotations):\n", "        if True:\n", ROLLING_TESTS),
    _break("a node is held only from the end of its window", HOLDING, "if now < held_from:", "if now < closes_at:", HOLDING_TESTS),
    _break("a short window is held from its start", HOLDING, "min(lead, (closes_at - opened_at) / 2)", "lead", HOLDING_TESTS),
    _break("nodes are held for pods that Karpenter leaves alone", HOLDING, " or respected_by_karpenter(pod):", ":", HOLDING_TESTS),
    _break("a user's do-not-disrupt becomes a hold", MARKS, "if node.do_not_disrupt is None and wanted is not None:", "if wanted is not None:", MARK_TESTS),
    _break("a release leaves do-not-disrupt on the Node", MARKS, "{names.DO_NOT_DISRUPT: None, names.HELD: None}", "{names.HELD: None}", MARK_TESTS),
    _break("the mark outlives a user's change of what it marks", MARKS, "        return MarkChange(MarkAction.DROP_MARK, {names.HELD: None})\n", "        return None\n", MARK_TESTS),
    # -- planning: validation and records
    _break("a new node with the name of a candidate is disrupted for it", VALIDATION, " and new.claim_uid == old.claim_uid", "", VALIDATION_TESTS),
    _break("a replacement is started with types that are no longer cheaper", VALIDATION, "if set(planned.types) <= set(claim.types)", "if set(planned.types) & set(claim.types)", VALIDATION_TESTS),
    _break("a record counts if one of its NodeClaims carries it", COMMAND_RECORDS, "all(record_on(claim) == record", "any(record_on(claim) == record", RECORD_TESTS),
    _break("an annotation turns any NodeClaim into a replacement", COMMAND_RECORDS, "return is_named and claim", "return claim", RECORD_TESTS),
    # -- beside Karpenter
    _break("a hold is rewritten with each instant", "planning/beside/marks.py", "hold.until is not None and hold.until <= now and wanted", "wanted", "unit/planning/beside/test_changes.py"),
    _break("releases do not wait for holds", "controllers/beside/holds.py", "if self._holds.has_turn else", "if False else", "sim/beside/test_holds.py"),
    _break("stamped claims use up no budget", "planning/beside/stamping.py", "node in nodes), stamped)", "node in nodes), ())", "unit/planning/beside"),
    _break("held nodes are stamped", "planning/beside/stamping.py", "or each.held or claim.stamped", "or claim.stamped", "unit/planning/beside"),
    _break("stamping goes on without an answer", "controllers/beside/stamps.py", "self._answered, self._test = False, None", "self._answered, self._test = None, None", "sim/beside/test_stamps.py"),
    _break("the hold of a pod ends early", "planning/beside/pod_holding.py", "-((started_at - until) // _SECOND)", "(until - started_at) // _SECOND", "unit/planning/beside"),
    _break("a user's value on a pod goes with the mark", "planning/beside/pod_holding.py", "{names.POD_HOLD: None} if read_pod_hold(mark)", "{names.POD_HOLD: None, names.DO_NOT_DISRUPT: None} if read_pod_hold(mark)", "unit/planning/beside"),
    _break("a late node counts with each pod and look", "controllers/beside/late.py", "if name not in self._late:", "if True:", "sim/beside/test_late.py"),
    _break("cleanup takes a user's annotation", "planning/cleaning.py", 'held is not None and value == "true" and read_hold', "held is not None and read_hold", "sim/beside/test_cleaned.py"),
    _break("cleanup takes Karpenter's own marks", "planning/cleaning.py", "if claim is not None and not karpenter and is_ours", "if claim is not None and is_ours", "unit/planning/test_cleaning.py"),
)  # fmt: skip
