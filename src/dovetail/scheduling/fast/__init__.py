"""The fast engine (08): the same answers as the reference engine, in a small part of its time."""

from dovetail.scheduling.fast.world import IncrementalWorld, World, solve

__all__ = ["IncrementalWorld", "World", "solve"]
