"""Values that are derived from stores, and computed again only where something changed."""

from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Derived(Generic[K, V]):
    """One value per key. `make` gets a touched key and the previous value of the key.

    It returns the new value, None if the key has no value any more, or the previous value itself if nothing changed.
    `failed` is called once with the error of a key whose value cannot be made; the key has no value until it is touched
    and made again. Without `failed` the error is raised, and the key stays touched.
    """

    def __init__(
        self, make: Callable[[K, V | None], V | None], failed: Callable[[str, Exception], object] | None = None
    ) -> None:
        self._make = make
        self._failed = failed
        self._broken: set[K] = set()
        self._values: dict[K, V] = {}
        self._touched: dict[K, None] = {}  # no set, so that the same changes give the same order
        self._shown: Mapping[K, V] = {}
        self._changed = False  # since `_shown` was made
        self.dependents: list[Derived[K, Any]] = []  # touched together with this one

    def __len__(self) -> int:
        """The number of touched keys."""
        return len(self._touched)

    def touch(self, key: K) -> None:
        """Call it when an input of the key has changed."""
        self._touched[key] = None
        for dependent in self.dependents:
            dependent.touch(key)

    def touch_all(self) -> None:
        for key in self._values:
            self.touch(key)

    def get(self, key: K) -> V | None:
        """The current value."""
        if key in self._touched:
            self._refresh(key)
        return self._values.get(key)

    def settle(self, at_most: int | None = None) -> bool:
        """Makes the values of at most so many touched keys. Returns whether touched keys are left."""
        for key in list(islice(self._touched, at_most)):
            if key in self._touched:  # `make` may have made another value
                self._refresh(key)
        return bool(self._touched)

    def all(self) -> Mapping[K, V]:
        """All current values. The mapping is the same object until a value changes, and never changes itself."""
        while self.settle():
            pass
        if self._changed:
            self._shown, self._changed = self._values.copy(), False
        return self._shown

    def _refresh(self, key: K) -> None:
        previous = self._values.get(key)
        try:
            value = self._make(key, previous)
        except Exception as error:
            if self._failed is None:
                raise
            if key not in self._broken:
                error.add_note(f"while deriving the value of {key}")
                self._failed("state", error)
                self._broken.add(key)
            value = None  # the previous value is out of date
        else:
            self._broken.discard(key)
        self._touched.pop(key, None)
        if value is previous:
            return
        self._changed = True
        if value is None:
            del self._values[key]
        else:
            self._values[key] = value
