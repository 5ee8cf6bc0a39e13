"""What does lint say of the manifests in the seed documents, in their literal text?

Snippets that are only a part of an object are put into the least object around them; `findings` leaves out what is
missing for that reason alone, and the info that every NodePool without terminationGracePeriod gets.
"""

from datetime import UTC, datetime
from textwrap import indent

import pytest

from dovetail.api.documents import read_documents
from dovetail.model.finding import Finding, Severity
from dovetail.views.lint import lint
from tests.seeds.documents import (
    SEED_000_API,
    SEED_000_CRITICAL,
    SEED_000_JOB,
    SEED_000_TRAINING,
    SEED_001_ALTERNATIVE_1,
    SEED_001_BATCH,
    SEED_001_BUSINESS,
    SEED_001_OPTION_B,
    SEED_001_SPEC,
    SEED_001_TRAINING,
    SEED_002_ALTERNATIVE,
    SEED_002_SPEC,
    SEED_004_APPROACH_B,
)

AT = datetime(2026, 3, 4, 12, tzinfo=UTC)
E, W, I = Severity.ERROR, Severity.WARNING, Severity.INFO  # noqa: E741
B = "spec.disruption.budgets"
DND = "metadata.annotations[karpenter.sh/do-not-disrupt]"
_INCOMPLETE = {
    ("InvalidObject", "metadata.name"),
    ("InvalidField", "spec.template"),
    ("InvalidField", "spec.template.spec.nodeClassRef"),
    ("InvalidField", "spec.template.spec.requirements"),
    ("InvalidField", "spec.nodeClassRef"),
    ("InvalidField", "spec.requirements"),
    ("DrainWithoutLimit", "spec.template.spec.terminationGracePeriod"),
}

ExpectedFinding = tuple[Severity, str, str]


def problems(text: str) -> list[Finding]:
    return [p for p in lint(read_documents(text.encode(), "seed"), AT) if (p.rule, p.field) not in _INCOMPLETE]


def findings(text: str) -> list[ExpectedFinding]:
    return [(p.severity, p.rule, p.field) for p in problems(text)]


def pod(metadata: str) -> str:
    return f"apiVersion: v1\nkind: Pod\n{metadata}\n  name: p\n"


def pool(budgets: str) -> str:
    head = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: default\nspec:\n  disruption:\n"
    return head + indent(budgets, "    ")


# -- seed 000: do-not-disrupt with a duration --------------------------------------------------------------------------

SEED_000_TOGETHER = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
# NodePool with 72-hour eventual disruption
spec:
  disruption:
    consolidationPolicy: WhenEmpty
  template:
    spec:
      terminationGracePeriod: 72h

---
apiVersion: v1
kind: Pod
# Pod with 4-hour protection
metadata:
  annotations:
    karpenter.sh/do-not-disrupt: "4h"
"""
SEED_000_ALTERNATIVE_2 = """
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    karpenter.sh/do-not-disrupt: "true"
    karpenter.sh/do-not-disrupt-grace-period: "14400"
"""


@pytest.mark.parametrize("text", [SEED_000_API, SEED_000_JOB, SEED_000_TRAINING, SEED_000_TOGETHER])
def test_seed_000_durations_are_fine(text: str) -> None:
    assert findings(text) == []


def test_seed_000_indefinite_protection_is_worth_knowing() -> None:
    assert findings(SEED_000_CRITICAL) == [(I, "IndefiniteProtection", DND)]


def test_seed_000_alternative_2_was_rejected() -> None:
    assert findings(SEED_000_ALTERNATIVE_2) == [
        (W, "UnknownAnnotation", "metadata.annotations[karpenter.sh/do-not-disrupt-grace-period]"),
        (I, "IndefiniteProtection", DND),
    ]
    assert 'karpenter.sh/do-not-disrupt: "4h"' in problems(SEED_000_ALTERNATIVE_2)[0].remedy


# -- seed 001: schedules -----------------------------------------------------------------------------------------------

SEED_001_BOTH = """
metadata:
  annotations:
    karpenter.sh/do-not-disrupt: "true"
    karpenter.sh/disruption-schedule: "0 2 * * 6"
