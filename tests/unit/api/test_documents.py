"""Which texts give which objects, and which one line says what is wrong with the others?"""

import enum
import json
import time
from typing import Any

import msgspec
import pytest

from dovetail.api import documents
from dovetail.api.documents import Document, InputError, decode, plain_value, read_documents

POD = b"kind: Pod\napiVersion: v1\n"


def read(data: bytes | str) -> list[Document]:
    return list(read_documents(data.encode() if isinstance(data, str) else data, "in.yaml"))


def refused(data: bytes | str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(data)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 1000
    assert line.startswith("in.yaml: ")
    return caught.value


def names(data: bytes | str) -> list[tuple[str, str, int | None, str]]:
    return [(document.where, document.kind, document.line, document.api_version) for document in read(data)]


def value_of(scalar: str) -> object:
    (document,) = read(POD + f"v: {scalar}\n".encode())
    assert document.value is not None
    return document.value["v"]


class Meta(msgspec.Struct, rename="camel"):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None


class Container(msgspec.Struct, rename="camel"):
    name: str
    ready_count: int = 0


class Spec(msgspec.Struct, rename="camel"):
    containers: list[Container] = []
    node_name: str = ""


class Pod(msgspec.Struct, rename="camel"):
    metadata: Meta
    spec: Spec = msgspec.field(default_factory=Spec)


# What is read


@pytest.mark.parametrize(
    "data", [b"", b" \n", b"\xef\xbb\xbf", b"---\n", b"# only\n---\n# comments\n", b"null\n---\n~"]
)
def test_nothing(data: bytes) -> None:
    assert read(data) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (POD, [("in.yaml: document 1", "Pod", 1, "v1")]),
        (b"\xef\xbb\xbf" + POD, [("in.yaml: document 1", "Pod", 1, "v1")]),
        (b'\xef\xbb\xbf {"kind":"Pod","apiVersion":"v1"}', [("in.yaml: document 1", "Pod", None, "v1")]),
        (
            POD + b"---\n# nothing\n---\nkind: Node\napiVersion: v2\n",
            [("in.yaml: document 1", "Pod", 1, "v1"), ("in.yaml: document 3", "Node", 6, "v2")],
        ),
        (
            b'{"kind":"A","apiVersion":"v1"}\n{"kind":"B","apiVersion":"v2"}{"kind":"C","apiVersion":"v3"} ',
            [
                ("in.yaml: document 1", "A", None, "v1"),
                ("in.yaml: document 2", "B", None, "v2"),
                ("in.yaml: document 3", "C", None, "v3"),
            ],
        ),
        (b"{kind: Pod, apiVersion: v1}", [("in.yaml: document 1", "Pod", 1, "v1")]),
        (
            b'{"kind":"A","apiVersion":"v1"}\n---\n{"kind":"B","apiVersion":"v2"}',
            [("in.yaml: document 1", "A", 1, "v1"), ("in.yaml: document 2", "B", 3, "v2")],
        ),
        ('{"kind":"Pod","apiVersion":"v1","x":"ü\U0001f600"}', [("in.yaml: document 1", "Pod", None, "v1")]),
    ],
)
def test_documents(data: bytes | str, expected: list[tuple[str, str, int | None, str]]) -> None:
    assert names(data) == expected


def test_lists_are_flattened_in_both_formats() -> None:
    value = {
        "kind": "List",
        "apiVersion": "v1",
        "items": [
            {"kind": "Pod", "apiVersion": "v1"},
            {"kind": "ReplicaSetList", "apiVersion": "apps/v1", "items": [{"a": 1}, {"kind": "X", "apiVersion": "y"}]},
            {"kind": "NodeList", "apiVersion": "v1", "items": None},
            {"kind": "AllowList", "apiVersion": "example.com/v1"},
            {"kind": "List", "apiVersion": "v1"},
            {"kind": "Menu", "apiVersion": "example.com/v1", "items": "soup"},
        ],
    }
    expected = [
        ("in.yaml: items[0]", "Pod", "v1"),
        ("in.yaml: items[1].items[0]", "ReplicaSet", "apps/v1"),
        ("in.yaml: items[1].items[1]", "X", "y"),
        ("in.yaml: items[3]", "AllowList", "example.com/v1"),
        ("in.yaml: items[5]", "Menu", "example.com/v1"),
    ]
    as_json = read(json.dumps(value))
    as_yaml = read("# YAML\n" + json.dumps(value, indent=1))
    assert [(d.where, d.kind, d.api_version) for d in as_json] == expected
    assert [(d.where, d.kind, d.api_version) for d in as_yaml] == expected
    assert [decode(d, dict[str, Any]) for d in as_json] == [d.value for d in as_yaml]
    assert [d.item for d in as_json] == [0, 0, 1, 3, 5]


