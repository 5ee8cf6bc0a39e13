"""The fast engine (08): the answers of the reference engine in a fraction of the time."""

from dovetail.scheduling.fast.world import IncrementalWorld, World, solve

__all__ = ["IncrementalWorld", "World", "solve"]
