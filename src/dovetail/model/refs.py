"""References to objects, and sentences that keep them apart from their words.

Whoever must not list the pods of a namespace must not read their names (R49). A finished text does not show which words
are names, so the engine passes on parts, and the text is made where it is shown: `str(sentence)` for readers who may
see everything, `sentence.redacted(may_see)` for others.

The classes are not msgspec Structs: in JSON and YAML they are text, by `enc_hook=str`.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

# Whether the reader may list pods of this namespace.
MaySee: TypeAlias = Callable[[str], bool]


class Ref:
    """A reference to an object. A kind alone means all its objects; cluster-scoped objects have no namespace."""

    __slots__ = ("_text", "kind", "name", "namespace")

    def __init__(self, kind: str, namespace: str = "", name: str = "") -> None:
        self.kind: Final = kind
        self.namespace: Final = namespace
        self.name: Final = name
        self._text = ""  # cached: each verdict about a pod shows it

    def __str__(self) -> str:
        """`Pod/shop/cart-0`, `Node/n1`, `Pod`."""
        if not self._text:
            if self.namespace:
                self._text = f"{self.kind}/{self.namespace}/{self.name}"
            else:
                self._text = f"{self.kind}/{self.name}" if self.name else self.kind
        return self._text

    @property
    def path(self) -> str:
        """`shop/cart-0`, `n1`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def is_kind(self) -> bool:
        """Whether it refers to a kind and not to an object."""
        return not self.name and self.kind.isalpha()

    def is_seen_by(self, may_see: MaySee) -> bool:
        """Whoever may see nodes may see objects without a namespace."""
        return not self.namespace or may_see(self.namespace)

    def hidden(self) -> str:
        """The text in place of the name."""
        kind = "pod" if self.kind == "Pod" else self.kind
        return f"a {kind} in a namespace that you may not list"

    def __repr__(self) -> str:
        return f"Ref({self.kind!r}, {self.namespace!r}, {self.name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ref):
            return NotImplemented
        return self.name == other.name and self.namespace == other.namespace and self.kind == other.kind

    def __lt__(self, other: "Ref") -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash((self.kind, self.namespace, self.name))


@lru_cache(maxsize=64)
def shared_ref(kind: str, namespace: str, name: str) -> Ref:
    """One Ref for consecutive verdicts about a pod or node."""
    return Ref(kind, namespace, name)


class Redactable:
    """Words that only readers who may see the object may read."""

    __slots__ = ("ref", "text")

    def __init__(self, ref: Ref, text: str) -> None:
        self.ref: Final = ref
        self.text: Final = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Redactable({self.ref!r}, {self.text!r})"


class Sentence:
    """A message for people. Text in it names no object of a namespace; `Ref` and `Redactable` do."""

    __slots__ = ("parts",)

    def __init__(self, *parts: "str | Ref | Redactable | Sentence") -> None:
        self.parts: Final[tuple[str | Ref | Redactable | Sentence, ...]] = parts

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def __bool__(self) -> bool:
        return any(map(str, self.parts))

    @property
    def refs(self) -> Iterator[Ref]:
        """The objects that it names as parts."""
        for part in self.parts:
            if isinstance(part, Sentence):
                yield from part.refs
            elif not isinstance(part, str):
                yield part if isinstance(part, Ref) else part.ref

    def redacted(self, may_see: MaySee) -> "Sentence":
        """The same without names of objects in namespaces that the reader may not list."""
        return Sentence(*(_redacted(part, may_see) for part in self.parts))

    def __repr__(self) -> str:
        return f"Sentence{self.parts!r}"

    def __eq__(self, other: object) -> bool:
        """By what it says."""
        return str(self) == str(other) if isinstance(other, Sentence) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def _redacted(part: "str | Ref | Redactable | Sentence", may_see: MaySee) -> "str | Ref | Redactable | Sentence":
    if isinstance(part, str):
        return part
    if isinstance(part, Sentence):
        return part.redacted(may_see)
    ref = part if isinstance(part, Ref) else part.ref
    return part if ref.is_seen_by(may_see) else ref.hidden()