"""
SEED_001_ALTERNATIVE_2 = """
apiVersion: karpenter.sh/v1
kind: PodDisruptionSchedule
metadata:
  name: ml-training-schedule
spec:
  selector:
    matchLabels:
      app: ml-training
  schedule: "0 2 * * 6"
  duration: 4h
"""


@pytest.mark.parametrize("metadata", [SEED_001_OPTION_B, SEED_001_TRAINING, SEED_001_BUSINESS, SEED_001_BATCH])
def test_seed_001_windows_are_fine(metadata: str) -> None:
    assert findings(pod(metadata)) == []


def test_seed_001_has_a_slip_in_its_version() -> None:
    assert findings(SEED_001_SPEC) == [(E, "UnknownApiVersion", "apiVersion")]


def test_seed_001_one_or_the_other() -> None:
    assert findings(pod(SEED_001_BOTH)) == [(W, "DoNotDisruptWithSchedule", DND)]


def test_seed_001_alternative_1_never_allows_anything() -> None:
    (found,) = problems(SEED_001_ALTERNATIVE_1)
    assert (found.severity, found.rule, found.field) == (W, "BudgetIsNoAllowWindow", f"{B}[0]")
    assert "no node is ever disrupted for any reason" in str(found.message)
    assert '{nodes: "0", schedule: "0 6 * * 6", duration: 164h}' in found.remedy


def test_seed_001_alternative_1_as_the_remedy_says() -> None:
    mended = """
budgets:
- {nodes: "0", schedule: "0 6 * * 6", duration: 164h}
"""
    assert findings(pool(mended)) == []


def test_seed_001_alternative_2_does_not_exist() -> None:
    (found,) = problems(SEED_001_ALTERNATIVE_2)
    assert found.rule == "NotChecked"
    assert "1 PodDisruptionSchedule" in str(found.message)


# -- seed 002: terminationGracePeriod ----------------------------------------------------------------------------------

# "A Deployment has 3 replicas, each with a terminationGracePeriodSeconds of 10m", with a PDB and a pool of 15m.
SEED_002_SCENARIO = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: a}}
    spec: {terminationGracePeriodSeconds: 600}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: a}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: a}}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec: {terminationGracePeriod: 15m}
"""


def test_seed_002_spec_is_written_for_an_old_version() -> None:
    assert findings(SEED_002_SPEC) == [(W, "OldApiVersion", "apiVersion")]


def test_seed_002_alternative_place() -> None:
    assert findings(SEED_002_ALTERNATIVE) == [
        (W, "OldApiVersion", "apiVersion"),
        (W, "UnknownField", "spec.disruption.terminationGracePeriod"),
    ]
    assert problems(SEED_002_ALTERNATIVE)[1].remedy == "move it to spec.template.spec.terminationGracePeriod"


def test_seed_002_scenario_is_what_pre_emptive_deletion_is_for() -> None:
    assert findings(SEED_002_SCENARIO) == []


def test_seed_002_risk_of_pods_that_ask_for_more() -> None:
    (found,) = problems(SEED_002_SCENARIO.replace("600", "1000"))
    assert (found.rule, str(found.object)) == ("GraceExceedsNode", "Deployment/default/a")
    assert "deleted as soon as its node begins to drain" in str(found.message)


# -- seed 004: budgets by reason ---------------------------------------------------------------------------------------

