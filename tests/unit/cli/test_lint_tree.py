"""`dovetail lint DIR`: a repository with all that repositories hold, `tests/repository`."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.cli.common.counting import counting
from tests.unit.cli.running import Program

ROOT = Path(__file__).parents[3]
REPOSITORY = ROOT / "tests" / "repository"
AT = "2026-03-06T16:20:00Z"
# Every error and warning in the repository: the file, the rule, the object, and the line of the field.
EXPECTED = {
    ("apps/cart/base/deployment.yaml", "InvalidDoNotDisrupt", "Deployment/shop/cart", 16),
    ("apps/cart/base/pdb.yaml", "DuplicateObject", "PodDisruptionBudget/shop/cart", 4),
    ("apps/db/db.yaml", "PdbNeverAllows", "PodDisruptionBudget/data/db", 29),
    ("apps/jobs/nightly.yaml", "NotAString", "CronJob/shop/nightly", 13),
    ("apps/mesh/mtls.yaml", "UnknownAnnotation", "Pod/shop/probe", 26),
    ("apps/queue/queue.yaml", "InvalidDisruptionSchedule", "Deployment/shop/queue", 16),
    ("apps/shop/release.yaml", "NotAString", "HelmRelease/shop/shop", 17),
    ("charts/shop/templates/pdb.yaml", "PdbNeverAllows", "PodDisruptionBudget/shop/shop", 7),
    ("clusters/a/batch.yaml", "NodeClassMissing", "NodePool/batch", 12),
    ("clusters/b/pools.yaml", "BudgetIsNoAllowWindow", "NodePool/disk", 48),
    ("clusters/old/beta.yaml", "OldApiVersion", "NodePool/beta", 1),
    ("clusters/old/provisioner.yaml", "RemovedKind", "Provisioner/default", 2),
    ("monitoring/broken.yaml", "UnreadableFile", "", 8),
}
SKIPPED = {
    "no apiVersion and kind": 14,
    "kustomize patch": 3,
    "Helm chart or values": 3,
    "kustomization": 2,
    "template": 2,
}


def report(dovetail: Program, *arguments: str) -> dict[str, Any]:
    outcome = dovetail("lint", *arguments, "--at", AT, "-o", "json")
    assert outcome.err == ""
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def found(answer: dict[str, Any], folder: Path = REPOSITORY) -> set[tuple[str, str, str, int]]:
    return {
        (problem["file"].removeprefix(f"{folder}/"), problem["rule"], problem["object"], problem["line"])
        for problem in answer["problems"]
        if problem["severity"] != "info"
    }


# -- what is found ----------------------------------------------------------------------------------------------------


def test_a_repository_is_searched_for_manifests(dovetail: Program) -> None:
    answer = report(dovetail, str(REPOSITORY))
    assert found(answer) == EXPECTED
    reasons = [file["reason"] for file in answer["skipped"]]
    assert {reason: reasons.count(reason) for reason in reasons} == SKIPPED
    assert (answer["files"], sum(answer["read"].values())) == (20, 29)
    assert dovetail("lint", str(REPOSITORY)).code == 1


def test_the_repository_has_forty_files() -> None:
    assert sum(path.is_file() for path in REPOSITORY.rglob("*")) >= 40


@pytest.mark.parametrize(
    "name",
    [
        *(".codecov.yml", ".github/workflows/ci.yml", ".github/ISSUE_TEMPLATE/bug.yaml", "mkdocs.yml"),
        *(
            "terraform/iam-policy.json",
            "terraform/secrets.enc.yaml",
            "charts/shop/Chart.yaml",
            "web/fixtures/prices.json",
        ),
        *("charts/shop/templates/deployment.yaml", "apps/cart/base/kustomization.yaml", "monitoring/notes.yaml"),
    ],
)
def test_a_named_file_that_is_no_manifest_is_refused(dovetail: Program, name: str) -> None:
    outcome = dovetail("lint", str(REPOSITORY / name))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"dovetail: {REPOSITORY / name}: ")


def test_a_named_template_is_called_so(dovetail: Program) -> None:
    outcome = dovetail("lint", str(REPOSITORY / "charts" / "shop" / "templates" / "deployment.yaml"))
    assert outcome.err.endswith("; if it is a template, render it first: helm template … | dovetail lint -\n")


def test_findings_come_by_file_with_counts(dovetail: Program) -> None:
    out = dovetail("lint", str(REPOSITORY), "--at", AT).out
    *_, summary, read, decides, skipped = out.splitlines()
    assert decides == "Dovetail decides: DOVETAIL_DECIDER says so"
    assert summary == "6 errors, 7 warnings, 4 info in 14 files"
    assert read == "read 29 objects in 20 files, 5 of kinds that lint does not check"
    assert skipped == (
        "24 files without manifests: 14 no apiVersion and kind, 3 kustomize patches, 3 Helm charts and values, "
        "2 kustomizations, 2 templates (-v lists them); render templates first: helm template … | dovetail lint -"
    )
    headings = [line for line in out.splitlines() if line.startswith(str(REPOSITORY))]
    assert len(headings) == len(set(headings)) == 14
    verbose = dovetail("lint", str(REPOSITORY), "--at", AT, "-v").out
    assert f"  {REPOSITORY}/charts/shop/templates/quoted.yaml: template, render it first: helm template" in verbose


def test_a_directory_without_mistakes(dovetail: Program) -> None:
    outcome = dovetail("lint", str(REPOSITORY / "clusters" / "a"), "--exclude", "batch.yaml", "-q")
    assert (outcome.code, outcome.out) == (0, "")


def test_a_directory_without_manifests_says_so(dovetail: Program) -> None:
    outcome = dovetail("lint", str(REPOSITORY / "web"))
    assert outcome.code == 0
    assert outcome.out.startswith("nothing checked: there are no manifests\n3 files without manifests")
    dovetail.file("text", "notes.txt")
    outcome = dovetail("lint", str(dovetail.folder))
    assert (outcome.code, "the directory has no .yaml, .yml or .json file" in outcome.err) == (2, True)


def test_hidden_folders_and_dependencies_are_left_out(dovetail: Program) -> None:
    files = {file["file"] for file in report(dovetail, str(REPOSITORY))["skipped"]}
    assert not any("node_modules" in file or ".github" in file for file in files)
    assert any(file.endswith("/.codecov.yml") for file in files)
    # Who names a hidden folder means it.
    assert len(report(dovetail, str(REPOSITORY / ".github"))["skipped"]) == 2


def test_what_cannot_be_opened_is_counted(dovetail: Program) -> None:
    dovetail.file(gzip.compress(b"kind: Pod")[:-5], "cut.yaml.gz")
    dovetail.file("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "pod.yaml")
    answer = report(dovetail, str(dovetail.folder))
    assert [file["reason"] for file in answer["skipped"]] == ["not readable"]
    assert answer["read"] == {"Pod": 1}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a: b\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", {"Pod": 1}),
        ("{apiVersion: v1, kind: Pod, metadata: {name: p}}\n", {"Pod": 1}),
        ('"apiVersion": v1\n"kind": Pod\nmetadata: {name: p}\n', {"Pod": 1}),
        ("  apiVersion: v1\n  kind: Pod\n  metadata: {name: p}\n", {"Pod": 1}),
        ("--- {apiVersion: v1, kind: Pod, metadata: {name: p}}\n", {"Pod": 1}),
        ("--- # first\napiVersion: 'v1'\nkind: \"Pod\" # a pod\nmetadata: {name: p}\n---\n", {"Pod": 1}),
        ("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: p}}\n", {"Pod": 1}),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\ndata:\n  x: |\n    kind: Pod\n", {"ConfigMap": 1}),
        ('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}', {"Pod": 1}),
        ("# kind: Pod\napiVersion: v1\r\nkind: Pod\r\nmetadata: {name: p}\r\n", {"Pod": 1}),
        ("\ufeffapiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", {"Pod": 1}),
    ],
)
def test_every_way_to_write_a_manifest_is_read(dovetail: Program, text: str, kinds: dict[str, int]) -> None:
    dovetail.file(text, "a.yaml")
    assert report(dovetail, str(dovetail.folder))["read"] == kinds


def test_objects_that_are_not_parsed_keep_numbers_and_lines(dovetail: Program) -> None:
    crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n"
    pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations:\n    karpenter.sh/do-not-disrupt: 1d\n"
    dovetail.file(f"{crd}---\n{pod}---\n{crd}---\n{pod}", "a.yaml")
    answer = report(dovetail, str(dovetail.folder))
    lines = [(problem["rule"], problem["line"]) for problem in answer["problems"] if problem["severity"] != "info"]
    assert lines == [("InvalidDoNotDisrupt", 10), ("InvalidDoNotDisrupt", 21), ("DuplicateObject", 19)]
    assert "document 2 has the same object" in str(answer["problems"])
    assert answer["read"] == {"Pod": 2, "CustomResourceDefinition": 2}


# -- duplicates, in a repository --------------------------------------------------------------------------------------

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"


@pytest.mark.parametrize(
    ("files", "duplicates"),
    [
        ({"a.yaml": POD, "b.yaml": POD}, 0),
        ({"a.yaml": f"{POD}---\n{POD}"}, 1),
        ({"a.yaml": POD, "b.yaml": POD, "kustomization.yaml": "resources: [a.yaml, b.yaml]"}, 1),
        ({"a.yaml": POD, "b.yaml": POD, "kustomization.yaml": "resources: [a.yaml]"}, 0),
        ({"a.yaml": POD, "b.yaml": POD, "kustomization.yaml": "resources: [a.yaml]\npatches: [{path: b.yaml}]"}, 0),
    ],
)
def test_duplicates_only_where_files_are_applied_together(
    dovetail: Program, files: dict[str, str], duplicates: int
) -> None:
    for name, text in files.items():
        dovetail.file(text, name)
    problems = report(dovetail, str(dovetail.folder))["problems"]
    assert sum(problem["rule"] == "DuplicateObject" for problem in problems) == duplicates


def test_named_files_are_applied_together(dovetail: Program) -> None:
    paths = [dovetail.file(POD, name) for name in ("a.yaml", "b.yaml")]
    problems = report(dovetail, *paths)["problems"]
    assert [problem["rule"] for problem in problems] == ["DuplicateObject"]


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec: {replicas: 1, template: {metadata: {labels: {app: web}}}}
"""
PDB = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NAME}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
"""


def test_a_pdb_is_compared_with_what_is_nearest(dovetail: Program) -> None:
    """Two folders, such as two clusters, have workloads with the same labels."""
    for folder in ("one", "two"):
        (dovetail.folder / folder).mkdir()
        dovetail.file(DEPLOYMENT.replace("NAME", folder), f"{folder}/deployment.yaml")
        dovetail.file(PDB.replace("NAME", folder), f"{folder}/pdb.yaml")
    problems = report(dovetail, str(dovetail.folder))["problems"]
    assert [(problem["rule"], problem["object"]) for problem in problems] == [
        ("PdbNeverAllows", "PodDisruptionBudget/default/one"),
        ("PdbNeverAllows", "PodDisruptionBudget/default/two"),
    ]
    assert all("leaves none of 1 to spare" in problem["message"] for problem in problems)
    named = [str(path) for path in sorted(dovetail.folder.rglob("*.yaml"))]
    rules = [problem["rule"] for problem in report(dovetail, *named)["problems"]]
    assert rules == ["OverlappingPdbs"]  # who names them applies them together: 2 pods, and 2 budgets for each


# -- for CI -----------------------------------------------------------------------------------------------------------


def test_annotations_of_github(dovetail: Program) -> None:
    outcome = dovetail("lint", str(REPOSITORY), "--at", AT, "--format", "github", "-q")
    lines = outcome.out.splitlines()
    assert (outcome.code, len(lines)) == (1, len(EXPECTED))
    assert lines[0] == (
        f"::error file={REPOSITORY}/apps/cart/base/deployment.yaml,line=16,title=InvalidDoNotDisrupt::"
        "Deployment/shop/cart spec.template.metadata.annotations[karpenter.sh/do-not-disrupt]: "
        '\'1d\' is neither "true", "false" nor a duration such as "4h"; the pod is protected indefinitely'
        '%0A→ write "24h"'
    )


def test_a_file_name_cannot_forge_a_command(dovetail: Program) -> None:
    dovetail.file(
        POD.replace("name: p", "name: p, annotations: {karpenter.sh/do-not-disrupt: 1d}"), "a,b:c%\n::error ::x.yaml"
    )
    (line, *_) = dovetail("lint", str(dovetail.folder), "--format", "github", "-q").out.splitlines()
    assert line.startswith("::error file=")
    assert "a%2Cb%3Ac%25" in line
    assert line.count("::") == 2


def test_sarif(dovetail: Program) -> None:
    outcome = dovetail("lint", str(REPOSITORY), "--at", AT, "--format", "sarif", "-q")
    log = json.loads(outcome.out)
    (run,) = log["runs"]
    assert (outcome.code, log["version"], run["tool"]["driver"]["name"]) == (1, "2.1.0", "dovetail lint")
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert {rules[result["ruleIndex"]] for result in run["results"]} == {rule for _, rule, _, _ in EXPECTED}
    places = {
        (place["artifactLocation"]["uri"].removeprefix(f"{REPOSITORY}/"), place["region"]["startLine"])
        for result in run["results"]
        for place in (location["physicalLocation"] for location in result["locations"])
    }
    assert places == {(file, line) for file, _, _, line in EXPECTED}
    assert {result["level"] for result in run["results"]} == {"error", "warning"}


def test_format_json_is_output_json(dovetail: Program) -> None:
    one, other = (
        dovetail("lint", str(REPOSITORY), "--at", AT, *option).out for option in (["-o", "json"], ["--format", "json"])
    )
    assert one == other
    both = dovetail("lint", str(REPOSITORY), "-o", "json", "--format", "sarif")
    assert (both.code, both.err) == (2, "dovetail: give either -o or --format, not both\n")


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (["charts"], {"charts/shop/templates/pdb.yaml"}),
        (["clusters/old/*"], {"clusters/old/beta.yaml", "clusters/old/provisioner.yaml"}),
        (["clusters/*/pools.yaml", "p*.yaml"], None),
        (["/apps/"], {file for file, *_ in EXPECTED if file.startswith("apps/")}),
    ],
)
def test_files_can_be_excluded(dovetail: Program, patterns: list[str], left: set[str] | None) -> None:
    options = [text for pattern in patterns for text in ("--exclude", pattern)]
    files = {file for file, *_ in found(report(dovetail, str(REPOSITORY), *options))}
    everything = {file for file, *_ in EXPECTED}
    if left is None:
        left = {file for file in everything if Path(file).name.startswith("p")}
    assert everything - files == left
    assert "\nexcluded " in dovetail("lint", str(REPOSITORY), *options).out


def test_a_baseline_hides_old_findings_only(dovetail: Program, tmp_path: Path) -> None:
    tree = tmp_path / "repository"
    shutil.copytree(REPOSITORY, tree)
    baseline = str(tmp_path / "old.json")
    written = dovetail("lint", str(tree), "--write-baseline", baseline)
    assert (written.code, written.out) == (0, f"wrote 17 findings to {baseline}\n")
    assert str(tmp_path) not in Path(baseline).read_text()  # it can be committed
    outcome = dovetail("lint", str(tree), "--baseline", baseline)
    assert outcome.code == 0
    assert "left out 17 old findings of the baseline\n" in outcome.out

    # Lines move, an old finding is mended, and a new one comes.
    nightly = tree / "apps" / "jobs" / "nightly.yaml"
    nightly.write_text("# nightly\n" + nightly.read_text())
    (tree / "clusters" / "old" / "provisioner.yaml").unlink()
    (tree / "new.yaml").write_text(POD.replace("name: p", "name: p, annotations: {karpenter.sh/do-not-disrupt: 1d}"))
    outcome = dovetail("lint", str(tree), "--baseline", baseline)
    assert outcome.code == 1
    assert outcome.out.startswith(f"{tree}/new.yaml\nerror   Pod/default/p")
    assert "left out 16 old findings of the baseline\nthe baseline has 1 finding too many" in outcome.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is no baseline of dovetail lint"),
        ('{"version": 2, "findings": []}', "has version 2; this program reads version 1"),
        (None, "No such file or directory"),
    ],
)
def test_a_bad_baseline_is_refused(dovetail: Program, text: str | None, message: str) -> None:
    path = dovetail.file(text, "b.json") if text is not None else "/nonexistent/b.json"
    outcome = dovetail("lint", str(REPOSITORY), "--baseline", path)
    assert (outcome.code, outcome.out, message in outcome.err) == (2, "", True)


# -- who decides -------------------------------------------------------------------------------------------------------

WINDOW = "annotations: {karpenter.sh/disruption-schedule: '0 2 * * 6', karpenter.sh/do-not-disrupt: 1d}"


def test_a_tree_is_told_once_that_somebody_else_may_decide(
    dovetail: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where it makes a difference: the schedule is not read, and the duration protects nothing."""
    tree = tmp_path / "tree"
    tree.mkdir()
    monkeypatch.delenv("DOVETAIL_DECIDER")
    (tree / "plain.yaml").write_text(POD)
    told = "findings differ where Dovetail decides: --decider dovetail, or DOVETAIL_DECIDER=dovetail in the environment"
    assert "Dovetail decides" not in dovetail("lint", str(tree)).out
    file = tree / "window.yaml"
    file.write_text(POD.replace("name: p", f"name: q, {WINDOW}"))
    lines = dovetail("lint", str(tree)).out.splitlines()
    assert lines[lines.index("Karpenter decides: nothing in these files comes from Dovetail") + 1] == f"2 {told}"
    assert json.loads(dovetail("lint", str(tree), "-o", "json").out)["otherwise"] == 2
    assert told not in dovetail("lint", str(tree), "-q").out
    assert told not in dovetail("lint", str(tree), "--decider", "karpenter").out
    assert told not in dovetail("lint", str(file)).out
    monkeypatch.setenv("DOVETAIL_DECIDER", "karpenter")
    assert told not in dovetail("lint", str(tree)).out


# -- progress ---------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_told_after_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with counting("checking", clock) as tick:
        for done in range(1, 3001):
            clock.now = done / 100
            tick(done, 3000)
    assert capsys.readouterr().err.splitlines() == [
        "checking: 200 of 3,000 files",
        "checking: 1,200 of 3,000 files",
        "checking: 2,200 of 3,000 files",
    ]


# -- the hook ---------------------------------------------------------------------------------------------------------


def test_the_hook_for_pre_commit_runs_what_there_is(dovetail: Program) -> None:
    """pre-commit would pass the changed files, and refuse those that are no manifests: the hook searches the tree."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["id"], hook["language"], hook["pass_filenames"]) == ("dovetail-lint", "python", False)
    program, *arguments = hook["entry"].split()
    assert program == "dovetail"
    assert dovetail(*arguments, *hook["args"][:-1], str(REPOSITORY)).code == 1
    assert hook["args"][-1] == "."
