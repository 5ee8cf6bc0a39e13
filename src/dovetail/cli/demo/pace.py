"""How fast does the demo go? The only part of it that looks at the wall clock."""

import time
from datetime import timedelta
from typing import Final

from dovetail.cli.common.keys import keys_in

_FRAME_SECONDS: Final = 0.1
_LONGEST_SLICE: Final = timedelta(minutes=10)
_STEPS: Final = (1.0, 10.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0, 10_800.0, 36_000.0, 86_400.0)


class Pace:
    """Virtual time follows the wall clock at a speed; what cannot be played so fast comes later."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.paused = False
        self.jumping = False
        self.ended = False
        self._asked_at = time.monotonic()
        self._drawn_at = 0.0

    @property
    def speed_now(self) -> float:
        return 0.0 if self.paused else self.speed

    def press(self, typed: str) -> None:
        """What the keys mean."""
        for key in keys_in(typed):
            if key in ("q", "escape"):
                self.ended = True
            elif key == " ":
                self.paused = not self.paused
            elif key in ("+", "="):
                self.speed = next((step for step in _STEPS if step > self.speed), self.speed)
            elif key == "-":
                self.speed = next((step for step in reversed(_STEPS) if step < self.speed), self.speed)
            elif key in ("n", "j"):
                self.jumping = True

    def landed(self) -> None:
        """What was jumped to has happened."""
        self.jumping = False
        self._asked_at = time.monotonic()

    def due(self) -> timedelta:
        """How much virtual time is to pass now; waits a moment if none is."""
        now = time.monotonic()
        passed, self._asked_at = now - self._asked_at, now
        if self.paused:
            time.sleep(_FRAME_SECONDS / 2)
            return timedelta()
        if passed < _FRAME_SECONDS / 4:
            time.sleep(_FRAME_SECONDS / 4)
        return min(_LONGEST_SLICE, timedelta(seconds=min(passed, 1.0) * self.speed))

    def frame_due(self) -> bool:
        """Whether the screen is to be drawn again."""
        now = time.monotonic()
        if now - self._drawn_at < _FRAME_SECONDS:
            return False
        self._drawn_at = now
        return True
