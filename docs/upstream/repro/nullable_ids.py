"""Ids of int64 with one null come out of iter_batches as float64: those beyond 2**53 change."""

import pyarrow as pa
import ray

ids = pa.array([2**53 + 1, 2**60 + 1, None, 7], pa.int64())
dataset = ray.data.from_arrow(pa.table({"id": ids}))
print("in the dataset:", [row["id"] for row in dataset.take_all()])
(batch,) = dataset.iter_batches(batch_size=4, batch_format="numpy")
print("iter_batches:  ", batch["id"].dtype, [int(i) for i in batch["id"] if i == i])
