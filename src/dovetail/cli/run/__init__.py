"""How `dovetail run` is put together."""
