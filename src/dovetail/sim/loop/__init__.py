"""An event loop on virtual time."""
