"""Settings shared by all tests."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.cluster.fixtures"]

# Time limits per example would make tests depend on the machine; `make bench` measures speed instead.
settings.register_profile("default", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", parent=settings.get_profile("default"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
