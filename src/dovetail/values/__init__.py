"""Parses and prints small values: durations, quantities, schedules, selectors and times."""
