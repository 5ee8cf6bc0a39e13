"""What the program serves over HTTP."""
