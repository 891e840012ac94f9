"""Tests of the iterator."""
