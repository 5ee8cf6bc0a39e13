"""The wire format: partial structs of objects, names, and documents."""
