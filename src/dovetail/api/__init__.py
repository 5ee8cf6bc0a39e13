"""The wire: partial structs of the objects we read, their names, and how documents become objects."""
