"""Does the scan find the kinds that the parser finds, and say so where it cannot know?"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.api.documents import InputError, read_documents
from dovetail.api.field_lines import field_line
from dovetail.api.manifest_scan import scan, without

PIECES = (
    *("apiVersion: v1", "kind: Pod", "kind: Node", "---", "--- # x", "--- {kind: Pod, apiVersion: v1}", "# comment"),
    *("metadata: {name: x}", "", "  indented: 1", "- item", "{kind: Pod, apiVersion: v1}", "text: |", "  kind: Pod"),
    *(
        '"kind": Pod',
        "kind:",
        "kind: [a]",
        "...",
        "%YAML 1.1",
        "\tx",
        "kind : Pod",
        "apiVersion: 'v1' # y",
        "'apiVersion': v1",
        "apiVersion: !!str v1",
        "kind: &k Pod",
    ),
)


texts = st.builds(str.join, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.sampled_from(PIECES), max_size=12))


@given(texts)
@example("apiVersion: !!str v1\nkind: &k Pod")
@example("apiVersion: v1\rkind: Pod")
def test_a_scan_agrees_with_the_parser(text: str) -> None:
    data = text.encode()
    try:
        parsed = [(document.api_version, document.kind) for document in read_documents(data, "f")]
    except InputError:
        return  # only texts that can be read have an answer
    scanned = list(scan(data))
    if not any(document.unsure for document in scanned):
        assert [(document.api_version, document.kind) for document in scanned if document.kind] == parsed
    blank = without(data, scanned, lambda document: document.unsure or document.kind == "Pod")
    assert blank.count(b"\n") == data.count(b"\n")


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_text_has_an_answer(data: bytes) -> None:
    assert without(data, list(scan(data)), lambda _: True) == data


TEXT = """\
# a comment
---
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    "karpenter.sh/do-not-disrupt": x
spec:
  containers:
  - name: a
    image: x
  -
    name: b
  - image: y
    env:
    - name: E
      value: "1"
  flow: {a: 1}
---
kind: Other
spec: 1
""".splitlines()


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("", 3),
        ("kind", 4),
        ("metadata.name", 6),
        ("metadata.annotations[karpenter.sh/do-not-disrupt]", 8),
        ("metadata.labels", 5),
        ("spec.containers[0]", 11),
        ("spec.containers[0].name", 11),
        ("spec.containers[0].image", 12),
        ("spec.containers[2].env[0].value", 18),
        ("spec.containers[2].image", 15),
        ("spec.containers[7].image", 10),
        ("spec.flow.a", 19),
        ("status", 3),
    ],
)
def test_the_line_of_a_field(field: str, line: int) -> None:
    assert field_line(TEXT, 2, field) == line


def test_the_line_of_an_item_in_a_list() -> None:
    lines = ["items:", "- kind: Pod", "  metadata:", "    name: a", "- kind: Pod", "  metadata:", "    name: b"]
    assert field_line(lines, 5, "metadata.name") == 7
    assert field_line(lines, 5, "kind") == 5


@given(
    st.text(alphabet="ab:-#{} \n", max_size=40), st.integers(1, 9), st.sampled_from(["a", "a.b", "a[0].b", "[1]", "b"])
)
def test_any_field_has_a_line(text: str, start: int, field: str) -> None:
    lines = text.splitlines() or [""]
    assert 1 <= field_line(lines, start, field) <= len(lines)