@pytest.mark.parametrize("form", [{}, {"indent": 2}, {"separators": (",", ":")}])
def test_the_order_of_names_makes_no_difference(form: dict[str, Any]) -> None:
    """Names in front, as kubectl prints them, are read in a shorter way."""
    heads = [
        ("v1", "Pod"),
        ("apps/v1", "AllowList"),
        ("v1", "Listing"),
        ("v1", 'P"\\d'),
        ("v1", "Pöd"),
        ("a_b/v1", "X"),
    ]
    in_front = [{"apiVersion": version, "kind": kind, "a": number} for number, (version, kind) in enumerate(heads)]
    behind = [dict(reversed(item.items())) for item in in_front]
    inner = {"apiVersion": "v1", "kind": "List", "items": in_front}
    expected = [(index, kind, version, index) for index, (version, kind) in enumerate(heads)]
    for items in (in_front, behind):
        found = read(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, inner]}, **form))
        told = [(one.item, one.kind, one.api_version, decode(one, dict[str, Any])["a"]) for one in found]
        assert told == expected * 2
        assert [one.path for one in found[5:7]] == ["items[5]", "items[6].items[0]"]


def test_items_have_their_lines_and_documents_their_numbers() -> None:
    items = b"kind: PodList\napiVersion: v1\nitems:\n- metadata:\n    name: a\n- metadata:\n    name: b\n"
    assert names(POD + b"---\n" + items) == [
        ("in.yaml: document 1", "Pod", 1, "v1"),
        ("in.yaml: document 2: items[0]", "Pod", 7, "v1"),
        ("in.yaml: document 2: items[1]", "Pod", 9, "v1"),
    ]


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        *((text, None) for text in ("", "~", "null", "Null", "NULL", "!!null ~")),
        *((text, True) for text in ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y")),
        *((text, False) for text in ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N")),
        *((text, text) for text in ("tRUE", "oN", "nULL", "2024-01-01T10:00:00Z", "2024-01-01", "22:30", "1:02:03")),
        *((text, text) for text in ("100m", "1.2.3", "+", ".", "0x", "0b2", "1e", "--1", "0o8", "e5", "NaN", "٣")),
        *((f'"{text}"', text) for text in ("true", "1", "~", "", "<<")),
        *((f"'{text}'", text) for text in ("no", "0x10", ".inf")),
        ("!!str 12", "12"),
        ("!!str", ""),
        ("!!bool 'yes'", True),
        ("!!int '7'", 7),
        ("!!float 3", 3.0),
        ("!!map {a: 1}", {"a": 1}),
        ("!!seq [a, 1]", ["a", 1]),
        ("0", 0),
        ("-0", 0),
        ("12", 12),
        ("+12", 12),
        ("-12", -12),
        ("1_000", 1000),
        ("0x1F", 31),
        ("-0x1f", -31),
        ("0o17", 15),
        ("017", 15),
        ("-017", -15),
        ("0b101", 5),
        ("089", 89.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.5E-2", 0.015),
        ("9" * 300, int("9" * 300)),
    ],
)
def test_scalars_as_kubernetes_reads_them(scalar: str, expected: object) -> None:
    value = value_of(scalar)
    assert value == expected
    assert type(value) is type(expected)


def test_block_scalars_are_strings() -> None:
    assert value_of("|\n  12\n") == "12\n"
    assert value_of(">-\n  true\n") == "true"


def test_aliases_and_merge_keys() -> None:
    text = """
kind: Pod
apiVersion: v1
base: &base {a: 1, b: 2}
other: &other {b: 3, c: &c [x]}
one: {<<: *base, b: 9}
two: {<<: [*base, *other], d: *c}
three: {"<<": *base}
name: &name key
map: {*name : 1}
"""
    (document,) = read(text)
    assert document.value is not None
    assert document.value["one"] == {"a": 1, "b": 9}
    assert document.value["two"] == {"a": 1, "b": 2, "c": ["x"], "d": ["x"]}
    assert document.value["three"] == {"<<": {"a": 1, "b": 2}}
    assert document.value["map"] == {"key": 1}


def test_aliases_are_counted_over_the_whole_text() -> None:
    one = POD + b"a: &a [" + b"x, " * 999 + b"]\nb: [" + b"*a, " * 300 + b"]\n---\n"
    assert len(read(one * 3)) == 3
    error = refused(one * 4)
    assert (error.document, error.message) == (4, "aliases expand to more than 1000000 values")


def test_anchors_end_with_their_document() -> None:
    error = refused(POD + b"a: &a 1\n---\n" + POD + b"b: *a\n")
    assert (error.document, error.line, error.field) == (2, 7, "b")
    assert error.message == "alias *a has no anchor before it"


# What is refused

Case = tuple[bytes | str, int | None, int | None, str | None, str]
JSON_POD = '{"kind":"Pod","apiVersion":"v1",'
BOMB = "kind: Pod\napiVersion: v1\na0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
REFUSED: dict[str, Case] = {
    # the text
    "utf-16 little": ("kind: Pod".encode("utf-16"), None, None, None, "text is UTF-16 or UTF-32; UTF-8 is needed"),
    "utf-16 big": ("kind: Pod".encode("utf-16-be"), None, None, None, "text is UTF-16 or UTF-32; UTF-8 is needed"),
    "utf-32": ("kind: Pod".encode("utf-32-be"), None, None, None, "text is UTF-16 or UTF-32; UTF-8 is needed"),
    "not utf-8": (POD + b"a: \xff\n", None, 3, None, "not valid UTF-8 (invalid start byte)"),
    "not utf-8 in json": (b'{"kind":"Pod",\n"\xc3":1}', None, 2, None, "not valid UTF-8 (invalid continuation byte)"),
    "cut utf-8": (POD + b"a: \xc3", None, 3, None, "not valid UTF-8 (unexpected end of data)"),
    "surrogate bytes": (POD + b"a: \xed\xa0\x80", None, 3, None, "not valid UTF-8 (invalid continuation byte)"),
    "nul": (POD + b"a: \0\n", None, 3, None, "NUL byte (byte 28)"),
    "nul in json": (b'{"kind":\n"\0"}', None, 2, None, "NUL byte (byte 10)"),
    # the document
    "yaml list": ("- 1\n", 1, 1, None, "expected a mapping, got a list"),
    "yaml scalar": (POD + b"---\nhello\n", 2, 3, None, "expected a mapping, got a string"),
    "json list": ("[1]", 1, None, None, "expected a mapping, got a list"),
    "json scalar after": ('{"kind":"A","apiVersion":"v1"} 17', 2, None, None, "expected a mapping, got an integer"),
    "json null": ('{"kind":"A","apiVersion":"v1"} null', 2, None, None, "expected a mapping, got null"),
    "no kind": ("apiVersion: v1\n", 1, 1, "kind", "is required"),
    "empty kind": ("\nkind: ''\napiVersion: v1\n", 1, 2, "kind", "is required"),
    "no apiVersion": (POD + b"---\nkind: Pod\n", 2, 4, "apiVersion", "is required"),
    "null apiVersion": ("kind: Pod\napiVersion:\n", 1, 1, "apiVersion", "is required"),
    "kind is no string": ("kind: 12\napiVersion: v1\n", 1, 1, "kind", "expected a string, got an integer"),
    "json without kind": ('{"apiVersion":"v1"}', 1, None, "kind", "is required"),
    "json empty": ("{}", 1, None, "kind", "is required"),
    "json kind": ('{"apiVersion":"v1","kind":["Pod"]}', 1, None, "kind", "expected a string, got a list"),
    "items no list": (
        "kind: PodList\napiVersion: v1\nitems: {a: 1}\n",
        1,
        1,
        "items",
        "expected a list, got a mapping",
    ),
    "json items no list": (
        '{"kind":"List","apiVersion":"v1","items":"x"}',
        1,
        None,
        "items",
        "expected a list, got a string",
    ),
    "item without kind": (
        "kind: List\napiVersion: v1\nitems:\n- kind: Pod\n  apiVersion: v1\n- apiVersion: v1\n",
        1,
        6,
        "items[1].kind",
        "is required",
    ),
    "item without apiVersion": (
        '{"kind":"List","apiVersion":"v1","items":[{"kind":"Pod"}]}',
        1,
        None,
        "items[0].apiVersion",
        "is required",
    ),
    "null item": (
        '{"kind":"PodList","apiVersion":"v1","items":[{},null]}',
        1,
        None,
        "items[1]",
        "expected a mapping, got null",
    ),
    "lists too deep": (
        '{"kind":"List","apiVersion":"v1","items":[' * 5 + "]}" * 5,
        1,
        None,
        "items[0].items[0].items[0]",
        "Lists in Lists deeper than 3 levels",
    ),
    # JSON
    "nan": (JSON_POD + '\n"a":NaN}', 1, 2, None, "JSON is malformed: invalid character (byte 37)"),
    "infinity": (JSON_POD + '"a":-Infinity}', 1, 1, None, "JSON is malformed: invalid character (byte 37)"),
    "cut": (JSON_POD + '\n"a":[1,\n', 1, 3, None, "JSON is malformed: the text ends too early (byte 41)"),
    "cut after a document": (
        '{"kind":"A","apiVersion":"v1"}\n{"kind"',
        2,
        2,
        None,
        "JSON is malformed: the text ends too early (byte 38)",
    ),
    "broken after a document": (
        '{"kind":"A","apiVersion":"v1"}\n\n}',
        2,
        3,
        None,
        "JSON is malformed: invalid character (byte 32)",
    ),
    "unquoted": ('{"kind": Pod}', 1, 1, None, "JSON is malformed: invalid character (byte 9)"),
    "json control character": (JSON_POD + '"a":"\x01"}', 1, 1, None, "JSON is malformed: invalid character (byte 37)"),
    "json duplicate": (JSON_POD + '"a":{"b":1,"b":2}}', 1, None, "a.b", "duplicate key 'b'"),
    "json duplicate kind": (JSON_POD + '"kind":"Node"}', 1, None, "kind", "duplicate key 'kind'"),
    "json duplicate in item": (
        '{"kind":"A","apiVersion":"v1"}'
        '{"kind":"PodList","apiVersion":"v1","items":[{},{"metadata":{"labels":{"a/b":"1","a\\/b":"2"}}}]}',
        2,
        None,
        "items[1].metadata.labels[a/b]",
        "duplicate key 'a/b'",
    ),
    "json deep list": (JSON_POD + '"a":' + "[" * 100_000 + "]" * 100_000 + "}", 1, None, None, "nested too deeply"),
    "json deep mapping": (JSON_POD + '"a":' + '{"a":' * 100_000, 1, None, None, "nested too deeply"),
    "only brackets": ("[" * 100_000, 1, None, None, "nested too deeply"),
    # YAML
    "duplicate": (POD + b"a:\n  b: 1\n  c: 2\n  b: 3\n", 1, 6, "a.b", "duplicate key 'b'"),
    "duplicate in list": (POD + b"a:\n- x\n- {b: 1, 'b': 2}\n", 1, 5, "a[1].b", "duplicate key 'b'"),
    "duplicate list": (POD + b"a: [1]\na: [2]\n", 1, 4, "a", "duplicate key 'a'"),
    "key twice": (POD + b"data:\n  80: x\n  '80': y\n", 1, 5, "data[80]", "duplicate key '80'"),
    "null key": (POD + b"a: {~: 1}\n", 1, 3, "a", "a key must be a string, not null"),
    "list key": (POD + b"? [a]\n: 1\n", 1, 3, None, "a key must be a string, not a list or mapping"),
    "alias key": (
        POD + b"a: &a [1]\n*a : 1\n",
        1,
        4,
        None,
        "a key must be a string, not a list or mapping",
    ),
    "python tag": (
        POD + b"a: !!python/object/apply:os.system [x]\n",
        1,
        3,
        "a",
        "tag !!python/object/apply:os.system is not supported",
    ),
    "binary tag": (POD + b"a: !!binary aGk=\n", 1, 3, "a", "tag !!binary is not supported"),
    "own tag": (POD + b"a:\n- !foo b\n", 1, 4, "a[0]", "tag !foo is not supported"),
    "tag on mapping": (POD + b"a: !!seq {}\n", 1, 3, "a", "tag !!seq is not supported"),
    "timestamp tag": (POD + b"a: !!timestamp 2024-01-01\n", 1, 3, "a", "tag !!timestamp is not supported"),
    "wrong tag": (POD + b"a: !!int x\n", 1, 3, "a", "'x' is not a value of the tag !!int"),
    "bool is no int": (POD + b"a: !!int true\n", 1, 3, "a", "'true' is not a value of the tag !!int"),
    "not finite": (POD + b"a: .inf\n", 1, 3, "a", ".inf is not a number that Kubernetes can hold"),
    "not a number": (POD + b"a: .NaN\n", 1, 3, "a", ".NaN is not a number that Kubernetes can hold"),
    "float out of range": (
        POD + b"a: 1e999\n",
        1,
        3,
        "a",
        "number 1e999 is out of range (quote it if it is a string)",
    ),
    "recursive alias": (POD + b"a: &a\n  b: [*a]\n", 1, 4, "a.b[0]", "alias *a stands inside its own anchor"),
    "unknown alias": (POD + b"a: *b\n", 1, 3, "a", "alias *b has no anchor before it"),
    "alias bomb": (BOMB, 1, 9, "a6[2]", "aliases expand to more than 1000000 values"),
    "bad merge": (POD + b"a:\n  <<: [1]\n", 1, 5, "a", "the merge key << needs a mapping or a list of mappings"),
    "deep flow": (POD + b"---\n" + b"[" * 100_000, 2, 4, "[0]" * 99 + "[0…", "nested deeper than 200 levels"),
    "control character": (
        POD + b"a: \x01\n",
        None,
        3,
        None,
        "not valid YAML: control characters are not allowed (byte 28)",
    ),
    "unclosed": (
        POD + b"a: [1, 2\n",
        1,
        4,
        None,
        "not valid YAML: did not find expected ',' or ']', while parsing a flow sequence",
    ),
    "tab": (
        POD + b"a:\n\tb: 1\n",
        1,
        4,
        None,
        "not valid YAML: found character that cannot start any token, while scanning for the next token",
    ),
    "lone surrogate": (
        POD + b'a: "\\ud800"\n',
        1,
        3,
        None,
        "not valid YAML: found invalid Unicode character escape code, while parsing a quoted scalar",
    ),
    "colon": (POD + b"a: b: c\n", 1, 3, None, "not valid YAML: mapping values are not allowed in this context"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, document, line, field, message = REFUSED[name]
    error = refused(data)
    assert (error.file, error.document, error.line, error.field, error.message) == (
        "in.yaml",
        document,
        line,
        field,
        message,
    )


@pytest.mark.parametrize(
    "text", [r'"\ud800"}', r'"\ud800 and more text"}', r'"\udc00 and more text"}', r'"\ud800\u0041"}']
)
def test_lone_surrogates_in_json(text: str) -> None:
    error = refused(JSON_POD + '"a":' + text)
    assert (error.document, error.line) == (1, 1)
    assert error.message.startswith("JSON is malformed: ")


def test_the_line_as_a_whole() -> None:
    error = InputError("a\nb.yaml", "bad\x1b[31m\u2028 \ud800", document=3, line=4, field="spec.x")
    assert str(error) == r"a\nb.yaml: document 3, line 4: spec.x: bad\x1b[31m\u2028 \ud800"
    assert str(InputError("f", "bad")) == "f: bad"
    assert str(InputError("f", "bad", document=1)) == "f: document 1: bad"
    assert str(InputError("f", "bad", line=2)) == "f: line 2: bad"
    assert str(InputError("f", "bad", field="kind")) == "f: kind: bad"
    assert len(str(InputError("f" * 9999, "m" * 9999, field="x" * 9999))) == 200 + 300 + 400 + 4


@pytest.mark.parametrize("depth", [199, 200])
def test_depth_limit_is_exact(depth: int) -> None:
    data = POD + b"a: " + b"[" * depth + b"]" * depth  # one level more with the document's mapping
    if depth < 200:
        assert len(read(data)) == 1
    else:
        assert refused(data).message == "nested deeper than 200 levels"


def test_the_documents_before_an_error_are_given() -> None:
    found = read_documents(POD + b"---\n" + POD + b"kind: Node\n", "f")
    assert next(found).number == 1
    with pytest.raises(InputError, match=r"^f: document 2, line 6: kind: duplicate key 'kind'$"):
        next(found)


def test_large_json_is_not_checked_for_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    data = JSON_POD + '"a":1,"a":2}'
    monkeypatch.setattr(documents, "DUPLICATES_CHECKED_UP_TO", len(data))
    assert refused(data).message == "duplicate key 'a'"
    monkeypatch.setattr(documents, "DUPLICATES_CHECKED_UP_TO", len(data) - 1)
    assert len(read(data)) == 1


@pytest.mark.parametrize(
    "data",
    [
        BOMB,
        POD + b"? " * 100_000,
        POD + b"a: " + b"- " * 100_000,
        POD + b"a: " + b"{a: " * 100_000,
        POD + b"&a " * 100_000,
        POD + b"a: " + b"'" * 1_000_001,
    ],
)
def test_hostile_yaml_is_refused_quickly(data: bytes | str) -> None:
    start = time.process_time()
    refused(data)
    assert time.process_time() - start < 5


# Typed decoding


def both(text: str) -> list[Document]:
    """The same object, read from JSON and from YAML."""
    return [*read(text), *read("# YAML\n" + text)]


def test_decode_is_typed_and_partial() -> None:
    text = JSON_POD + '"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"nodeName":"n","unknown":[1]}}'
    for document in both(text):
        assert decode(document, Pod) == Pod(Meta("a", {"x": "y"}), Spec(node_name="n"))
        assert document.coerced == ()


def test_null_is_absent() -> None:
    text = JSON_POD + '"metadata":{"name":"a","labels":null},"spec":{"containers":null}}'
    for document in both(text):
        assert decode(document, Pod) == Pod(Meta("a"))
        assert document.coerced == ()


def test_an_annotation_without_a_value_is_empty_as_in_go() -> None:
    for document in both(JSON_POD + '"metadata":{"name":"a","annotations":{"x":null}}}'):
        assert decode(document, Pod) == Pod(Meta("a", annotations={"x": ""}))
        assert document.coerced == (("metadata.annotations[x]", None),)


def test_null_in_a_list_is_not_dropped() -> None:
    for document in both(JSON_POD + '"metadata":{"name":"a"},"spec":{"containers":[{"name":"c"},null]}}'):
        with pytest.raises(InputError) as caught:
            decode(document, Pod)
        assert caught.value.field == "spec.containers[1]"
        assert caught.value.message == "expected a mapping, got null"


class Template(msgspec.Struct):
    metadata: Meta


class Deployment(msgspec.Struct):
    metadata: Meta
    spec: dict[str, Template]


def test_labels_and_annotations_become_strings() -> None:
    text = """{"kind":"D","apiVersion":"v1","metadata":{"name":"a",
        "annotations":{"karpenter.sh/do-not-disrupt":true,"b":"1","c":{"x":[1,null]}}},
        "spec":{"template":{"metadata":{"name":"t","labels":{"v":1.5}}}}}"""
    for document in both(text):
        decoded = decode(document, Deployment)
        assert decoded.metadata.annotations == {
            "karpenter.sh/do-not-disrupt": "true",
            "b": "1",
            "c": '{"x":[1,null]}',
        }
        assert decoded.spec["template"].metadata.labels == {"v": "1.5"}
        assert sorted(document.coerced) == [
            ("metadata.annotations[c]", {"x": [1, None]}),
            ("metadata.annotations[karpenter.sh/do-not-disrupt]", True),
            ("spec.template.metadata.labels[v]", 1.5),
        ]


class Labelled(msgspec.Struct):
    labels: dict[str, str] = {}


class Odd(msgspec.Struct):
    labels: dict[str, str] = {}
    spec: Labelled = msgspec.field(default_factory=Labelled)


@pytest.mark.parametrize("rest", ['"labels":{"a":1}', '"spec":{"labels":{"a":1}}'])
def test_only_labels_below_metadata_become_strings(rest: str) -> None:
    for document in both(JSON_POD + rest + "}"):
        with pytest.raises(InputError, match=r"labels.*expected a string, got an integer"):
            decode(document, Odd)
        assert document.coerced == ()


def test_decode_far_down_the_stack() -> None:
    (document,) = read(JSON_POD + '"metadata":{"name":"a"},"x":' + "[" * 700 + "]" * 700 + "}")

    def descend(levels: int) -> Pod | str:
        if levels:
            return descend(levels - 1)
        try:
            return decode(document, Pod)
        except InputError as error:
            return error.message

    assert descend(0) == Pod(Meta("a"))
    # Python before 3.12 counts its own calls against the depth of the decoder.
    assert descend(400) in (Pod(Meta("a")), "nested too deeply")


@pytest.mark.parametrize(
    ("rest", "field", "message"),
    [
        ('"metadata":{"name":"a"},"spec":{"containers":[{"name":7}]}',
         "spec.containers[0].name", "expected a string, got an integer"),
        ('"metadata":{"name":"a"},"spec":{"containers":[{}]}', "spec.containers[0].name", "is required"),
        ('"metadata":{"name":"a"},"spec":{"containers":{}}', "spec.containers", "expected a list, got a mapping"),
        ('"metadata":{"name":null}', "metadata.name", "is required"),
        ('"a":1', "metadata", "is required"),
        ('"metadata":{"name":"a","creationTimestamp":5}',
         "metadata.creationTimestamp", "expected a string, got an integer"),
    ],
)  # fmt: skip
def test_decode_refuses_and_names_the_field(rest: str, field: str, message: str) -> None:
    for document in both(JSON_POD + rest + "}"):
        with pytest.raises(InputError) as caught:
            decode(document, Pod)
        error = caught.value
        assert (error.document, error.line, error.field, error.message) == (1, document.line, field, message)


def test_decode_names_the_item() -> None:
    (document,) = read('{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{}}]}')
    with pytest.raises(InputError, match=r"^in.yaml: document 1: items\[0\]\.metadata\.name: is required$"):
        decode(document, Pod)


@pytest.mark.parametrize("number", ["1" * 5000, "-" + "1" * 5000, "1e999", "-1e999", "1E+400"])
@pytest.mark.parametrize(
    ("rest", "field"),
    [
        ('"metadata":{"name":"a"},"spec":{"containers":[{"name":"c"},{"name":"c","readyCount":%s}]}',
         "spec.containers[1].readyCount"),
        ('"metadata":{"name":%s}', "metadata.name"),
        ('"metadata":{"name":"a","labels":{"a":"b","app.kubernetes.io/name":%s}}',
         "metadata.labels[app.kubernetes.io/name]"),
        ('"metadata":{"name":"a","labels":{"a":{"x":[1,{"y":%s}]}}}', "metadata.labels.a.x[1].y"),
        ('"metadata":{"name":"a","labels":{"a":1}},"unread":[[],[2.5,%s]]', "unread[1][1]"),
        ('"metadata":{"name":"a"},"spec":%s', "spec"),
    ],
)  # fmt: skip
def test_a_number_out_of_range_is_refused_with_its_field(rest: str, field: str, number: str) -> None:
    pod = JSON_POD + rest % number + "}"
    in_a_list = f'{{"kind":"List","apiVersion":"v1","items":[{JSON_POD}"a":1}},{pod}]}}'
    for document, path in ((read(pod)[0], field), (read(in_a_list)[1], f"items[1].{field}")):
        with pytest.raises(InputError) as caught:
            decode(document, Pod)
        error = caught.value
        assert (error.document, error.field, error.message) == (1, path, "number is out of range")


def test_a_number_out_of_range_that_nobody_reads_does_no_harm() -> None:
    (document,) = read(JSON_POD + '"metadata":{"name":"a"},"unread":1e400}')
    assert decode(document, Pod) == Pod(Meta("a"))
    with pytest.raises(InputError, match=r"^in\.yaml: document 1: unread: number is out of range$"):
        plain_value(document)


@pytest.mark.parametrize("head", ['{"kind":1e400}', '{"kind":"A","apiVersion":1e400}', '{"kind":"List","items":1e400}'])
def test_a_number_out_of_range_in_the_head(head: str) -> None:
    key = head.rpartition(",")[2].strip("{}").partition(":")[0].strip('"')
    error = refused(f'{{"kind":"List","apiVersion":"v1","items":[{head}]}}')
    assert (error.field, error.message) == (f"items[0].{key}", "number is out of range")


@pytest.mark.parametrize("number", ["1.5", "1.0", "1e3", "-0.0"])
def test_a_float_where_an_integer_belongs(number: str) -> None:
    for document in both(
        JSON_POD + f'"metadata":{{"name":"a"}},"spec":{{"containers":[{{"name":"c","readyCount":{number}}}]}}}}'
    ):
        with pytest.raises(InputError) as caught:
            decode(document, Pod)
        assert (caught.value.field, caught.value.message) == (
            "spec.containers[0].readyCount",
            "expected an integer, got a number",
        )


class Group(msgspec.Struct):
    members: dict[str, list[Container]] = {}
    flags: dict[str, dict[str, bool]] = {}


class Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] = {}
    groups: list[Group] = []


@pytest.mark.parametrize(
    ("rest", "field", "message"),
    [
        ('"matchLabels":{"a":"b","c":"d","e":7,"f":8}', "matchLabels.e", "expected a string, got an integer"),
        ('"matchLabels":{"a.b/c":[]}', "matchLabels[a.b/c]", "expected a string, got a list"),
        ('"groups":[{},{"members":{"x":[{"name":"c"}],"y [...]":[{"name":"c"},{}]}}]',
         "groups[1].members[y [...]][1].name", "is required"),
        ('"groups":[{"flags":{"p":{"q":true},"r":{"s":true,"t":1},"u":{"v":2}}}]',
         "groups[0].flags.r.t", "expected true or false, got an integer"),
    ],
)  # fmt: skip
def test_the_key_of_a_mapping_is_part_of_the_field(rest: str, field: str, message: str) -> None:
    for document in both(JSON_POD + rest + "}"):
        with pytest.raises(InputError) as caught:
            decode(document, Selector)
        assert (caught.value.field, caught.value.message) == (field, message)


def test_the_key_is_found_quickly_among_many() -> None:
    """A hang would show; this is no measure of speed."""
    labels = {f"k{number}": "v" for number in range(100_000)} | {"odd": 1}
    (document,) = read(json.dumps({"kind": "A", "apiVersion": "v1", "matchLabels": labels}))
    start = time.process_time()
    with pytest.raises(InputError, match=r"matchLabels\.odd: expected a string"):
        decode(document, Selector)
    assert time.process_time() - start < 10


def test_decode_of_deep_json() -> None:
    """Whatever depth the reader lets through, decoding gives a value or an InputError."""
    messages = set()
    for depth in (*range(100, 1100), *range(2_000, 20_001, 1_000)):  # the limit depends on Python's version
        text = JSON_POD + '"metadata":{"name":"a","labels":{"x":' + "[" * depth + "]" * depth + "}}}"
        try:
            (document,) = read(text)
            decode(document, Pod)
            messages.add("")
        except InputError as error:
            messages.add(error.message)
    assert messages == {"", "nested too deeply"}


@pytest.mark.parametrize("ending", ["]" * 5000 + "}", '{"x":1,"x":2}' + "]" * 5000 + "}"])
def test_reading_of_deep_json_at_every_depth(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's steps stand at different depths of Python's own stack; none may fail in another way."""
    for limit in (0, documents.DUPLICATES_CHECKED_UP_TO):
        monkeypatch.setattr(documents, "DUPLICATES_CHECKED_UP_TO", limit)
        for depth in (*range(800, 1000), *range(2_000, 20_001, 1_000)):  # the limit depends on Python's version
            tail = ending.replace("]" * 5000, "]" * depth)
            try:
                read(JSON_POD + '"a":' + "[" * depth + tail)
            except InputError as error:
                message = error.message
        assert message == "nested too deeply"


def test_a_message_that_quotes_the_text_does_not_mislead() -> None:
    class Colour(enum.Enum):
        RED = "red"

    class Odd(msgspec.Struct):
        colour: Colour

    (document,) = read(JSON_POD + '"colour":"x - at `$.y`"}')
    with pytest.raises(InputError) as caught:
        decode(document, Odd)
    assert caught.value.field == "colour"


def test_slow_path_leaves_the_value_as_it_was() -> None:
    (document,) = read(POD + b"metadata: {name: a, labels: {x: 1, z: }}\n")
    decode(document, Pod)
    assert document.value == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "a", "labels": {"x": 1, "z": None}},
    }


def test_keys_become_strings_as_in_the_api_machinery() -> None:
    """`portLevelMtls: {9090: …}` and `on:` are keys that kubectl takes."""
    text = POD + b"a: {9090: x, 1.5: v, on: z, 'no': q, 0x10: r, !!str 7: s}\n"
    (document,) = read_documents(text, "f")
    assert document.value is not None
    assert document.value["a"] == {"9090": "x", "1.5": "v", "true": "z", "no": "q", "16": "r", "7": "s"}
