"""JAX batches from uneven shards on many processes: no hang, and a reason for every stop."""
