"""Checkers verify every action of a simulated run. They share no code with what they check."""
