"""The command line: the only place that reads files, the clock and the terminal."""
