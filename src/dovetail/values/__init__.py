"""Parse and print the small values that Kubernetes objects hold: durations, quantities, schedules, selectors, times."""
