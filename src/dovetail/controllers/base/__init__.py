"""What all controllers share: work queues by key, passes, and how objects are written."""
