"""Figures, not verdicts: times, memory and growth, printed as tables by `make bench`."""
