"""Tests of the gate."""
