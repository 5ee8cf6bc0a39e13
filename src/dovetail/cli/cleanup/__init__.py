"""How `dovetail cleanup` removes what we put on objects."""
