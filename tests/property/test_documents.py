"""Does every text give objects or InputError, and do JSON and YAML of the same object read the same?"""

import json
from typing import Any

import msgspec
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api.documents import Document, InputError, decode, read_documents


class Meta(msgspec.Struct, rename="camel"):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Container(msgspec.Struct, rename="camel"):
    name: str
    priority: int | None = None
    weight: float = 0


class Spec(msgspec.Struct, rename="camel"):
    containers: list[Container] = []


class Pod(msgspec.Struct, rename="camel"):
    metadata: Meta
    spec: Spec | None = None


POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "a", "labels": {"x/y": "z"}, "annotations": {"a": 1, "b": True}},
    "spec": {"containers": [{"name": "c", "priority": 2, "weight": 0.5}, {"name": "d", "args": [None, "ü", "22:30"]}]},
}
LIST = {"kind": "PodList", "apiVersion": "v1", "items": [POD, {"metadata": {"name": "b"}}]}
MANIFESTS = [
    json.dumps(LIST).encode(),
    json.dumps(POD, indent=1).encode() * 2,
    yaml.safe_dump(LIST).encode(),
    yaml.safe_dump_all([POD, None, LIST]).encode(),
    b"kind: A\napiVersion: v1\nmetadata: &m {name: x}\nspec: {<<: *m, a: [*m, !!str 1, 0x1F]}\nt: |\n  x\n",
]
TOKENS = [
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"'", b"\\", b"\n", b"\n---\n", b"\n...\n", b"- ", b"? ", b"\t", b"#"),
    *(b"&a ", b"*a", b"<<: ", b"!!int ", b"!x ", b"!<", b"%TAG ! x\n", b"null", b"NaN", b"1e999", b".inf"),
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\\ud800", b"\xc2\x85", b"\xe2\x80\xa8", b"|", b">-"),
    *(b"0x", b"9" * 400, b"kind: List\n", b'"items":['),
    *(b"[" * 1000, b'{"a":' * 1000, b"- " * 300, b'"kind":7,', b'"kind":"List",', b"? [", b"<<: [*a, 1]\n"),
]  # fmt: skip


def use(data: bytes) -> list[Document]:
    """Read and decode everything; only InputError may come, and its line must be one line."""
    found: list[Document] = []
    try:
        for document in read_documents(data, "f"):
            found.append(document)
            assert document.where.startswith("f: ")
            for type_ in (Pod, dict[str, Any], Meta):
                try:
                    decode(document, type_)
                except InputError as error:
                    _check(error)
    except InputError as error:
        _check(error)
    return found


def _check(error: InputError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 1200


@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf{")
@example(b"\x85")
def test_any_bytes(data: bytes) -> None:
    use(data)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    use(text.encode("utf-8", "surrogatepass"))


@given(st.text(alphabet="{}[]\",:'-?&*!|>%@` \n\t#ab01.<~", max_size=60))
def test_any_punctuation(text: str) -> None:
    use(text.encode())
    use(b"kind: A\napiVersion: v1\nx: " + text.encode())


@settings(max_examples=400)
@given(st.data())
def test_mutated_manifests(data: st.DataObject) -> None:
    text = bytearray(data.draw(st.sampled_from(MANIFESTS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        match data.draw(st.sampled_from(["cut", "drop", "flip", "insert"])):
            case "cut":
                del text[at:]
            case "drop":
                del text[at : at + data.draw(st.integers(1, 20))]
            case "flip":
                text[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case _:
                text[at:at] = data.draw(st.sampled_from(TOKENS))
    use(bytes(text))


def test_the_manifests_themselves_are_read() -> None:
    """The mutations start from texts that are fine, or they would prove little."""
    assert [len(use(text)) for text in MANIFESTS] == [2, 2, 2, 3, 1]


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(["true", "no", "y", "~", "", "12", "0x1f", "1e3", "089", "22:30", "2024-01-01", "<<", "=", "- a"])
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["<<", "on", "1", "null", "kind"]
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


class Quoting(yaml.SafeDumper):
    """Quotes strings: PyYAML would leave `y` and `1e3` plain, which Kubernetes reads as a boolean and a number."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(st.dictionaries(keys, values, max_size=4), st.booleans())
def test_json_and_yaml_read_the_same(content: dict[str, Any], ascii_only: bool) -> None:
    value = content | {"kind": "Pod", "apiVersion": "v1"}
    (from_json,) = read_documents(json.dumps(value, ensure_ascii=ascii_only).encode(), "f")
    (from_yaml,) = read_documents(yaml.dump(value, Dumper=Quoting, allow_unicode=not ascii_only).encode(), "f")
    assert _typed(decode(from_json, dict[str, Any])) == _typed(value)
    assert _typed(from_yaml.value) == _typed(value)


def _typed(value: object) -> object:
    """Equal only with equal types: 1, 1.0 and True are three values."""
    if isinstance(value, dict):
        return {key: _typed(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_typed(child) for child in value]
    return (type(value).__name__, value)


@given(
    st.dictionaries(st.text(max_size=3), st.none() | st.booleans() | st.integers() | st.text(max_size=3), max_size=4)
)
def test_labels_are_strings_in_the_end(labels: dict[str, Any]) -> None:
    value = POD | {"metadata": {"name": "a", "labels": labels}}
    (document,) = read_documents(json.dumps(value).encode(), "f")
    decoded = decode(document, Pod).metadata.labels
    assert decoded == {
        key: label if isinstance(label, str) else "" if label is None else json.dumps(label)
        for key, label in labels.items()
    }
    odd = [label for label in labels.values() if not isinstance(label, str)]
    assert [original for _, original in document.coerced] == odd
