"""What the commands share: options, sources and output."""
