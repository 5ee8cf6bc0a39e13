"""The dashboard's content as data."""
