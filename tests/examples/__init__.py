"""Tests of the programs to copy."""
