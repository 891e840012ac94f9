"""The gate that CI runs."""
