"""Start N JAX processes as one gang, and say where each rank stands."""
