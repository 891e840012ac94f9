"""ray#66085 through iter_jax_batches: short batches mid-stream, so counts that differ."""

import pyarrow as pa
import ray

for blocks in ((40,), (30, 10)):
    dataset = ray.data.from_arrow([pa.table({"id": range(rows)}) for rows in blocks])
    arguments = {"batch_size": 8, "drop_last": True, "local_shuffle_buffer_size": 8}
    batches = dataset.iter_jax_batches(local_shuffle_seed=7, **arguments)
    print(f"blocks of {blocks} rows:", [len(batch["id"]) for batch in batches])
