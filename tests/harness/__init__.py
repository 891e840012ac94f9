"""Tests of the harness: real processes, one behaviour a test."""
