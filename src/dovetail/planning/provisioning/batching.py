"""The time window in which pods are collected before nodes are planned for all of them (06 §3)."""

from datetime import datetime, timedelta


class Batch:
    """The UIDs of pods and disrupted nodes that were added since the window opened. Only a new UID extends it."""

    def __init__(self, *, idle: timedelta, longest: timedelta) -> None:
        assert min(idle, longest) > timedelta(0), (idle, longest)
        self._idle = idle
        self._longest = longest
        self._uids: set[str] = set()
        self._opened_at: datetime | None = None
        self._grew_at: datetime | None = None

    def __len__(self) -> int:
        return len(self._uids)

    def add(self, uid: str, at: datetime) -> None:
        """The first UID opens the window. A known UID does not extend it."""
        if uid in self._uids:
            return
        assert self._grew_at is None or at >= self._grew_at, "time goes on"
        self._uids.add(uid)
        self._opened_at = self._opened_at or at
        self._grew_at = at

    @property
    def closes_at(self) -> datetime | None:
        """The end of the window, unless a new UID extends it; None: it is not open."""
        if self._opened_at is None or self._grew_at is None:
            return None
        return min(self._grew_at + self._idle, self._opened_at + self._longest)

    def is_growing(self, at: datetime) -> bool:
        """Whether the window has grown so shortly before that more is expected."""
        return self._grew_at is not None and at < self._grew_at + min(self._idle, self._longest)

    def close(self) -> int:
        """Returns the number of UIDs and starts over."""
        count = len(self._uids)
        self._uids.clear()
        self._opened_at = self._grew_at = None
        return count
