"""The screen and the dashboard of `dovetail demo`."""
