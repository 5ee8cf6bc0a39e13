"""`forecast`: what becomes of each node over a span of time."""
