"""Findings about the annotations of pods and the budgets of NodePools, for `lint` and `explain`."""
