"""`record`: which parts of an object a dump holds."""
