"""Programs to copy."""
