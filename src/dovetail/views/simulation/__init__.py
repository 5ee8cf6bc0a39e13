"""What a simulated run came to, as data and as a page."""
