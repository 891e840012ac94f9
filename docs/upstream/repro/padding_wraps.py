"""A padding that the column cannot hold becomes another number, or an OverflowError at the tail."""

import numpy as np
import ray

images = np.arange(1, 7, dtype=np.uint8)
dataset = ray.data.from_numpy(images).rename_columns({"data": "pixel"})
for padding in (-1.0, 0.5, -1):
    print(f"paddings={padding}:")
    try:
        for batch in dataset.iter_jax_batches(batch_size=4, paddings=padding):
            print("  ", batch["pixel"].tolist())
    except Exception as error:
        print("  ", repr(error))
