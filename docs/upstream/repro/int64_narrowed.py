"""int64 beyond int32 arrives as other numbers, also where dtypes asks for float32."""

import numpy as np
import ray

ids = np.array([2**31, 2**40, 2**40 + 2**20, 7], np.int64)
dataset = ray.data.from_numpy(ids).rename_columns({"data": "id"})
print("in the dataset: ", [row["id"] for row in dataset.take_all()])
for dtypes in (None, "float32"):
    (batch,) = dataset.iter_jax_batches(batch_size=4, dtypes=dtypes)
    print(f"dtypes={dtypes!r}:", batch["id"].dtype, batch["id"].tolist())
