"""How long a campaign is: a few examples in `make quick`, more in `make test`, many in `make soak`."""

import os
from typing import Final

_PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE")
SOAK: Final = _PROFILE == "soak"


def examples(number: int, *, quick: int) -> int:
    """How many examples are tried; `make quick` tries the first of them."""
    return quick if _PROFILE == "quick" else number
