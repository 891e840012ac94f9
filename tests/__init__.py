"""Tests of this project."""
