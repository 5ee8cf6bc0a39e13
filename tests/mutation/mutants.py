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


PROTECTION, BUDGETS, NODES = "rules/protection.py", "rules/budgets.py", "rules/nodes.py"
PDB, DEADLINES, STATES = "rules/pdb.py", "rules/deadlines.py", "rules/states.py"
RECORDS, SNAPSHOT = "model/records.py", "model/snapshot.py"
CRON, INSTANTS = "values/schedule/cron.py", "values/schedule/instants.py"

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
)  # fmt: skip
