"""JAX batches from uneven shards on many processes: no hang, no silent change, a reason for every stop."""
