"""Controllers of pods: evictions, and events about their annotations."""
