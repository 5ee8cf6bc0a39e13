"""How fast the demo plays. The only part of it that reads the wall clock."""

import time
from datetime import timedelta
from typing import Final

_FRAME_SECONDS: Final = 0.25
_POLL_SECONDS: Final = 0.025
_LONGEST_SLICE: Final = timedelta(minutes=10)
_STEPS: Final = (1.0, 10.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0, 10_800.0, 36_000.0, 86_400.0)


class Pace:
    """Virtual time follows the wall clock at a speed, or as fast as the simulation can."""

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

    def press(self, key: str) -> bool:
        """Do what the key means; False if it means nothing here."""
        match key:
            case " ":
                self.paused = not self.paused
            case "+" | "=":
                self.speed = next((step for step in _STEPS if step > self.speed), self.speed)
            case "-":
                self.speed = next((step for step in reversed(_STEPS) if step < self.speed), self.speed)
            case "n":
                self.jumping = True
            case _:
                return False
        return True

    def landed(self) -> None:
        """End the jump: something has happened."""
        self.jumping = False
        self._asked_at = time.monotonic()

    def due(self) -> timedelta:
        """How much virtual time passes now. Waits a moment if none does."""
        now = time.monotonic()
        passed, self._asked_at = now - self._asked_at, now
        if self.paused:
            time.sleep(2 * _POLL_SECONDS)
            return timedelta()
        if passed < _POLL_SECONDS:
            time.sleep(_POLL_SECONDS)
        return min(_LONGEST_SLICE, timedelta(seconds=min(passed, 1.0) * self.speed))

    def frame_due(self) -> bool:
        """Whether the cluster must be shown again."""
        now = time.monotonic()
        if now - self._drawn_at < _FRAME_SECONDS:
            return False
        self._drawn_at = now
        return True
