"""The screen of `dovetail top` and `dovetail demo`."""
