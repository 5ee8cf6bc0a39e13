"""The longest texts that users may write (R53). A longer one is invalid and not parsed."""

from typing import Final

DURATION: Final = 64
SCHEDULE: Final = 4096  # also of a list of durations
VALUE: Final = 256  # any other value
COMMAND: Final = 128 * 1024  # the record of a command: enough for a thousand claims
