"""Does every action in a simulated run keep what is promised? Checkers share no code with what they check."""
