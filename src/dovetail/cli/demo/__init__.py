"""Plays the simulated cluster of `dovetail demo`, at a pace that keys change."""