SEED_004_DEFAULT = """
budgets: 
  - nodes: 10
    reasons: [drifted, underutilized]
    schedule: "* * * * *"
  - nodes: 30 
    schedule: "* * * * *" 
"""  # noqa: W291
SEED_004_EXAMPLE = """
budgets: 
  - nodes: 15 
    reasons: [drifted, underutilized]
    schedule: "* * * * *"
  - nodes: 10
    reasons: [drifted]
    schedule: "* * * * *"
  - nodes: 5 
    schedule: "* * * * *" 
"""  # noqa: W291
SEED_004_UNSPECIFIED = """
budgets: 
  - nodes: 10
    reasons: [drift, underutilized]
    schedule: "* * * * *"
  - nodes: 5 
    reasons: [empty] 
    schedule: "* * * * *" 
"""  # noqa: W291
SEED_004_LIST = """
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata:
  name: default
spec: # This is not a complete NodePool Spec.
  disruption:
    budgets:
    - schedule: "* * * * *"
      reason: [drifted, underutilized]
      nodes: 10
    # For all other reasons , only allow 5 nodes to be disrupted at a time
    - nodes: 5
      schedule: "* * * * *"

"""
SEED_004_SINGLE = """
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata:
  name: default
spec: # This is not a complete NodePool Spec.
  disruption:
    budgets:
    - schedule: "* * * * *"
      reason: drifted 
      nodes: 10
    # For all other reasons , only allow 5 nodes to be disrupted at a time
    - nodes: 5
      schedule: "* * * * *"

"""  # noqa: W291


def unquoted(*indexes: int) -> list[ExpectedFinding]:
    return [(E, "InvalidField", f"{B}[{index}].nodes") for index in indexes]


def no_duration(*indexes: int) -> list[ExpectedFinding]:
    return [(E, "InvalidBudget", f"{B}[{index}].schedule") for index in indexes]


@pytest.mark.parametrize(("text", "count"), [(SEED_004_DEFAULT, 2), (SEED_004_EXAMPLE, 3)])
def test_seed_004_numbers_want_quotes_and_schedules_a_duration(text: str, count: int) -> None:
    assert findings(pool(text)) == unquoted(*range(count)) + no_duration(*range(count))
    assert "drop the schedule" in problems(pool(text))[-1].remedy


def test_seed_004_drift_is_called_drifted() -> None:
    found = problems(pool(SEED_004_UNSPECIFIED))
    drift = [p for p in found if p.field.startswith(f"{B}[0].reasons")]
    assert [(p.severity, p.rule) for p in drift] == [(E, "InvalidField")]
    assert "'drift' is not one of" in str(drift[0].message)
    assert drift[0].remedy == "write Drifted"
    rest = [(p.severity, p.rule, p.field) for p in found if p not in drift]
    assert rest == unquoted(0, 1) + no_duration(0, 1)


@pytest.mark.parametrize("text", [SEED_004_LIST, SEED_004_SINGLE])
def test_seed_004_reason_is_called_reasons(text: str) -> None:
    assert findings(text) == [
        *unquoted(0, 1),
        *no_duration(0, 1),
        (W, "OldApiVersion", "apiVersion"),
        (W, "UnknownField", f"{B}[0].reason"),
    ]
    assert problems(text)[-1].remedy.startswith("write reasons")


def test_seed_004_approach_b_was_not_taken() -> None:
    assert findings(SEED_004_APPROACH_B) == [
        (W, "OldApiVersion", "apiVersion"),
        (W, "UnknownField", "spec.disruption.defaults"),
        (W, "UnknownField", "spec.disruption.consolidation"),
        (W, "UnknownField", "spec.disruption.drift"),
    ]
    assert "reasons: [Drifted]" in problems(SEED_004_APPROACH_B)[-1].remedy


def test_seed_004_example_as_the_remedies_say_is_read_differently_by_karpenter() -> None:
    mended = """
budgets:
  - nodes: "15"
    reasons: [drifted, underutilized]
  - nodes: "10"
    reasons: [drifted]
  - nodes: "5"
"""
    (found,) = problems(pool(mended))
    assert (found.severity, found.rule, found.field) == (W, "BudgetReadingDiffers", B)
    assert "limit for Drifted is 10 here but 5" in str(found.message)
