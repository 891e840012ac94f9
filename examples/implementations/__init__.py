"""Implementations that are not of this project, plugged in as docs/implementers.md says."""
