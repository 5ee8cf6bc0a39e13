"""What should be done: decisions on values, which controllers then carry out."""
