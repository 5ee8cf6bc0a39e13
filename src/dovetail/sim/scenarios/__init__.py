"""Scenarios: a cluster from files, what happens to it over days, and an account of it."""
