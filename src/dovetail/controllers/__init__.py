"""One thin module a controller: observe, decide, act."""
