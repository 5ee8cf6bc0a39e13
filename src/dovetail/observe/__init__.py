"""What the program says about itself: metrics and logs."""
