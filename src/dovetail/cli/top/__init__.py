"""The screen of `dovetail top`."""
