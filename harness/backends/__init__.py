"""Backends of a gang: how its ranks are started, watched and ended."""
