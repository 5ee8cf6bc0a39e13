"""Options, sources and output, which the commands share."""
