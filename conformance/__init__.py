"""The specification of iter_jax_batches as clauses, cases and an oracle."""
