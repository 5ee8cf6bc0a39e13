"""The commands' answers as lines of text."""
