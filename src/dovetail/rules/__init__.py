"""The rules of disruption: pure functions of objects and an instant that answer with a verdict."""
