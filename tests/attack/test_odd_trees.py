"""Directories with anything in them: lint has an answer, never a traceback, and checks what can be checked."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.cli.running import Program

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {karpenter.sh/do-not-disrupt: 1d}}\n"
PIECES = (
    *(
        "apiVersion: v1\n",
        "kind: Pod\n",
        "kind: NodePool\n",
        "kind: List\n",
        "---\n",
        "{{ .x }}\n",
        "{% x %}\n",
        "- a\n",
    ),
    *(
        "metadata: {name: x}\n",
        "spec: [\n",
        "\t\n",
        "a: &a [*a]\n",
        "? [a]\n: b\n",
        "1: 2\n",
        "~: 1\n",
        "\x00",
        "\ufeff",
    ),
    *(
        '{"kind": "Pod", "apiVersion": "v1"}\n',
        "[1]\n",
        "kind: [a]\n",
        "apiVersion: {}\n",
        "resources: 7\n",
        "%YAML 9\n",
    ),
    *("patches: [{path: x.yaml}, {path: [1]}, 5]\n", "resources: [a.yaml, '', '\\0', ../..]\n", "kind: HelmRelease\n"),
)
NAMES = ("a.yaml", "kustomization.yaml", "Chart.yaml", "values.yaml", "b.json", "templates/c.yaml", "d.yaml.gz")
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join).map(str.encode) | st.binary(max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), texts))
@example({"kustomization.yaml": b'resources: ["\\0"]'})
def test_any_directory_has_an_answer(dovetail: Program, files: dict[str, bytes]) -> None:
    folder = dovetail.folder / "tree"
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
    for name, data in {**files, "z.yaml": POD.encode()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    for format_ in ("text", "github", "sarif", "json"):
        outcome = dovetail("lint", str(folder), "--format", format_)
        assert (outcome.code, outcome.err) == (1, "")
        assert "InvalidDoNotDisrupt" in outcome.out


def test_links_in_a_circle_and_pipes_are_no_trap(dovetail: Program) -> None:
    folder = dovetail.folder / "tree"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "up").symlink_to(folder)
    (folder / "inner" / "p.yaml").write_text(POD)
    (folder / "gone.yaml").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.yaml")
    outcome = dovetail("lint", str(folder), "-v")
    assert outcome.code == 1
    assert "1 error in 1 file\n" in outcome.out
    assert "pipe.yaml: not readable, not a regular file" in outcome.out
    assert "gone.yaml: not readable, No such file or directory" in outcome.out


@pytest.mark.parametrize("text", ["#" * 10_000_000, "\n" * 5_000_000, " " * 5_000_000, "a: |\n" + " x\n" * 1_000_000])
def test_a_long_text_takes_no_long_search(dovetail: Program, text: str) -> None:
    Path(dovetail.file(text, "a.yaml"))
    assert dovetail("lint", str(dovetail.folder)).out.startswith("nothing checked")
