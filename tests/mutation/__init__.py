"""Break the rules one at a time and see that the tests notice."""
