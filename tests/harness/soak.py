"""Tells a long campaign (`make soak`) from the tests of every change, which try a few examples of each campaign."""

import os
from typing import Final

SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
