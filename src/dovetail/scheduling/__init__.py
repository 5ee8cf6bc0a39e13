"""Decides where pods can go: what pods ask for and nodes offer, as values that two engines share."""
