"""Values that are made from what stores hold, and made again only where something has changed."""

from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Derived(Generic[K, V]):
    """One value a key. `make` is called with a key that was touched and what was made of it before.

    It returns the value, or None if there is nothing of this key any more. If it returns the object that it was given,
    nothing has changed.
    """

    def __init__(self, make: Callable[[K, V | None], V | None]) -> None:
        self._make = make
        self._values: dict[K, V] = {}
        self._touched: dict[K, None] = {}  # no set: the same changes are to give the same order
        self._shown: Mapping[K, V] = {}
        self._changed = False  # since it was shown
        self.dependents: list[Derived[K, Any]] = []  # they are touched where this one is

    def __len__(self) -> int:
        """How many values have to be made anew."""
        return len(self._touched)

    def touch(self, key: K) -> None:
        """What the key is made of has changed."""
        self._touched[key] = None
        for dependent in self.dependents:
            dependent.touch(key)

    def touch_all(self) -> None:
        for key in self._values:
            self.touch(key)

    def get(self, key: K) -> V | None:
        """The value as of now."""
        if key in self._touched:
            self._refresh(key)
        return self._values.get(key)

    def is_current(self, key: K, value: V) -> bool:
        """Whether nothing of the key has changed since this value was made."""
        return self._values.get(key) is value and key not in self._touched

    def settle(self, at_most: int | None = None) -> bool:
        """Make anew what was touched, but no more than so many values. Returns whether some are left."""
        for key in list(islice(self._touched, at_most)):
            if key in self._touched:  # making one may have asked for another
                self._refresh(key)
        return bool(self._touched)

    def all(self) -> Mapping[K, V]:
        """All values as of now. It is the same object until one of them changes; later changes do not touch it."""
        while self.settle():
            pass
        if self._changed:
            self._shown, self._changed = self._values.copy(), False
        return self._shown

    def _refresh(self, key: K) -> None:
        known = self._values.get(key)
        value = self._make(key, known)  # if it raises, the key stays touched: nobody goes on with what it was before
        self._touched.pop(key, None)
        if value is known:
            return
        self._changed = True
        if value is None:
            del self._values[key]
        else:
            self._values[key] = value
