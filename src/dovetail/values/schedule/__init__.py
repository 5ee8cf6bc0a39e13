"""Sets of instants: cron expressions, windows, time zones, and when an answer changes."""
