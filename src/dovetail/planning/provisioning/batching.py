"""How long are pods waited for before nodes are planned for all of them at once (06 §3)?"""

from datetime import datetime, timedelta


class Batch:
    """What has asked for nodes since the window opened: pods, and nodes whose pods will need a place, by UID.

    It keeps no time of its own: whoever adds says when, and waits until `closes_at`, which only a new UID moves.
    """

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
        """The first one opens the window. One that is in already neither opens nor extends it."""
        if uid in self._uids:
            return
        assert self._grew_at is None or at >= self._grew_at, "time goes on"
        self._uids.add(uid)
        self._opened_at = self._opened_at or at
        self._grew_at = at

    @property
    def closes_at(self) -> datetime | None:
        """When it is closed unless somebody new comes; None: it is not open."""
        if self._opened_at is None or self._grew_at is None:
            return None
        return min(self._grew_at + self._idle, self._opened_at + self._longest)

    def close(self) -> int:
        """Begin anew; how many there were."""
        count = len(self._uids)
        self._uids.clear()
        self._opened_at = self._grew_at = None
        return count
