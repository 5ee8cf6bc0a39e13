"""Sets of instants: cron expressions, windows and time zones."""
