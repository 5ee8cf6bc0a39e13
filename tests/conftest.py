"""Settings shared by all tests."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.cluster.fixtures"]

# Time limits per example would make tests depend on the machine; `make bench` measures speed instead. What every change
# must pass tries the same examples each time; `make soak` looks for new ones.
settings.register_profile(
    "default", max_examples=500, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", parent=settings.get_profile("default"), max_examples=20_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
