"""Answers for people and scripts, as data; no input or output happens here."""
