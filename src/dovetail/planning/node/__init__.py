"""What becomes of a Node: its drain and its repair."""
